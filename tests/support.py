"""Helpers that every test may use."""

import time
from collections.abc import Callable


def wait_until(predicate: Callable[[], object], *, description: str, timeout_s: float = 10) -> None:
    """Ask every 10 ms until it holds; fail with `description` after `timeout_s` seconds."""
    deadline = time.monotonic() + timeout_s
    while not predicate():
        if time.monotonic() > deadline:
            message = f"not within {timeout_s} s: {description}"
            raise AssertionError(message)
        time.sleep(0.01)
