"""Read a goal from its store and replay it: what every command of this room starts from."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from contracts.chain import ChainReport, Entry, verify_chains
from contracts.errors import UsageError
from contracts.replay import replay
from contracts.replay_state import GoalState, Violation
from contracts.store import keys
from contracts.store.reader import Reader
from contracts.words import Stream

SNAPSHOT_TRIES = 20


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of a goal at one revision.

    Attributes:
        goal: The derived goal hash.
        entries: The streams' entries, in stored order.
        heads: The stored heads; None where the store was written during every try to read it.
        now: The store's clock.
    """

    goal_id: str
    goal: Mapping[str, str]
    entries: Mapping[Stream, list[Entry]]
    heads: Mapping[str, str] | None
    now: datetime

    @property
    def revision(self) -> int:
        """The goal's revision as the store has it."""
        text = self.goal.get("rev", "0")
        return int(text) if text.isdigit() else 0


def _entries(reader: Reader, stream: Stream) -> list[Entry]:
    """Read a stream; bytes that are no text, which only a stranger writes, are escaped."""
    try:
        return [(entry_id, fields) for entry_id, fields in reader.entries(stream)]
    except UnicodeDecodeError:
        key = keys.events(reader.goal_id, stream)
        # redis-py's own switch to hand out bytes; nothing of it is imported here.
        raw: Any = reader.client.execute_command("XRANGE", key, "-", "+", NEVER_DECODE=True)  # type: ignore[no-untyped-call]

        def text(value: bytes) -> str:
            return value.decode(errors="backslashreplace")

        return [
            (text(entry_id), {text(name): text(value) for name, value in fields.items()})
            for entry_id, fields in raw
        ]


def read_snapshot(reader: Reader) -> Snapshot:
    """Read goal, streams and heads so that they belong together.

    Tries again while the goal is written; after `SNAPSHOT_TRIES` the events beyond the revision
    that was read first are left out, and so are the heads.

    Raises:
        UsageError: There is no such goal.
    """
    goal = reader.require_goal()
    for _ in range(SNAPSHOT_TRIES):
        entries: dict[Stream, list[Entry]] = {}
        for stream in Stream:
            entries[stream] = _entries(reader, stream)
        heads = reader.heads()
        after = reader.require_goal()
        if after.get("rev") == goal.get("rev"):
            return Snapshot(reader.goal_id, after, entries, heads, reader.now())
        goal = after
    limit = int(goal.get("rev", "0"))
    known: dict[Stream, list[Entry]] = {
        stream: [
            (entry_id, fields)
            for entry_id, fields in _entries(reader, stream)
            if not fields.get("rev", "").isdigit() or int(fields["rev"]) <= limit
        ]
        for stream in Stream
    }
    return Snapshot(reader.goal_id, goal, known, None, reader.now())


def check_chains(snapshot: Snapshot) -> ChainReport:
    """Check the digest chains of a snapshot."""
    return verify_chains(snapshot.goal_id, snapshot.entries, snapshot.heads, snapshot.revision)


@dataclass(frozen=True, slots=True)
class Replayed:
    """A goal as replay gives it, with what replay did not accept."""

    state: GoalState
    violations: tuple[Violation, ...]
    now: datetime


def replay_goal(reader: Reader, *, at: int | None = None) -> Replayed:
    """Replay a goal, or the part of it up to a revision.

    Raises:
        UsageError: There is no such goal, or no such revision.
    """
    snapshot = read_snapshot(reader)
    if at is not None and not 0 < at <= snapshot.revision:
        message = f"the goal {snapshot.goal_id} has no revision {at}"
        raise UsageError(message, facts={"revisions": f"1 to {snapshot.revision}"})
    events = [
        event for event in check_chains(snapshot).events if at is None or event.revision <= at
    ]
    state, violations = replay(snapshot.goal_id, events)
    now = snapshot.now if at is None or not events else events[-1].at
    return Replayed(state, tuple(violations), now)
