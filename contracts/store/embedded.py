"""The embedded server: one per LABMATES_HOME, started on demand, shared by all its processes.

Theory of operation. The lock file in the data folder is held by the *server*: its starter takes
the lock and the server inherits the descriptor, so the lock lives exactly as long as the server,
however either of them ends. Hence nothing can be stale: an old socket or pid file means nothing.
Whoever needs the server asks (PING), else tries the lock; who gets it starts the server, who does
not waits for the holder's. Without the lock two servers do start on one socket path.

The file `socket` in the data folder names the socket the server was given: a process with another
XDG_RUNTIME_DIR would look in another place. The pid file is the server's own; it removes it when
it ends in order, so one that is there when the lock is free tells of an unclean end.

Cheap to import: starting, stopping and status load what they need when they are asked.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from contracts.errors import StoreError, StoreUnreachableError
from contracts.store import wire
from contracts.store.home import (
    home_text,
    labmates_home,
    socket_text,
    socket_url,
    store_dir,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PING_TIMEOUT_S = 5.0
START_TIMEOUT_S = 30.0
"""Seconds without any answer; a server that answers LOADING is waited for without limit."""

_REWRITE_TIMEOUT_S = 120.0
_STEP_S = 0.005


# A named tuple, not a dataclass: importing dataclasses costs the cold path 6 ms.
class ServerStatus(NamedTuple):
    """What is known of the embedded server; `pid`, `url`, `version` are set while it runs."""

    running: bool
    pid: int | None
    url: str | None
    version: str | None
    data_dir: Path
    binary: Path | None
    appendfsync: str | None


def find_server(home: Path | None = None) -> str | None:
    """Give the URL of the running server, or None; never starts one and writes nothing.

    Waits while the server loads its log.

    Raises:
        StoreUnreachableError: It accepts connections but does not answer within 5 s.
    """
    for path in _socket_candidates(os.fspath(home) if home else home_text()):
        url = socket_url(path)
        while (answer := _ping(url)) == "loading":
            time.sleep(_STEP_S)
        if answer == "pong":
            return url
    return None


def ensure_server(home: Path | None = None, *, appendfsync: str | None = None) -> str:
    """Give the URL of the server of `home`, started if none runs.

    Safe to call from any number of processes at once; the server outlives its starter. After an
    unclean end its log is rewritten before this returns.

    Args:
        home: Its LABMATES_HOME; None means the environment's.
        appendfsync: `always` (default) or `everysec`; only a start reads it.

    Raises:
        PreconditionError: No server program, or no safe folder for its socket.
        StoreError: The server did not start; the message names a damaged log.
        StoreUnreachableError: A server holds the lock and does not answer.
    """
    if url := find_server(home):
        return url
    home = home or labmates_home()
    deadline = time.monotonic() + START_TIMEOUT_S
    while True:
        with _try_lock(home) as lock_fd:
            if lock_fd is not None:
                return _start(home, lock_fd, appendfsync)
        if time.monotonic() > deadline:
            raise _stuck(home)
        time.sleep(_STEP_S)
        if url := find_server(home):
            return url


def stop_server(home: Path | None = None, *, timeout_s: float = 10.0) -> bool:
    """Shut the server down and wait until it is gone; False if none ran.

    Raises:
        StoreError: It refuses, or is still there after `timeout_s` seconds.
    """
    home = home or labmates_home()
    url = find_server(home)
    if url is None:
        return False
    with wire.connect(url, timeout_s) as client:
        pid = int(_info(client, "server")["process_id"])
        with suppress(StoreUnreachableError):  # it closes the connection instead of answering
            client.call("SHUTDOWN")
    deadline = time.monotonic() + timeout_s
    while not _is_gone(home, pid):
        if time.monotonic() > deadline:
            message = f"the store's server was told to stop and still runs: pid {pid}"
            raise StoreError(message, facts={"store": url}, mend=[["kill", str(pid)]])
        time.sleep(_STEP_S)
    return True


def server_status(home: Path | None = None) -> ServerStatus:
    """Say whether the server runs and how; never starts one and writes nothing."""
    home = home or labmates_home()
    url = find_server(home)
    if url is None:
        from contracts.errors import PreconditionError  # noqa: PLC0415 - only here
        from contracts.store.launch import server_binary  # noqa: PLC0415 - not on the cold path

        try:
            binary: Path | None = server_binary()
        except PreconditionError:
            binary = None
        return ServerStatus(False, None, None, None, store_dir(home), binary, None)
    with wire.connect(url, PING_TIMEOUT_S) as client:
        info = _info(client, "server")
        config = client.call("CONFIG", "GET", "appendfsync")
    from pathlib import Path  # noqa: PLC0415 - not on the cold path

    name = info.get("server_name", "redis")
    return ServerStatus(
        running=True,
        pid=int(info["process_id"]),
        url=url,
        version=f"{name} {info.get(f'{name}_version', info['redis_version'])}",
        data_dir=store_dir(home),
        binary=Path(info["executable"]),
        appendfsync=str(config[1]) if isinstance(config, list) else None,
    )


def _ping(url: str) -> str:
    """Ask once: `pong`, `loading`, or `` for nobody there."""
    try:
        with wire.connect(url, PING_TIMEOUT_S) as client:
            client.call("PING")
    except wire.WireReplyError as error:
        if error.reply_code == "LOADING":
            return "loading"
        raise
    except StoreUnreachableError as error:
        if isinstance(error.__cause__, TimeoutError):
            raise
        return ""
    return "pong"


def _socket_candidates(home: str) -> Iterator[str]:
    derived = socket_text(home)
    yield derived
    try:
        with open(f"{home}/store/socket", encoding="utf-8") as file:  # noqa: PTH123 - cold path
            recorded = file.read().strip()
    except FileNotFoundError:
        return
    if recorded != derived:
        yield recorded


@contextmanager
def _try_lock(home: Path) -> Iterator[int | None]:
    """Hold the lock of `home`'s server for the block, or give None if somebody has it.

    A process that inherits the descriptor keeps the lock when the block ends.
    """
    data = store_dir(home)
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(data / "server.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield fd
    finally:
        os.close(fd)


def _start(home: Path, lock_fd: int, appendfsync: str | None) -> str:
    from pathlib import Path  # noqa: PLC0415 - not on the cold path

    from contracts.store.credentials import write_acl_file  # noqa: PLC0415 - not on the cold path
    from contracts.store.launch import (  # noqa: PLC0415 - not on the cold path
        Launch,
        appendfsync_choice,
        server_binary,
    )

    if url := find_server(home):  # one that was started by other means, without the lock
        return url
    data, path = store_dir(home), Path(socket_text(os.fspath(home), make=True))
    choice = appendfsync_choice(appendfsync)
    launch = Launch(data, server_binary())
    unclean = (data / "server.pid").exists()
    path.unlink(missing_ok=True)
    note = data / "socket.new"
    note.write_text(f"{path}\n", encoding="utf-8")
    note.replace(data / "socket")
    write_acl_file(home, data / "users.acl")
    url = socket_url(str(path))
    deadline = time.monotonic() + START_TIMEOUT_S
    try:
        launch.start(path, choice, lock_fd)
        while (answer := _ping(url)) != "pong":
            if launch.wait_dead(_STEP_S):
                raise launch.failure()
            if answer != "loading" and time.monotonic() > deadline:
                raise launch.failure()
        if unclean:
            _rewrite_log(url)
    finally:
        launch.close()
    return url


def _rewrite_log(url: str) -> None:
    """Rewrite the append-only file and wait for it.

    Redis 7.0, 8.2 and Valkey 8 leave half a transaction in a cut log: what is rolled back at this
    start would come back at the next.
    """
    deadline = time.monotonic() + _REWRITE_TIMEOUT_S
    with wire.connect(url, PING_TIMEOUT_S) as client:
        client.call("BGREWRITEAOF")
        while time.monotonic() < deadline:
            info = _info(client, "persistence")
            if info["aof_rewrite_in_progress"] == info["aof_rewrite_scheduled"] == "0":
                return
            time.sleep(_STEP_S)


def _info(client: wire.Wire, section: str) -> dict[str, str]:
    lines = str(client.call("INFO", section)).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _is_gone(home: Path, pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    # A zombie nobody collects still has its pid, but no longer the lock.
    with _try_lock(home) as lock_fd:
        return lock_fd is not None


def _stuck(home: Path) -> StoreUnreachableError:
    """Build the error for a server that holds the lock but has no socket that answers."""
    from pathlib import Path  # noqa: PLC0415 - not on the cold path

    data = store_dir(home)
    lock = os.stat(data / "server.lock")  # noqa: PTH116 - paired with the same call below
    holders = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if any(os.path.samestat(lock, fd.stat()) for fd in (entry / "fd").iterdir()):
                holders.append(entry.name)
        except OSError:
            continue  # another user's process, or one that has just ended
    message = f"a server holds the store in {data} and does not answer"
    return StoreUnreachableError(
        message,
        facts={"pid": ", ".join(holders) or "unknown", "lock": str(data / "server.lock")},
        mend=[["kill", pid] for pid in holders] + [["labmates", "store", "start"]],
        hint="Its socket was removed (a log-out or a clean-up of /tmp does that).",
    )
