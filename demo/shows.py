"""What a run tells a pipe, a file or nobody."""

from collections.abc import Callable

from contracts.events import AnyEvent
from contracts.text import inert
from contracts.words import Phase
from demo.lines import event_line
from demo.summary import result
from demo.watch import Watched, clock


class Silent:
    """Tells nothing: the one document at the end says it all."""

    def begin(self, watched: Watched, *, attached: bool) -> None:
        """Tell nothing."""

    def look(self, watched: Watched, fresh: list[AnyEvent]) -> None:
        """Tell nothing."""

    def say(self, text: str) -> None:
        """Tell nothing."""

    def end(self, watched: Watched) -> None:
        """Tell nothing."""


class Lines:
    """One line an event, as it comes."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write

    def begin(self, watched: Watched, *, attached: bool) -> None:
        """Say only that this is somebody else's run; the events speak for themselves."""
        if attached:
            goal = watched.reader.goal_id
            self._write(f"{goal} runs already; this only watches, and Ctrl-C looks away")

    def look(self, watched: Watched, fresh: list[AnyEvent]) -> None:
        """Write a line for each event that people care about."""
        for event in fresh:
            line = event_line(watched.state, event)
            if line is not None:
                self._write(line)

    def say(self, text: str) -> None:
        """Write a sentence about the run."""
        self._write(f"labmates: {inert(text)}")

    def end(self, watched: Watched) -> None:
        """Write the result, where there is one; the summary follows."""
        view = watched.view()
        if view.phase in {Phase.DONE, Phase.ESCALATE}:
            self._write(f"{clock(view.started_at, view.last_at)}  {view.phase:<11}  {result(view)}")
