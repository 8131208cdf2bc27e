"""Read a goal from its store and replay it: what every command of this room starts from."""

from dataclasses import dataclass
from datetime import datetime

from contracts.chain import ChainReport, verify_chains
from contracts.errors import UsageError
from contracts.replay import replay
from contracts.replay_state import GoalState, Violation
from contracts.store.reader import Reader
from contracts.store.snapshot import Snapshot, read_snapshot


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
