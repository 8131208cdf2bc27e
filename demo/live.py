"""The live view on a terminal: redrawn in place, at most four times a second."""

import os
import time

from rich.console import Console, Group
from rich.live import Live

from contracts.events import AnyEvent
from contracts.text import inert
from demo.frame import MAX_LINES, frame
from demo.lines import event_line
from demo.watch import Watched

REDRAW_S = 0.25


class LiveShow:
    """Shows a run by rich, without the alternate screen: the last state stays in the scrollback."""

    def __init__(self, preset: str, console: Console | None = None) -> None:
        plain = os.environ.get("TERM") == "dumb"
        self._console = console or Console(highlight=False, emoji=False, no_color=plain or None)
        self._live = Live(
            console=self._console,
            auto_refresh=False,
            screen=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._preset = preset
        self._events: list[str] = []
        self._drawn = 0.0
        self._said = ""
        self._is_attached = False

    def begin(self, watched: Watched, *, attached: bool) -> None:
        """Draw the first state."""
        self._is_attached = attached
        self._live.start()
        self._draw(watched)

    def look(self, watched: Watched, fresh: list[AnyEvent]) -> None:
        """Take in what is new, and draw if the last drawing is old enough."""
        self._take(watched, fresh)
        if time.monotonic() - self._drawn >= REDRAW_S:
            self._draw(watched)

    def say(self, text: str) -> None:
        """Show a sentence in the place of the last line, until the next one."""
        self._said = text

    def end(self, watched: Watched) -> None:
        """Draw the last state and leave it there."""
        try:
            self._draw(watched)
        finally:
            self._live.stop()

    def _take(self, watched: Watched, fresh: list[AnyEvent]) -> None:
        lines = (event_line(watched.state, event) for event in fresh)
        self._events = [*self._events, *(line for line in lines if line is not None)][-2:]

    def _draw(self, watched: Watched) -> None:
        self._drawn = time.monotonic()
        size = self._console.size
        lines = frame(
            watched.state,
            watched.view(),
            watched.reader.now(),
            self._events,
            preset=inert(self._preset),
            width=max(20, min(size.width, 120)),
            height=max(8, min(MAX_LINES, size.height - 1)),
            attached=self._is_attached,
            said=self._said,
        )
        self._live.update(Group(*lines), refresh=True)
