"""Where labmates keeps its state, and where the embedded server's socket lies.

Standard library only and cheap to import: the cold path looks here first. It works on text,
because pathlib costs 13 ms; everything else asks for a `Path`.
"""

from __future__ import annotations

import os
from contextlib import suppress
from os.path import abspath, expanduser, realpath
from typing import TYPE_CHECKING

from contracts.errors import PreconditionError

if TYPE_CHECKING:
    from pathlib import Path

SOCKET_PATH_LIMIT = 100
"""Bytes. Linux takes 107 and macOS 103; a longer path cannot be bound or connected."""


def home_text() -> str:
    """Give `labmates_home` as text."""
    if home := os.environ.get("LABMATES_HOME"):
        return abspath(expanduser(home))  # noqa: PTH100, PTH111 - text
    base = os.environ.get("XDG_STATE_HOME") or expanduser("~/.local/state")  # noqa: PTH111 - text
    return abspath(f"{base}/labmates")  # noqa: PTH100 - text


def labmates_home() -> Path:
    """Give the folder of everything labmates keeps; it may not exist yet.

    `LABMATES_HOME`, else `$XDG_STATE_HOME/labmates`, else `~/.local/state/labmates`. Always
    absolute, so that processes in different working directories agree on it.
    """
    from pathlib import Path  # noqa: PLC0415 - not on the cold path

    return Path(home_text())


def store_dir(home: Path) -> Path:
    """Give the embedded server's data folder; it may not exist yet."""
    return home / "store"


def runtime_text(*, make: bool = False) -> str:
    """Give the folder for sockets; with `make` it is made (mode 0700), else it may be missing.

    `$XDG_RUNTIME_DIR/labmates` where that folder is ours and short enough, else
    `/tmp/labmates-<uid>`.

    Raises:
        PreconditionError: The path is a link, no folder, or not this user's: another user could
            put a socket of theirs in it.
    """
    uid = os.getuid()
    path = f"/tmp/labmates-{uid}"  # noqa: S108 - owner, mode and link are checked below
    base = os.environ.get("XDG_RUNTIME_DIR", "")
    if _is_usable(base, uid):
        path = f"{base}/labmates"
    try:
        if make:
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)  # noqa: PTH102 - text, see above
        with suppress(FileNotFoundError):
            _require_private(path, uid)
    except OSError as error:
        message = f"the folder for sockets cannot be used: {path}"
        raise PreconditionError(
            message,
            facts={"reason": error.strerror or str(error)},
            hint="Set XDG_RUNTIME_DIR to a short folder that is yours.",
        ) from error
    return path


def _is_usable(base: str, uid: int) -> bool:
    if len(os.fsencode(base)) + len("/labmates/0123456789abcdef.sock") >= SOCKET_PATH_LIMIT:
        return False
    try:
        return base.startswith("/") and os.stat(base).st_uid == uid  # noqa: PTH116 - text
    except OSError:
        return False  # sudo and su leave another user's, or one that is gone


def _require_private(path: str, uid: int) -> None:
    mode = (info := os.lstat(path)).st_mode
    if mode & 0o170000 != 0o040000 or info.st_uid != uid:
        message = f"the folder for sockets is not safe to use: {path}"
        raise PreconditionError(
            message,
            facts={"reason": "it is a link, no folder, or another user's"},
            mend=[["ls", "-ld", path]],
            hint="Remove it, or set XDG_RUNTIME_DIR to a folder that is yours.",
        )
    if mode & 0o077:
        os.chmod(path, 0o700)  # noqa: PTH101 - text, see above


def socket_text(home: str, *, make: bool = False) -> str:
    """Give `socket_path` as text; with `make` its folder is made."""
    # hashlib loads OpenSSL; the C module alone costs nothing.
    from _blake2 import blake2b  # noqa: PLC0415 - see above

    name: str = blake2b(os.fsencode(realpath(home)), digest_size=8).hexdigest()
    return f"{runtime_text(make=make)}/{name}.sock"


def socket_path(home: Path) -> Path:
    """Give the path of the embedded server's socket for `home`, under 100 bytes.

    The name is a digest of the home's real path: one home, one socket, however it is spelled.
    """
    from pathlib import Path  # noqa: PLC0415 - not on the cold path

    return Path(socket_text(os.fspath(home)))


def socket_url(path: str) -> str:
    """Give the `unix://` URL of a socket path, quoted as redis-py unquotes it."""
    for char, code in (("%", "%25"), ("?", "%3F"), ("#", "%23"), ("@", "%40")):
        path = path.replace(char, code)
    return f"unix://{path}"
