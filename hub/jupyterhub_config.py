"""A JupyterHub for a class: one machine, one shared environment, a home folder for each student.

Everything that a school changes is an environment variable (see README.md, README.zh.md), so this file can stay as it
is. Start it with ``jupyterhub -f hub/jupyterhub_config.py`` from an environment that has ``hub/requirements.txt``.
"""

import os
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from traitlets import import_item, validate
from traitlets.config import get_config

c = get_config()
HERE = Path(__file__).resolve().parent
SHARED = Path(sys.prefix) / "bin"  # students run the hub's own environment, and cannot write to it


def setting(name: str, default: str = "") -> str:
    """What the school has set, else the default."""
    return os.environ.get(f"AGENT_LAB_{name}", "").strip() or default


LANGUAGE = setting("LANGUAGE", "en")
STATE = Path(setting("STATE", ".")).resolve()
FIRST_PORT = int(setting("FIRST_PORT", "10000"))  # one port per student from here on, below those that Linux hands out

# --- Where: behind the school's own web server, which adds https. ---

c.JupyterHub.bind_url = setting("URL", "http://127.0.0.1:8000")
c.JupyterHub.hub_bind_url = setting("HUB_URL", "http://127.0.0.1:8081")
c.ConfigurableHTTPProxy.api_url = setting("PROXY_URL", "http://127.0.0.1:8001")
proxy = HERE / "node_modules" / ".bin" / "configurable-http-proxy"
c.ConfigurableHTTPProxy.command = [str(proxy) if proxy.exists() else "configurable-http-proxy"]
c.JupyterHub.db_url = f"sqlite:///{STATE}/jupyterhub.sqlite"
c.JupyterHub.cookie_secret_file = str(STATE / "jupyterhub_cookie_secret")

# --- Who: choose one. Any authenticator of JupyterHub fits; the school's own log-in is the best choice. ---

c.JupyterHub.authenticator_class = setting("LOGIN", "pam")  # accounts of this machine
c.Authenticator.allow_all = True  # whoever can log in may come in
c.Authenticator.admin_users = set(setting("ADMINS").split())
if setting("LOGIN") == "shared-password":  # any name, one password: for a class behind closed doors
    if not setting("PASSWORD"):
        sys.exit("AGENT_LAB_LOGIN=shared-password needs a password: set AGENT_LAB_PASSWORD")
    c.JupyterHub.authenticator_class = "shared-password"
    c.SharedPasswordAuthenticator.user_password = setting("PASSWORD")

# --- How: each student's server. ---

c.Spawner.mem_limit = setting("MEMORY", "768M")  # kept by systemd; with "simple" nobody enforces it
c.Spawner.cpu_limit = float(setting("CPUS", "2"))
c.Spawner.cmd = [str(SHARED / "jupyterhub-singleuser")]
c.Spawner.start_timeout = c.Spawner.http_timeout = 120
c.Spawner.args = ["--KernelManager.transport=ipc"]  # kernels listen on files of their student, not on open ports
isolated = setting("SPAWNER", "systemd") == "systemd"
if isolated:  # each student is a user of the machine, made for the occasion
    c.SystemdSpawner.dynamic_users = True  # home in /var/lib/NAME; nothing else can be written
    c.SystemdSpawner.isolate_tmp = True
    c.SystemdSpawner.isolate_devices = True
    c.SystemdSpawner.disable_user_sudo = True
else:  # all as the hub's own user, who can read everything: to try it out, and for the tests
    c.SimpleLocalProcessSpawner.home_dir_template = f"{STATE}/homes/{{username}}"
    c.Spawner.args += ["--allow-root"] if os.geteuid() == 0 else []
base: Any = import_item("systemdspawner.SystemdSpawner" if isolated else "jupyterhub.spawner.SimpleLocalProcessSpawner")


class StudentSpawner(base):
    """Each student's server on a port of its own: when a class logs in at once, random ports are given out twice."""

    @validate("port")
    def _own_port(self, proposal: dict[str, Any]) -> int:
        return FIRST_PORT + self.user.id if self.user else int(proposal["value"])


c.JupyterHub.spawner_class = StudentSpawner

# --- What: the lessons are copied into the student's home, and brought up to date, each time a server starts. ---

lessons = {
    "repo": setting("REPO"),  # any address that git can clone, a folder of this machine included
    "branch": setting("BRANCH", "main"),
    "targetpath": "agent-lab",
    "urlpath": f"lab/tree/agent-lab/notebooks/{LANGUAGE}/index.ipynb",
}
if lessons["repo"]:
    c.Spawner.default_url = f"/git-pull?{urlencode(lessons)}"

# --- Secrets: the hub hands them on; they are in no file of a student. A class that shares a key can read it. ---

KEYS = ("DASHSCOPE_API_KEY", "MODEL_BASE_URL", "MODEL_NAME", "MODEL_PRICE_INPUT", "MODEL_PRICE_OUTPUT")
c.Spawner.environment = {name: os.environ[name] for name in KEYS if os.environ.get(name)}
c.Spawner.environment |= {
    "AGENTLIB_LANG": LANGUAGE,
    "PATH": f"{SHARED}:{os.environ.get('PATH', '')}",
    "JUPYTER_RUNTIME_DIR": lambda spawner: f"/tmp/agent-lab-{spawner.user.id}",  # a socket's path must be short
}
c.Spawner.env_keep = ["LANG", "LC_ALL"]

# --- Idle servers are shut down, and their memory is free again. ---

c.JupyterHub.load_roles = [
    {
        "name": "idle-culler",
        "scopes": ["list:users", "read:users:activity", "read:servers", "delete:servers"],
        "services": ["idle-culler"],
    }
]
c.JupyterHub.services = [
    {
        "name": "idle-culler",
        "command": [sys.executable, "-m", "jupyterhub_idle_culler", f"--timeout={setting('IDLE_SECONDS', '3600')}"],
    }
]
