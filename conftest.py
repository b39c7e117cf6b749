"""For all tests and lessons alike: nobody's key, endpoint or ``.env`` gets in, nor the language of this computer."""

import os

FOREIGN = ("DASHSCOPE_", "OPENAI_", "MODEL_", "AGENTLIB_", "AGENTLAB_")

for _name in [name for name in os.environ if name.upper().startswith(FOREIGN)]:
    del os.environ[_name]
os.environ["AGENTLAB_ENV_FILE"] = os.devnull
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # else each kernel warns that it cannot be debugged
