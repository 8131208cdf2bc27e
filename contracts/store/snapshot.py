"""Read all of a goal at one revision: streams, heads, and the derived state beside them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from contracts.chain import Entry
from contracts.derived import READY
from contracts.errors import StoreForeignError
from contracts.store import keys
from contracts.store.connect import with_retries
from contracts.store.reader import Reader
from contracts.stored import DerivedState
from contracts.words import Stream

if TYPE_CHECKING:
    import redis

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
        # redis-py's own switch to hand out bytes
        raw: Any = reader.client.execute_command("XRANGE", key, "-", "+", NEVER_DECODE=True)  # type: ignore[no-untyped-call]

        def text(value: bytes) -> str:
            return value.decode(errors="backslashreplace")

        return [
            (text(entry_id), {text(name): text(value) for name, value in fields.items()})
            for entry_id, fields in raw
        ]


def read_snapshot(reader: Reader, *, goal_needed: bool = True) -> Snapshot:
    """Read goal, streams and heads so that they belong together.

    Tries again while the goal is written; after `SNAPSHOT_TRIES` the events beyond the revision
    that was read first are left out, and so are the heads.

    Args:
        reader: Of the goal.
        goal_needed: Refuse a goal whose hash is gone; without it the hash reads as empty.

    Raises:
        UsageError: There is no such goal.
    """
    look = reader.require_goal if goal_needed else reader.goal
    goal = look()
    for _ in range(SNAPSHOT_TRIES):
        entries: dict[Stream, list[Entry]] = {}
        for stream in Stream:
            entries[stream] = _entries(reader, stream)
        heads = reader.heads()
        after = look()
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


def read_derived(
    reader: Reader, snapshot: Snapshot, *, more_agents: Iterable[str] = ()
) -> DerivedState | None:
    """Read what the store acts on; None unless it is of the snapshot's revision.

    Args:
        reader: Of the goal.
        snapshot: Its events name the todos, gates and agents to read.
        more_agents: Agents to read although neither the roster nor an event names them.
    """
    if snapshot.heads is None:
        return None
    named: dict[str, set[str]] = {"todo": set(), "gate": set(), "agent": set()}
    for entries in snapshot.entries.values():
        for _, fields in entries:
            for name, found in named.items():
                if fields.get(name):
                    found.add(fields[name])
    agents = {*_agent_ids(reader), *named["agent"], *more_agents}
    stored = reader.derived(todos=named["todo"], agents=agents, gates=named["gate"], classes=READY)
    same = stored is not None and stored.goal.get("rev") == snapshot.goal.get("rev")
    return stored if same else None


def _agent_ids(reader: Reader) -> list[str]:
    try:
        return reader.agent_ids()
    except StoreForeignError:  # a key of a foreign kind reads as empty; what is missing is named
        return []


def known_goals_by_scan(client: "redis.Redis", *, url: str = "") -> list[str]:
    """Find the goals that have streams or a hash, whatever the list of goals says; sorted."""
    found = set()
    for kind in ("goal", "heads", "events:*"):
        names = with_retries(
            lambda kind=kind: list(client.scan_iter(match=f"{{*}}:{kind}", count=1000)),  # type: ignore[misc]
            url=url,
        )
        found |= {str(name)[1:].partition("}")[0] for name in names}
    return sorted(found)
