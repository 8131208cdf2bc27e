"""Run the installed program as people do, in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = str(Path(sys.executable).with_name("labmates"))


def run(
    *words: str, code: int = 0, stdin: str = "", env: dict[str, str] | None = None
) -> "subprocess.CompletedProcess[str]":
    """Run `labmates` and check its exit code; no run may ever show a traceback."""
    done = subprocess.run(
        [SCRIPT, *words],
        input=stdin,
        capture_output=True,
        text=True,
        env={**os.environ, **(env or {})},
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done
