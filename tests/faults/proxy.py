"""A proxy between client and store, on a unix socket, that does to replies what networks do."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import sleep

_CHUNK = 65536


@dataclass
class Proxy:
    """Forwards bytes; what it does to them may be changed while it runs.

    Attributes:
        delay_s: Each piece of a reply comes so much later.
        cut: Chance that a piece of a reply is cut in its middle, and its connection with it.
        cuts: How often that was.
    """

    target: Path
    draw: random.Random
    delay_s: float = 0.0
    cut: float = 0.0
    cuts: int = 0
    ended: bool = False
    pairs: list[tuple[socket.socket, socket.socket]] = field(default_factory=list)

    def serve(self, listener: socket.socket) -> None:
        """Accept connections until the listener is closed."""
        while not self.ended:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(str(self.target))
            except OSError:
                client.close()
                continue
            self.pairs.append((client, server))
            threading.Thread(target=self._requests, args=(client, server), daemon=True).start()
            threading.Thread(target=self._replies, args=(client, server), daemon=True).start()

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := client.recv(_CHUNK):
                server.sendall(piece)
        close(client, server)

    def _replies(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while piece := server.recv(_CHUNK):
                if self.delay_s:
                    sleep(self.delay_s)  # the fault itself
                if self.cut and self.draw.random() < self.cut:
                    self.cuts += 1
                    client.sendall(piece[: self.draw.randrange(len(piece))])
                    break
                client.sendall(piece)
        close(client, server)

    def cut_all(self) -> None:
        """Cut every connection that is open now."""
        for client, server in self.pairs:
            close(client, server)


def close(*ends: socket.socket) -> None:
    """Close both ends, whoever reads from them."""
    for end in ends:
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()


@contextmanager
def proxy_before(target: Path, place: Path, *, seed: int) -> Iterator[Proxy]:
    """Run a proxy on the socket `place`; its URL is `unix://` and the path."""
    proxy = Proxy(target, random.Random(seed))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))
        listener.listen(64)
        thread = threading.Thread(target=proxy.serve, args=(listener,), daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            proxy.ended = True
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            proxy.cut_all()
