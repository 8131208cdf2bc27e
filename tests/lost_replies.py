"""A proxy in front of a store that cuts the connection of every write before its reply is read."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import hiredis

from contracts.store.wire import parse_url


@dataclass
class LostReplies:
    """What the proxy saw.

    Attributes:
        path: The socket to connect to.
        server: The server's socket.
        each: How many replies of each function are lost.
        look: Gives the state of the store, asked when a write ran and its reply is dropped.
        cut: Function names by operation id, in the order in which they were cut.
        first: The reply that was dropped, by operation id.
        second: The reply to the same operation sent again.
        changed: Operations that changed the store when they were sent again.
    """

    path: Path
    server: str
    look: Callable[[], object]
    each: int
    cut: dict[str, str] = field(default_factory=dict)
    first: dict[str, bytes] = field(default_factory=dict)
    second: dict[str, bytes] = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)
    _states: dict[str, object] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The address to connect to."""
        return f"unix://{self.path}"

    def pass_on(self, client: socket.socket) -> None:
        """Serve one connection until it ends or is cut."""
        with client, socket.socket(socket.AF_UNIX) as server:
            server.connect(self.server)
            requests = hiredis.Reader(encoding="utf-8")
            while chunk := client.recv(1 << 16):
                requests.feed(chunk)
                server.sendall(chunk)
                if not (commands := list(iter(requests.gets, False))):
                    continue
                replies = _whole_replies(server, len(commands))
                # a write is sent alone; what comes several at a time only opens the connection
                if any(self._drops(command, replies) for command in commands):
                    return
                client.sendall(replies)

    def _drops(self, command: list[str], reply: bytes) -> bool:
        if command[0].upper() != "FCALL" or "op" not in command:
            return False
        operation = command[command.index("op") + 1]
        if operation not in self.cut:
            if list(self.cut.values()).count(command[1]) >= self.each:
                return False
            self.cut[operation] = command[1]
            self.first[operation] = reply
            self._states[operation] = self.look()
            return True
        self.second[operation] = reply
        if self._states.pop(operation) != self.look():
            self.changed.append(operation)
        return False


def _whole_replies(server: socket.socket, count: int) -> bytes:
    """Give the bytes of `count` replies, however they are cut into pieces."""
    reader, raw = hiredis.Reader(), b""
    while count:
        if not (chunk := server.recv(1 << 16)):
            raise ConnectionResetError("the server closed the connection")
        raw += chunk
        reader.feed(chunk)
        while count and reader.gets() is not False:
            count -= 1
    return raw


@contextmanager
def losing_replies(
    url: str, path: Path, look: Callable[[], object], each: int = 3
) -> Iterator[LostReplies]:
    """Run the proxy at `path` in front of the server of `url`."""
    proxy = LostReplies(path, parse_url(url).path, look, each)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def accept() -> None:
            while True:
                try:
                    client, _ = listening.accept()
                except OSError:
                    return
                threading.Thread(target=serve, args=(client,), daemon=True).start()

        def serve(client: socket.socket) -> None:
            try:
                proxy.pass_on(client)
            except OSError:
                return

        threading.Thread(target=accept, daemon=True).start()
        yield proxy
        listening.shutdown(socket.SHUT_RDWR)
