"""What one run may use."""

import resource
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one run may use; None is no limit.

    Attributes:
        memory_bytes: Private memory of each process (by the kernel), and resident memory of all
            of them together (sampled up to 10 times a second).
        file_bytes: Size of each file written.
        cpu_s: Processor seconds of each process.
        processes: Processes alive at once, the direct child included; sampled, since the
            kernel's own limit counts per user and does not bind root.
    """

    memory_bytes: int | None = None
    file_bytes: int | None = None
    cpu_s: int | None = None
    processes: int | None = None


def kernel_limits(limits: Limits) -> list[tuple[int, int, int]]:
    """Turn limits into the kernel's: kind, soft, hard."""
    found = [(resource.RLIMIT_CORE, 0, 0)]
    if limits.memory_bytes is not None:
        found.append((resource.RLIMIT_DATA, limits.memory_bytes, limits.memory_bytes))
    if limits.file_bytes is not None:
        found.append((resource.RLIMIT_FSIZE, limits.file_bytes, limits.file_bytes))
    if limits.cpu_s is not None:
        found.append((resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 5))
    return found
