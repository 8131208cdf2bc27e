"""A minimal RESP2 client for the cold path: one socket, one call at a time, no retries.

Everything that is not on the cold path uses `contracts.store.connect`, which costs 120 ms more to
import. Not safe for threads. After a time-out or a broken connection the wire is closed: a late
reply must never be taken for the next call's.
"""

from __future__ import annotations

# The C module: `socket` costs the cold path 6 ms more (enum, selectors), for names it adds.
import _socket
import os
from typing import TYPE_CHECKING, NamedTuple

import hiredis

from contracts.errors import StoreError, StoreUnreachableError, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self, TypeAlias

Reply: TypeAlias = "str | int | list[Reply] | None"
Argument: TypeAlias = "str | bytes | int"

_CHUNK_BYTES = 65536


class WireReplyError(StoreError):
    """The server answered with an error.

    Attributes:
        reply_code: Its first word, such as `READONLY` or `NOSCRIPT`.
        reply_text: The rest, as the server wrote it.
    """

    def __init__(self, reply_code: str, reply_text: str) -> None:
        super().__init__(f"the store answered {reply_code}: {reply_text}")
        self.reply_code = reply_code
        self.reply_text = reply_text


class Address(NamedTuple):
    """Where a store is and who asks; `path` is set for a unix socket, else `host` and `port`."""

    path: str
    host: str
    port: int
    db: int
    username: str
    password: str


def parse_url(url: str) -> Address:
    """Read a `unix://` or `redis://` URL, with redis-py's meaning of its parts.

    Raises:
        UsageError: Another scheme (`rediss://` too: this client has no TLS), or no address.
    """
    plain = url.removeprefix("unix://")
    if plain != url and plain.startswith("/") and not any(char in plain for char in "?#%@"):
        return Address(path=plain, host="", port=0, db=0, username="", password="")
    # urllib.parse costs 4 ms, and the usual URL of the cold path does not need it.
    from urllib.parse import parse_qs, unquote, urlsplit  # noqa: PLC0415 - see above

    try:
        parts = urlsplit(url)
        query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        path = unquote(parts.path)
        digits = query.get("db", path.strip("/") if parts.scheme == "redis" else "") or "0"
        if parts.scheme == "unix" and not path:
            raise _no_address(url)
        if parts.scheme not in {"unix", "redis"}:
            raise _no_address(url)
        return Address(
            path=path if parts.scheme == "unix" else "",
            host=unquote(parts.hostname or "localhost"),
            port=parts.port or 6379,
            db=int(digits),
            username=query.get("username", unquote(parts.username or "")),
            password=query.get("password", unquote(parts.password or "")),
        )
    except ValueError as error:
        raise _no_address(url) from error


def _no_address(url: str) -> UsageError:
    message = f"this is no address of a store: {redact_url(url)}"
    return UsageError(message, hint="Use redis://, rediss:// or unix:// (LABMATES_STORE_URL).")


def redact_url(url: str) -> str:
    """Give `url` without its password and without query values, for people and logs."""
    head, separator, tail = url.partition("://")
    if not separator:
        return url.rpartition("@")[2].partition("?")[0]
    tail = tail.partition("?")[0].partition("#")[0]
    # A raw "/" in a password ends the authority early, so the last "@" of all decides.
    user, at, place = tail.rpartition("@")
    if not at:
        return f"{head}://{tail}"
    name = user.partition(":")[0]
    return f"{head}://{name}@{place}" if name else f"{head}://{place}"


def reason_of(error: OSError) -> str:
    """Say in a few words why a connection failed, without its address."""
    if isinstance(error, TimeoutError):
        return "timed out"
    return (error.strerror or str(error) or type(error).__name__).lower()


def unreachable(url: str, reason: str) -> StoreUnreachableError:
    """Build the error for a store that gives no answer; the password never gets into it."""
    shown = redact_url(url) if url else "the store"
    facts = {"store": shown, "reason": reason}
    mend = [["labmates", "store", "start"]]
    if os.environ.get("LABMATES_STORE_URL"):
        facts["from"] = "LABMATES_STORE_URL"
        mend = [["unset", "LABMATES_STORE_URL"]]
    facts["meanwhile"] = "lanes take no new work; finished evidence waits on disk"
    return StoreUnreachableError(
        f"no answer from {shown} ({reason})",
        facts=facts,
        mend=mend,
        hint="Start that server; the lanes then go on by themselves.",
    )


class Wire:
    """An open connection; make it with `connect`, use it in a `with`.

    Attributes:
        url: The address without its password.
    """

    def __init__(self, sock: _socket.socket, url: str) -> None:
        self.url = redact_url(url)
        self._sock: _socket.socket | None = sock
        self._reader = hiredis.Reader(
            encoding="utf-8", errors="surrogateescape", replyError=_reply_error
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; closing twice does no harm."""
        if self._sock is not None:
            self._sock.close()
            self._sock = None

    def call(self, *args: Argument) -> Reply:
        """Send one command and give its reply.

        Raises:
            WireReplyError: The server answered with an error; the connection stays usable.
            StoreUnreachableError: No whole reply came; whether the command ran is not known.
        """
        return self.calls([args])[0]

    def calls(self, commands: Sequence[Sequence[Argument]]) -> list[Reply]:
        """Send commands together (no transaction) and give their replies in order.

        Raises:
            WireReplyError: The first error of any; all commands were sent and answered.
            StoreUnreachableError: As in `call`.
        """
        if self._sock is None:
            raise unreachable(self.url, "the connection is closed")
        packed = b"".join(
            hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub wants one word
            for command in commands
        )
        try:
            self._sock.sendall(packed)
            replies = [self._read(self._sock) for _ in commands]
        except OSError as error:
            self.close()
            raise unreachable(self.url, reason_of(error)) from error
        except BaseException:
            self.close()
            raise
        for reply in replies:
            if isinstance(reply, WireReplyError):
                raise reply
        return replies

    def _read(self, sock: _socket.socket) -> Reply:
        while (reply := self._reader.gets()) is False:
            chunk = sock.recv(_CHUNK_BYTES)
            if not chunk:
                reason = "connection closed by the server"
                raise ConnectionResetError(0, reason)
            self._reader.feed(chunk)
        return reply  # type: ignore[no-any-return]  # hiredis types it Any


def _reply_error(text: str) -> WireReplyError:
    code, _, rest = text.partition(" ")
    return WireReplyError(code, rest)


def connect(url: str, timeout_s: float) -> Wire:
    """Open a connection; with a password or a database number in `url`, log in and select.

    Args:
        url: `unix://` or `redis://`.
        timeout_s: Seconds for the connection and for each read and write.

    Raises:
        UsageError: The URL is none, or needs TLS (the caller then falls back to redis-py).
        StoreUnreachableError: No connection.
        WireReplyError: The server refuses the login.
    """
    address = parse_url(url)
    try:
        sock = _open(address, timeout_s)
    except OSError as error:
        raise unreachable(url, reason_of(error)) from error
    wire = Wire(sock, url)
    greeting: list[list[Argument]] = []
    if address.password:
        user = [address.username] if address.username else []
        greeting.append(["AUTH", *user, address.password])
    if address.db:
        greeting.append(["SELECT", address.db])
    try:
        if greeting:
            wire.calls(greeting)
    except BaseException:
        wire.close()
        raise
    return wire


def _open(address: Address, timeout_s: float) -> _socket.socket:
    if not address.path:
        from socket import IPPROTO_TCP, TCP_NODELAY, create_connection  # noqa: PLC0415 - as above

        tcp = create_connection((address.host, address.port), timeout=timeout_s)
        tcp.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
        return tcp
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.settimeout(timeout_s)
        sock.connect(address.path)
    except BaseException:
        sock.close()
        raise
    return sock
