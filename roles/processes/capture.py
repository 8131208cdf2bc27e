"""Keep the head and the tail of an output of any size, and count all of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import BinaryIO

KEPT_BYTES = 64 * 1024
LOG_LIMIT_BYTES = 64 * 1024 * 1024


@dataclass
class Spool:
    """One stream: its first and last `kept` bytes, and how many there were.

    Memory stays below three times `kept`, whatever is written.
    """

    kept: int = KEPT_BYTES
    total: int = 0
    head: bytearray = field(default_factory=bytearray)
    tail: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total += len(data)
        room = self.kept - len(self.head)
        if room > 0:
            self.head += data[:room]
            data = data[room:]
        self.tail += data
        if len(self.tail) > 2 * self.kept:
            del self.tail[: -self.kept]

    def text(self) -> str:
        """Give what was kept; a line of its own says how many bytes are left out."""
        tail = bytes(self.tail[-self.kept :])
        left_out = self.total - len(self.head) - len(tail)
        gap = f"\n[{left_out} bytes left out]\n" if left_out else ""
        return decode(bytes(self.head)) + gap + decode(tail) if gap else decode(self.head + tail)


def decode(data: bytes | bytearray) -> str:
    """Turn output into text; a byte that is no UTF-8 becomes U+FFFD, nothing else changes."""
    return data.decode("utf-8", errors="replace")


def log_writer(log: BinaryIO | None, limit: int = LOG_LIMIT_BYTES) -> Callable[[bytes], None]:
    """Make a function that writes raw output to `log` until `limit` bytes, then says so once.

    A full disk ends the writing, never the run.
    """
    state = {"left": limit if log else 0}

    def write(data: bytes) -> None:
        left = state["left"]
        if log is None or left <= 0:
            return
        try:
            log.write(data[:left])
            if len(data) >= left:
                log.write(b"\n[log cut here: it has reached its limit]\n")
            log.flush()
        except OSError:
            left = 0
        state["left"] = left - len(data)

    return write
