"""The lives of a lane's worker: a parent of a few lines that starts it again when it dies.

The parent does no work and holds nothing: kill it, and its worker drains and leaves. A worker that
ends by itself (drained, goal over, refused) is not started again; one that dies is, with growing
pauses, until it has died 5 times in 10 minutes.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque
from types import FrameType

CHILD_MARK = "LABMATES_WORKER_LIFE"
"""Set in the environment of the worker process itself; value: the pid of its parent."""

DIED_MARK = "LABMATES_WORKER_DIED"
"""Set in the environment of a worker that is started again: how the one before it ended."""

DEATHS = 5
WITHIN_S = 600.0
GAVE_UP = 75
"""Exit code of a lane that gave up (the store and its other lanes go on)."""

_ENDED = {0, 2, 3, 4, 5, 6, 130}
_NO_STORE = 4
_PR_SET_PDEATHSIG = 1


def keep_alive(argv: list[str]) -> int:
    """Run `argv` as a lane's worker and start it again when it dies; gives the lane's exit code.

    TERM and INT go on to the worker; a second one hands its step back.
    """
    deaths: deque[float] = deque(maxlen=DEATHS)
    asked = 0
    child: subprocess.Popen[bytes] | None = None
    died = ""

    def forward(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        asked += 1
        if child is not None and child.poll() is None:
            child.send_signal(signal.SIGTERM)

    signal.signal(signal.SIGTERM, forward)
    signal.signal(signal.SIGINT, forward)
    while True:
        environment = {**os.environ, CHILD_MARK: str(os.getpid()), DIED_MARK: died}
        # its own group: a terminal's Ctrl-C reaches the parent alone, and is forwarded once
        child = subprocess.Popen(argv, env=environment, process_group=0)
        if asked:  # between the last look and this start
            child.send_signal(signal.SIGTERM)
        code = child.wait()
        if code in _ENDED and not (code == _NO_STORE and deaths):
            return code
        if asked and code != 70:
            return max(code, 0)
        died = f"signal {-code}" if code < 0 else f"exit code {code}"
        deaths.append(time.monotonic())
        if len(deaths) == DEATHS and deaths[-1] - deaths[0] < WITHIN_S:
            sys.stderr.write(f"labmates: the worker died {DEATHS} times in 10 minutes; gave up\n")
            return GAVE_UP
        pause = 0.1 * 2 ** (len(deaths) - 1)
        signal.sigtimedwait({signal.SIGUSR2}, pause)  # a pause that TERM and INT end
        if asked:
            return 0


def end_with_parent() -> None:
    """Ask the kernel for a TERM when the parent dies (Linux); drain at once if it is gone already."""
    parent = os.environ.get(CHILD_MARK, "")
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if parent.isdigit() and os.getppid() != int(parent):
        os.kill(os.getpid(), signal.SIGTERM)
