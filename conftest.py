"""For all tests and lessons alike: nobody's key, endpoint or ``.env`` gets in, nor the language of this computer."""

import os

for _name in [
    n for n in os.environ if n.upper().startswith(("DASHSCOPE_", "OPENAI_", "MODEL_", "AGENTLIB_", "AGENTLAB_"))
]:
    del os.environ[_name]
os.environ["AGENTLAB_ENV_FILE"] = os.devnull
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # else each kernel warns that it cannot be debugged
