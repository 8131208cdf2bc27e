"""Start every child process of labmates, and leave none behind.

`run` is for programs that are not trusted: agents, metric commands, candidates. `call` is for our
own short helpers such as git.

A child of `run` is started by a shell of one constant line that waits for a newline before it
becomes the program: by then its limits are set from outside. That needs no code between fork and
exec, which is not safe in a process with threads (the lease thread is one). Then one loop reads
both pipes, watches the direct child, and keeps the limits. The exit of the direct child decides
the outcome; whatever lives on is ended and named.
"""

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from contracts.errors import MachineError, UsageError
from roles.processes.capture import Spool, log_writer
from roles.processes.limits import Limits, kernel_limits
from roles.processes.memory import oom_kills, says_out_of_memory
from roles.processes.tree import MARKER, Tree

__all__ = ["EndedBy", "Limits", "ProcessOutcome", "base_env", "call", "run"]

_LATCH = 'read -r _ && exec "$@" </dev/null'
_TICK_S = 0.1
_SAMPLE_MAX_S = 1.0
_CHUNK = 1 << 16
_FALLBACK_PATH = "/usr/local/bin:/usr/bin:/bin"
_KEPT_NAMES = ("LANG", "LANGUAGE", "TZ")


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


def base_env(
    extra: Mapping[str, str] | None = None, *, home: Path, tmp: Path, keep: Iterable[str] = ()
) -> dict[str, str]:
    """Make a child's environment from a list of what is allowed; all else stays out.

    Args:
        extra: Variables that the contract or the caller sets; they win.
        home: A private HOME.
        tmp: A private TMPDIR.
        keep: Names of our own environment that this child may have, such as an agent's key.
    """
    env = {
        name: value
        for name, value in os.environ.items()
        if name in _KEPT_NAMES or name.startswith("LC_") or name in set(keep)
    }
    env |= {"PATH": _foreign_path(), "TERM": "dumb", "HOME": str(home), "TMPDIR": str(tmp)}
    return env | dict(extra or {})


def _foreign_path() -> str:
    """Give PATH without our own venv and without relative entries."""
    own = {str(Path(sys.prefix) / "bin")} if sys.prefix != sys.base_prefix else set()
    entries = os.environ.get("PATH", "").split(os.pathsep)
    kept = [entry for entry in entries if entry.startswith("/") and entry not in own]
    return os.pathsep.join(kept) or _FALLBACK_PATH


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
        child = _start(argv, cwd=cwd, env={**env, MARKER: marker}, limits=limits)
        tree = Tree(root=child.pid, marker=marker)
        watch = _Watch(
            child=child,
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
            if reason is EndedBy.EXIT:
                watch.drain(0.3)
                leftovers = tree.end(grace_s=min(grace_s, 0.2))
            else:
                tree.end(grace_s=grace_s)
                leftovers = []
            watch.drain(1.0)
        except BaseException:
            # Ctrl-C included: nothing may be left behind
            tree.end(grace_s=0)
            _reap(child)
            raise
        code = _reap(child)
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
) -> subprocess.Popen[bytes]:
    """Start the child behind its latch, set its limits, let it go."""
    try:
        child = subprocess.Popen(
            ["/bin/sh", "-c", _LATCH, "sh", *argv],
            cwd=cwd,
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except OSError as error:
        message = f"no process can be started in {cwd}: {error.strerror}"
        raise MachineError(message, facts={"command": " ".join(argv)}) from error
    with contextlib.suppress(ProcessLookupError, BrokenPipeError):
        for kind, *wanted in kernel_limits(limits):
            top = resource.prlimit(child.pid, kind)[1]  # only root may raise it
            soft, hard = (n if top == resource.RLIM_INFINITY else min(n, top) for n in wanted)
            resource.prlimit(child.pid, kind, (soft, hard))
        assert child.stdin is not None  # noqa: S101 - PIPE was asked for
        child.stdin.write(b"\n")
        child.stdin.close()
    return child


def _reap(child: subprocess.Popen[bytes]) -> int:
    try:
        return child.wait(timeout=5)
    except subprocess.TimeoutExpired as error:
        message = f"process {child.pid} does not end, not even by KILL"
        raise MachineError(message) from error


class _Watch:
    """The one loop over a running child: its pipes, its end, its limits."""

    def __init__(
        self,
        *,
        child: subprocess.Popen[bytes],
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
        self._pidfd = os.pidfd_open(child.pid)
        self._selector.register(self._pidfd, selectors.EVENT_READ, None)
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
        with contextlib.suppress(KeyError):
            self._selector.unregister(self._pidfd)
        deadline = time.monotonic() + grace_s
        while self._selector.get_map() and time.monotonic() < deadline:
            self._read(max(0.0, min(_TICK_S, deadline - time.monotonic())))

    def close(self) -> None:
        """Give back every descriptor of this run."""
        self._selector.close()
        os.close(self._pidfd)
        for stream in (self._child.stdin, self._child.stdout, self._child.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()

    def _read(self, wait_s: float) -> bool:
        """Read what is there; True once the direct child has ended."""
        ended = False
        for key, _ in self._selector.select(wait_s):
            if key.data is None:
                ended = True
                continue
            try:
                data = os.read(key.fd, _CHUNK)
            except BlockingIOError:
                continue
            if not data:
                self._selector.unregister(key.fileobj)
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
