"""Start every child process of labmates, and leave none behind.

`run` is for programs that are not trusted: agents, metric commands, candidates. `call` is for our
own short helpers such as git.

A child of `run` hangs below a keeper, a small process of ours (`keeper.py`): the kernel gives it
every orphan of the run, so nothing that the run started can get out of its descent, and it has no
child left only when all of the run has ended. A process per run, and not labmates itself as the
parent of orphans: one process may have several runs and children of its own, and when it is killed
its keepers still end what they keep. The keeper also sets the limits between fork and exec, which
is not safe in a process with threads (the lease thread is one).

One loop reads both pipes and the keeper's report, and keeps the limits. The exit of the direct
child decides the outcome; what has not ended 0.3 s later is ended and named. What is left open: a
program that kills its keeper (its own user may) ends by that signal, never with a score, but what
it detached before may live on. A sandbox closes that gap; this module does not.
"""

import contextlib
import marshal
import os
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from contracts.errors import MachineError, UsageError
from roles.processes.capture import Spool, decode, log_writer
from roles.processes.environment import base_env
from roles.processes.limits import Limits, kernel_limits
from roles.processes.memory import oom_kills, says_out_of_memory
from roles.processes.tree import MARKER, Tree

__all__ = ["EndedBy", "Limits", "ProcessOutcome", "base_env", "call", "run"]

_KEEPER = Path(__file__).with_name("keeper.py")
_LOADER = ("LD_LIBRARY_PATH",)  # an interpreter may need it to start
_SETTLE_S = 0.3
_TICK_S = 0.1
_SAMPLE_MAX_S = 1.0
_CHUNK = 1 << 16


class EndedBy(StrEnum):
    """What ended a run."""

    EXIT = "exit"
    SIGNAL = "signal"
    TIMEOUT = "timeout"
    SILENCE = "silence"
    OUT_OF_MEMORY = "out_of_memory"
    STOPPED = "stopped"


@dataclass(frozen=True, kw_only=True)
class ProcessOutcome:
    """What became of one run.

    Attributes:
        argv: The program and its arguments.
        started_at: UTC.
        duration_s: By a clock that never jumps, until the direct child's end.
        exit_code: Of the direct child; None where `signal` ended it. 127: no such program.
        ended_by: What decided the end.
        stdout, stderr: First and last 64 KiB each, decoded with replacement.
        output_bytes: Bytes of both streams, also those that were not kept.
        leftovers: Processes that outlived the direct child and were ended, as `pid command`.
        log_path: Where the raw output stands, up to 64 MiB, or None.
    """

    argv: tuple[str, ...]
    started_at: datetime
    duration_s: float
    exit_code: int | None
    signal: int | None
    ended_by: EndedBy
    stdout: str
    stderr: str
    output_bytes: int
    leftovers: tuple[str, ...] = ()
    log_path: Path | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the program ended by itself with exit code 0."""
        return self.ended_by is EndedBy.EXIT and self.exit_code == 0


def call(
    argv: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float = 120.0,
    stdin: bytes = b"",
) -> subprocess.CompletedProcess[bytes]:
    """Run one of our own helpers to its end and give its whole output.

    Raises:
        MachineError: It cannot be started, or it has not ended in `timeout_s` seconds.
    """
    facts = {"command": " ".join(argv), "in": str(cwd)}
    try:
        return subprocess.run(
            argv,
            cwd=cwd,
            env=dict(env),
            input=stdin,
            capture_output=True,
            timeout=timeout_s,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        message = f"{argv[0]} has not ended in {timeout_s:g} s"
        raise MachineError(message, facts=facts) from error
    except OSError as error:
        message = f"{argv[0]} cannot be started: {error.strerror}"
        raise MachineError(message, facts=facts) from error


def run(
    argv: list[str],
    *,
    cwd: Path,
    env: Mapping[str, str],
    timeout_s: float,
    silence_s: float | None = None,
    log_path: Path | None = None,
    limits: Limits = Limits(),  # noqa: B008 - frozen, one default can be shared
    stop: Callable[[], bool] | None = None,
    grace_s: float = 5.0,
    on_quiet: Callable[[float], None] | None = None,
) -> ProcessOutcome:
    """Run a program that is not trusted, in its own session, and end all that it started.

    Never raises for what the program does; a program that is missing ends with exit code 127.

    Args:
        argv: The program and its arguments; no shell reads them.
        cwd: Its working directory.
        env: Its whole environment; the step's marker is added.
        timeout_s: Wall clock seconds until it is ended.
        silence_s: Seconds without a byte of output until it is ended.
        log_path: Where the raw output of both streams goes, as it comes.
        limits: See `Limits`.
        stop: Asked up to ten times a second; True ends the run as `stopped`.
        grace_s: Seconds between TERM and KILL, where a limit or `stop` ends it.
        on_quiet: Told, about once a second, for how many seconds there was no output.

    Raises:
        UsageError: `argv` is empty, starts with a dash, or holds a NUL.
        MachineError: No process can be started in `cwd`.
    """
    if not argv or argv[0].startswith("-") or any("\0" in part for part in argv):
        message = f"{argv[:1]} is no command"
        raise UsageError(message)
    marker = uuid.uuid4().hex
    with contextlib.ExitStack() as stack:
        log: BinaryIO | None = None
        if log_path is not None:
            log_path.parent.mkdir(parents=True, exist_ok=True)
            log = stack.enter_context(log_path.open("ab"))
        started_at, start = datetime.now(UTC), time.monotonic()
        kills_before = oom_kills()
        child, report = _start(argv, cwd=cwd, env={**env, MARKER: marker}, limits=limits)
        tree = Tree(root=child.pid, marker=marker, keeps_root=True)
        watch = _Watch(
            child=child,
            report=report,
            tree=tree,
            log=log_writer(log),
            timeout_s=timeout_s,
            silence_s=silence_s,
            limits=limits,
            stop=stop,
            on_quiet=on_quiet,
        )
        stack.callback(watch.close)
        try:
            reason = watch.until_end()
            duration_s = time.monotonic() - start
            leftovers: list[str] = []
            if reason is EndedBy.EXIT:
                watch.drain(_SETTLE_S)
                if not watch.is_over():
                    leftovers = tree.end(grace_s=min(grace_s, 0.2), patience_s=1.0)
            else:
                tree.end(grace_s=grace_s, patience_s=1.0)  # then the keeper itself
            watch.drain(1.0)
            code_of_keeper = _reap(child)
            watch.drain(1.0)
            if reason is EndedBy.EXIT:
                leftovers += [name for name in watch.killed() if name not in leftovers]
        except BaseException:
            # Ctrl-C included: nothing may be left behind
            tree.end(grace_s=0)
            _reap(child)
            raise
        code = watch.code()
    if code is None and code_of_keeper >= 0:
        message = "the keeper of a run has failed"
        raise MachineError(message, facts={"stderr": watch.err.text()[-500:]})
    code = code_of_keeper if code is None else code
    return ProcessOutcome(
        argv=tuple(argv),
        started_at=started_at,
        duration_s=duration_s,
        exit_code=code if code >= 0 else None,
        signal=-code if code < 0 else None,
        ended_by=_classify(reason, code, watch.err.text(), limits, oom_kills() - kills_before),
        stdout=watch.out.text(),
        stderr=watch.err.text(),
        output_bytes=watch.out.total + watch.err.total,
        leftovers=tuple(leftovers),
        log_path=log_path,
    )


def _start(
    argv: list[str], *, cwd: Path, env: Mapping[str, str], limits: Limits
) -> tuple[subprocess.Popen[bytes], int]:
    """Start the keeper and give it its job; also gives the descriptor of its report."""
    report, theirs = os.pipe()
    try:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_KEEPER)],
            cwd=cwd,
            env={name: os.environ[name] for name in _LOADER if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=(theirs,),
            start_new_session=True,
        )
    except OSError as error:
        os.close(report)
        message = f"no process can be started in {cwd}: {error.strerror}"
        raise MachineError(message, facts={"command": " ".join(argv)}) from error
    finally:
        os.close(theirs)
    names = {os.fsencode(name): os.fsencode(value) for name, value in env.items()}
    arguments = [os.fsencode(part) for part in argv]
    job = (os.getpid(), theirs, arguments, names, kernel_limits(limits))
    with contextlib.suppress(BrokenPipeError):
        assert child.stdin is not None  # noqa: S101 - PIPE was asked for
        child.stdin.write(marshal.dumps(job))
        child.stdin.close()
    return child, report


def _reap(child: subprocess.Popen[bytes]) -> int:
    """Wait for the keeper; TERM makes it kill what is still there, without end."""
    for wait_s in (0.2, 5):
        with contextlib.suppress(subprocess.TimeoutExpired):
            return child.wait(timeout=wait_s)
        child.terminate()
        child.send_signal(signal.SIGCONT)  # the program may have stopped it
    message = f"what process {child.pid} keeps does not end, not even by KILL"
    raise MachineError(message)


class _Watch:
    """The one loop over a running child: its pipes, its end, its limits."""

    def __init__(
        self,
        *,
        child: subprocess.Popen[bytes],
        report: int,
        tree: Tree,
        log: Callable[[bytes], None],
        timeout_s: float,
        silence_s: float | None,
        limits: Limits,
        stop: Callable[[], bool] | None,
        on_quiet: Callable[[float], None] | None,
    ) -> None:
        self.out, self.err = Spool(), Spool()
        self._child, self._tree, self._log = child, tree, log
        self._limits, self._stop, self._on_quiet = limits, stop, on_quiet
        self._silence_s = silence_s
        self._deadline = time.monotonic() + timeout_s
        self._heard = self._told = time.monotonic()
        self._sample_at, self._pause = 0.0, 0.02
        self._selector = selectors.DefaultSelector()
        self._report, self._told_us = report, bytearray()
        os.set_blocking(report, False)
        self._selector.register(report, selectors.EVENT_READ, None)
        for stream, spool in ((child.stdout, self.out), (child.stderr, self.err)):
            assert stream is not None  # noqa: S101 - PIPE was asked for
            os.set_blocking(stream.fileno(), False)
            self._selector.register(stream, selectors.EVENT_READ, spool)

    def until_end(self) -> EndedBy:
        """Read until the direct child ends or must be ended; ends nothing itself."""
        while True:
            if self._read(_TICK_S):
                return EndedBy.EXIT
            now = time.monotonic()
            if self._stop is not None and self._stop():
                return EndedBy.STOPPED
            if now >= self._deadline:
                return EndedBy.TIMEOUT
            if self._silence_s is not None and now - self._heard >= self._silence_s:
                return EndedBy.SILENCE
            if self._on_quiet is not None and now - max(self._heard, self._told) >= 1.0:
                self._told = now
                self._on_quiet(now - self._heard)
            if now >= self._sample_at and (reason := self._sample(now)):
                return reason

    def drain(self, grace_s: float) -> None:
        """Read what is in the pipes until they are closed, for at most `grace_s` seconds."""
        deadline = time.monotonic() + grace_s
        while self._selector.get_map() and time.monotonic() < deadline:
            self._read(max(0.0, min(_TICK_S, deadline - time.monotonic())))

    def is_over(self) -> bool:
        """Tell whether the keeper has seen the program and all its descendants end."""
        return self._report not in self._selector.get_map() and self.code() is not None

    def code(self) -> int | None:
        """Give the program's exit code, negative for a signal; None where it is not known."""
        status = bytes(self._told_us[:4])
        return os.waitstatus_to_exitcode(int.from_bytes(status, "little")) if status else None

    def killed(self) -> list[str]:
        """Name what the keeper had to kill."""
        return decode(self._told_us[4:]).splitlines()

    def close(self) -> None:
        """Give back every descriptor of this run."""
        self._selector.close()
        os.close(self._report)
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read(self, wait_s: float) -> bool:
        """Read what is there; True once the direct child has ended."""
        ended = False
        for key, _ in self._selector.select(wait_s):
            try:
                data = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
            if key.data is None:
                ended = True
                self._told_us += data
                continue
            if not data:
                continue
            self._heard = time.monotonic()
            key.data.feed(data)
            self._log(data)
        return ended

    def _sample(self, now: float) -> EndedBy | None:
        """Look at the tree: often at first, when escapes happen, and rarer later."""
        living = self._tree.sample()
        limits = self._limits
        is_limited = limits.memory_bytes is not None or limits.processes is not None
        self._pause = min(self._pause * 2, _TICK_S if is_limited else _SAMPLE_MAX_S)
        self._sample_at = now + self._pause
        if limits.memory_bytes is not None and self._tree.resident_bytes() > limits.memory_bytes:
            return EndedBy.OUT_OF_MEMORY
        if limits.processes is not None and len(living) > limits.processes:
            return EndedBy.SIGNAL
        return None


def _classify(reason: EndedBy, code: int, stderr: str, limits: Limits, kills: int) -> EndedBy:
    """Say what ended the run, from what we did and what the kernel says."""
    if reason is not EndedBy.EXIT or code == 0:
        return reason
    if code == -signal.SIGXCPU:
        return EndedBy.TIMEOUT
    if code == -signal.SIGKILL and kills > 0:
        return EndedBy.OUT_OF_MEMORY
    if limits.memory_bytes is not None and says_out_of_memory(stderr):
        return EndedBy.OUT_OF_MEMORY
    return EndedBy.SIGNAL if code < 0 else EndedBy.EXIT
