"""The parent of one run: whatever the run starts hangs below it, and it ends all of it.

A program of its own, run by path with `python -I -S`; nothing imports it. It is a child subreaper,
so that the kernel gives it every orphan of the run, whatever session or environment it has. It has
no living child only when the whole run is gone, and only then does it end itself. TERM, which the
kernel also sends when labmates dies, makes it kill its children until there is none.

On stdin comes the job (marshal): our own id, the descriptor to report to, program, environment and
limits. The report is the wait status of the program as four bytes, and one line `pid name` for
each process that TERM made it kill.

Its modules are the bare ones: `signal`, `os` and `ctypes` would double what a start costs.
"""

import _ctypes
import _signal  # type: ignore[import-not-found] # no stub
import marshal
import posix
import resource
import time

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER = 1, 4, 36
_PRCTL = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type] # the stub forgets None, the program itself


def prctl(option: int, value: int) -> None:
    """Set one property of this process."""
    if _ctypes.call_function(_PRCTL, (option, value, 0, 0, 0)) != 0:
        message = f"prctl({option}) failed"
        raise OSError(message)


def become(argv: list[bytes], env: dict[bytes, bytes], limits: list[tuple[int, int, int]]) -> None:
    """Turn this fork into the program; 127 and 126 are what a shell says where it cannot."""
    posix.setsid()
    prctl(_PR_SET_PDEATHSIG, _signal.SIGKILL)
    for kind, soft, hard in limits:
        top = resource.getrlimit(kind)[1]  # only root may raise it
        if top != resource.RLIM_INFINITY:
            resource.setrlimit(kind, (min(soft, top), min(hard, top)))
        else:
            resource.setrlimit(kind, (soft, hard))
    posix.close(report)
    for number in (_signal.SIGPIPE, _signal.SIGXFSZ):  # Python ignores them
        _signal.signal(number, _signal.SIG_DFL)
    posix.dup2(posix.open("/dev/null", posix.O_RDONLY), 0)
    name, problem = argv[0], None
    places = [b""] if b"/" in name else env.get(b"PATH", b"/usr/bin:/bin").split(b":")
    for place in places:
        path = place + b"/" + name if place else name
        try:
            try:
                posix.execve(path, argv, env)
            except OSError as error:
                if error.errno != 8:  # ENOEXEC: a script without its first line
                    raise
                posix.execve(b"/bin/sh", [b"sh", path, *argv[1:]], env)
        except FileNotFoundError:
            continue
        except OSError as error:
            problem = error
    code, text = (126, str(problem.strerror)) if problem else (127, "not found")
    posix.write(2, name + b": " + text.encode() + b"\n")
    posix._exit(code)


def children() -> list[int]:
    """List the children of this process; what hangs deeper comes up as they end."""
    me = posix.getpid()
    found = read(f"/proc/self/task/{me}/children")
    if found is not None:
        return [int(word) for word in found.split()]
    pids = []
    for name in posix.listdir("/proc"):
        stat = read(f"/proc/{name}/stat") if name.isdigit() else None
        if stat and int(stat[stat.rindex(b")") + 2 :].split()[1]) == me:
            pids.append(int(name))
    return pids


def read(path: str) -> bytes | None:
    """Give what a file of /proc holds; None where its process has gone."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib is slow to import
            return file.read()
    except OSError:
        return None


def kill_all(*_: object) -> None:
    """Kill every child, and what comes up in its place, until there is none; then end."""
    named: set[int] = set()
    while True:
        has_new = False
        for pid in children():
            try:  # noqa: SIM105 - contextlib is slow to import
                posix.kill(pid, _signal.SIGKILL)  # not reaped yet, so the id is still its own
            except OSError:
                pass
            if pid not in named:
                has_new = True
                named.add(pid)
                if (comm := read(f"/proc/{pid}/comm")) is not None:
                    tell(b"%d %s\n" % (pid, comm.strip()))
        try:
            while True:
                pid, status = posix.waitpid(-1, posix.WNOHANG)
                if pid == 0:
                    break
                note(pid, status)
        except ChildProcessError:
            posix._exit(0)
        if not has_new:
            time.sleep(0.001)


def note(pid: int, status: int) -> None:
    """Report the status of the program; that of an orphan is nobody's business."""
    if pid == program:
        tell(status.to_bytes(4, "little"))


def tell(data: bytes) -> None:
    """Report; labmates may be gone, or read no more."""
    try:  # noqa: SIM105 - contextlib is slow to import
        posix.write(report, data)
    except OSError:
        pass


_job = b""
while _part := posix.read(0, 1 << 20):
    _job += _part
_owner, report, _argv, _env, _limits = marshal.loads(_job)  # noqa: S302 - from labmates itself
program = -1
_signal.pthread_sigmask(_signal.SIG_BLOCK, [_signal.SIGTERM])
_signal.signal(_signal.SIGTERM, kill_all)
prctl(_PR_SET_CHILD_SUBREAPER, 1)
prctl(_PR_SET_DUMPABLE, 0)  # no program of the same user looks into it
prctl(_PR_SET_PDEATHSIG, _signal.SIGTERM)
if posix.getppid() != _owner:
    posix._exit(0)
program = posix.fork()
if program == 0:
    try:
        _signal.signal(_signal.SIGTERM, _signal.SIG_DFL)
        _signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGTERM])
        become(_argv, _env, _limits)
    except BaseException as error:  # noqa: BLE001 - a fork of ours must end here
        posix.write(2, f"{error}\n".encode("utf-8", "replace"))
    posix._exit(126)
_null = posix.open("/dev/null", posix.O_RDWR)
for _number in (0, 1, 2):
    posix.dup2(_null, _number)
posix.set_blocking(report, False)
_signal.pthread_sigmask(_signal.SIG_UNBLOCK, [_signal.SIGTERM])
try:
    while True:
        _pid, _status = posix.waitpid(-1, 0)
        note(_pid, _status)
except ChildProcessError:
    posix._exit(0)
