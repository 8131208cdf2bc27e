"""Follow a goal's five streams as one sequence of events in order of revision."""

from contracts.events import AnyEvent, parse_entry
from contracts.store.reader import Reader
from contracts.words import Stream


class Follower:
    """Keeps its place in each stream and gives the events that came since, without gaps.

    The streams are read one after the other, so a later one may already hold an event whose
    predecessor in another stream was not read yet: such an event waits for the next call.
    Entries that are no event of ours are left to `labmates verify`.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self.revision = 0
        self._after: dict[Stream, str] = {}
        self._waiting: dict[int, AnyEvent] = {}
        self.by_revision: dict[int, AnyEvent] = {}

    def start_over(self) -> None:
        """Forget every event: the store was restored, and may hold others."""
        self.revision = 0
        self._after, self._waiting = {}, {}
        self.by_revision.clear()

    def catch_up(self) -> list[AnyEvent]:
        """Read what came since the last call; gives the new events in order of revision."""
        for stream in Stream:
            for entry_id, fields in self.reader.entries(stream, after=self._after.get(stream)):
                self._after[stream] = entry_id
                try:
                    event = parse_entry(self.reader.goal_id, stream, entry_id, fields)
                except (ValueError, KeyError):
                    continue
                if event.revision > self.revision:
                    self._waiting.setdefault(event.revision, event)
        fresh = []
        while event_or_none := self._waiting.pop(self.revision + 1, None):
            self.revision += 1
            self.by_revision[self.revision] = event_or_none
            fresh.append(event_or_none)
        return fresh

    def wait(self, seconds: float) -> bool:
        """Wait for an entry that was not read yet, at most so long; False if none came."""
        return self.reader.wait_for_entry(self._after, seconds)

    def event(self, revision: int) -> AnyEvent:
        """Give one event by its revision, reading on if it is not known yet.

        Raises:
            KeyError: There is no such event.
        """
        if revision not in self.by_revision:
            self.catch_up()
        return self.by_revision[revision]
