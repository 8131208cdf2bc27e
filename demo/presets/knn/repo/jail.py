"""What a child may not do: start processes or threads, write files, look into other processes.

The kernel holds these bounds (Landlock, seccomp, resource limits), each as far as it has them;
`seal` says which took effect. The evaluator looks for breaches as well.
"""

import ctypes
import platform
import resource
import signal
import struct

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38

LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446
# Every right of the first ABI that changes the file system, then those of later ABIs.
LANDLOCK_WRITES = 0b1_1111_1111_0010
LANDLOCK_LATER_WRITES = {2: 1 << 13, 3: 1 << 14}

SECCOMP_KILL, SECCOMP_EPERM, SECCOMP_ALLOW = 0x80000000, 0x00050001, 0x7FFF0000
LOAD, JUMP_IF_EQUAL, JUMP_IF_GREATER, RETURN = 0x20, 0x15, 0x25, 0x06

# Per machine: audit number; calls that end the child; calls that are refused; prlimit, which is
# refused for any other process.
# Ended: fork, vfork, clone, clone3, execve, execveat, ptrace, process_vm_readv, process_vm_writev.
# Refused: kill, tkill, tgkill, setpriority, sched_setparam, sched_setscheduler, sched_setaffinity,
# sched_setattr, socket, io_uring_setup, pidfd_open, pidfd_getfd, perf_event_open, bpf.
CALLS = {
    "x86_64": (
        0xC000003E,
        (57, 58, 56, 435, 59, 322, 101, 310, 311),
        (62, 200, 234, 141, 142, 144, 203, 314, 41, 425, 434, 438, 298, 321),
        302,
    ),
    "aarch64": (
        0xC00000B7,
        (220, 435, 221, 281, 117, 270, 271),
        (129, 130, 131, 140, 118, 119, 122, 274, 198, 425, 434, 438, 241, 280),
        261,
    ),
}

libc = ctypes.CDLL(None, use_errno=True)


def hide():
    """Keep this process's memory and environment from others of its user; adopt orphans."""
    libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def seal():
    """Give up what a child does not need, for good. Returns the names of the bounds that hold."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    held = {"capabilities": _drop_capabilities(), "landlock": _landlock(), "seccomp": _seccomp()}
    return [name for name, holds in held.items() if holds]


def _drop_capabilities():
    for capability in range(64):
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    header = ctypes.create_string_buffer(struct.pack("Ii", 0x20080522, 0))
    return libc.capset(header, ctypes.create_string_buffer(24)) == 0


def _landlock():
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return False
    writes = LANDLOCK_WRITES
    for since, right in LANDLOCK_LATER_WRITES.items():
        writes |= right if version >= since else 0
    rules = ctypes.create_string_buffer(struct.pack("Q", writes))
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, rules, ctypes.c_size_t(8), 0)
    return ruleset >= 0 and libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0) == 0


def _seccomp():
    if platform.machine() not in CALLS:
        return False
    audit, ended, refused, prlimit = CALLS[platform.machine()]
    program = [
        (LOAD, 0, 0, 4),
        (JUMP_IF_EQUAL, 1, 0, audit),
        (RETURN, 0, 0, SECCOMP_KILL),
        (LOAD, 0, 0, 0),
        (JUMP_IF_GREATER, 0, 1, 0x3FFFFFFF),
        (RETURN, 0, 0, SECCOMP_KILL),
    ]
    for calls, answer in ((ended, SECCOMP_KILL), (refused, SECCOMP_EPERM)):
        for call in calls:
            program += [(JUMP_IF_EQUAL, 0, 1, call), (RETURN, 0, 0, answer)]
    program += [
        (JUMP_IF_EQUAL, 0, 3, prlimit),
        (LOAD, 0, 0, 16),
        (JUMP_IF_EQUAL, 1, 0, 0),
        (RETURN, 0, 0, SECCOMP_EPERM),
        (RETURN, 0, 0, SECCOMP_ALLOW),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filter_ = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(program), ctypes.addressof(code))
    )
    return libc.prctl(PR_SET_SECCOMP, 2, filter_, 0, 0) == 0
