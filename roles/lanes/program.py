"""How to start this same program again as a child process."""

import os
import sys
from pathlib import Path


def program() -> list[str]:
    """Give the argument list that runs `labmates`: the installed command, else the module."""
    command = Path(sys.executable).with_name("labmates")
    return [str(command)] if os.access(command, os.X_OK) else [sys.executable, "-m", "roles"]
