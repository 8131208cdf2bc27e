"""What tests share: waiting for a condition, starting labmates' Python in a process of its own."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

# Read once: fixtures take every LABMATES_ variable away from the tests.
_STRESS = bool(os.environ.get("LABMATES_STRESS"))


def rounds(whole: int, *, part: int = 10) -> int:
    """Give the size of a test marked `stress`: `whole` under make stress, else a part of it."""
    return whole if _STRESS else max(1, whole // part)


def wait_until(
    predicate: Callable[[], object], *, description: str, timeout_s: float = 10.0
) -> None:
    """Wait until `predicate` is true, asked every 10 ms; fail with `description` otherwise."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            message = f"not within {timeout_s:g} s: {description}"
            raise AssertionError(message)
        time.sleep(0.01)


def start_python(
    code: str, *args: str, env: Mapping[str, str] | None = None, before: Sequence[str] = ()
) -> "subprocess.Popen[str]":
    """Start this Python on `code` with pipes on all three streams; end it with `communicate`.

    Args:
        code: What it runs.
        args: Its arguments.
        env: Added to the environment.
        before: A program that starts it, with its arguments.
    """
    return subprocess.Popen(
        [*before, sys.executable, "-c", code, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
    )


def holders_of(path: Path) -> set[int]:
    """Give the processes that have `path` open (this user's; Linux)."""
    wanted = path.stat()
    found = set()
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            descriptors = list((entry / "fd").iterdir())
        except OSError:
            continue  # ended meanwhile, or another user's
        for descriptor in descriptors:
            try:
                if os.path.samestat(wanted, descriptor.stat()):
                    found.add(int(entry.name))
            except OSError:
                continue
    return found
