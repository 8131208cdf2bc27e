"""Tell whether a child died for want of memory."""

import contextlib
from pathlib import Path

_WORDS = ("MemoryError", "std::bad_alloc", "Cannot allocate memory", "out of memory")
_TAIL_CHARS = 4096


def oom_kills() -> int:
    """Count the kernel's out-of-memory kills since boot; 0 where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def says_out_of_memory(stderr: str) -> bool:
    """Tell whether the last words of a failed program are those of a failed allocation.

    A program may lie here; it only chooses which failure is recorded.
    """
    return any(word in stderr[-_TAIL_CHARS:] for word in _WORDS)
