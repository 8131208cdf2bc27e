"""The audit after a fault: the logs of light agents held against the streams of a goal.

Two parts. What the streams alone must show is told twice: by `verify` (chain, replay, derived state),
and by the rules below, which know nothing of the product but the names of events. What the logs add
is that every write which was answered is there, under the revision that the answer gave.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from contracts.store.reader import Reader
from contracts.words import Stream
from projection.verify import verify

Fields = dict[str, str]

KEEPS_CLAIM = {"attempt_running", "evaluated"}
TERMINAL = {"promoted", "retired"}
BY_OPERATOR = {"create", "approve", "register", "gate_decide"}


@dataclass(slots=True)
class Audit:
    """What an audit counted, and every wrong it found."""

    goals: int = 0
    events: int = 0
    acknowledged: int = 0
    steps: int = 0
    claims: int = 0
    expired: int = 0
    late: int = 0
    ended: int = 0
    wrongs: list[str] = field(default_factory=list)

    def add(self, other: "Audit") -> None:
        """Add the counts and wrongs of another goal."""
        for name in ("events", "acknowledged", "steps", "claims", "expired", "late", "ended"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrongs += other.wrongs


def read_logs(folder: Path) -> dict[str, list[str]]:
    """Read the lines of all processes' logs, by goal."""
    found: dict[str, list[str]] = defaultdict(list)
    for path in sorted(folder.glob("*.log")):
        for line in path.read_text().splitlines():
            goal_id, _, rest = line.partition(" ")
            found[goal_id].append(rest)
    return found


def audit_goal(reader: Reader, lines: Iterable[str] = ()) -> Audit:
    """Audit one goal that nobody writes to any more, beside what the logs say of it."""
    found = Audit()
    goal = reader.goal()
    by_revision: dict[int, Fields] = {}
    for stream in Stream:
        for _, fields in reader.entries(stream):
            revision = int(fields["rev"])
            if revision in by_revision:
                found.wrongs.append(f"revision {revision} twice")
            by_revision[revision] = fields
    found.events = len(by_revision)
    if sorted(by_revision) != list(range(1, int(goal.get("rev", "0")) + 1)):
        found.wrongs.append(f"not every revision up to {goal.get('rev')}")
    events = [by_revision[revision] for revision in sorted(by_revision)]
    _claims(found, events)
    _items(found, events)
    _budgets(found, events, goal)
    _acknowledged(found, by_revision, lines)
    if goal:
        verified = verify(reader)
        found.wrongs += [str(each) for each in verified.violations]
        found.wrongs += [str(each) for each in verified.derived if not each.passed]
    found.wrongs = [f"{reader.goal_id}: {wrong}" for wrong in found.wrongs]
    return found


def _claims(found: Audit, events: Iterable[Fields]) -> None:
    """One current claim of an item, under fences that only grow; nothing written without one."""
    current: dict[str, tuple[str, int]] = {}
    last: Counter[str] = Counter()
    for event in events:
        kind, todo, revision = event["type"], event.get("todo", ""), event["rev"]
        fence, holder = int(event.get("fence", "0")), event.get("agent", "")
        now = current.get(todo)
        if kind == "claimed":
            found.claims += 1
            if now and not (event["action"] == "resume" and now[0] == holder):
                found.wrongs.append(f"{revision}: {todo} of {now} is claimed by {holder}")
            if fence <= last[todo] or fence != int(revision):
                found.wrongs.append(f"{revision}: fence {fence} after {last[todo]}")
            current[todo], last[todo] = (holder, fence), fence
            continue
        if kind in {"stale_result_rejected", "spent"}:  # of an old claim; of the step just made
            found.late += kind == "stale_result_rejected"
            continue
        if kind in {"released", "lease_expired"}:
            found.expired += kind == "lease_expired"
            if not now or now[1] != fence:
                found.wrongs.append(f"{revision}: {kind} of {todo} under {fence}, held: {now}")
            current.pop(todo, None)
            continue
        if not fence or kind == "hypothesis_added":
            if kind == "hypothesis_added":
                held = [each for each, claim in current.items() if claim == (holder, fence)]
                if len(held) != 1:
                    found.wrongs.append(f"{revision}: a proposal of {holder} under {fence}")
                if held and "propose" in held[0]:
                    current.pop(held[0], None)
            continue
        if now != (holder, fence):
            found.wrongs.append(f"{revision}: {kind} by {holder} under {fence}, held: {now}")
        moved = kind == "transitioned" and event["to"] not in KEEPS_CLAIM
        if moved or kind in {"signed", "baseline_recorded"}:
            current.pop(todo, None)


def _items(found: Audit, events: Iterable[Fields]) -> None:
    """Each step of an item starts where the last ended, one version on; what ended stays."""
    state: dict[str, tuple[str, int]] = {}
    for event in events:
        todo, to = event.get("todo", ""), event.get("to")
        if not to:
            continue
        at = (to, int(event["version"]))
        if event["type"] in {"hypothesis_added", "contract_proposed"}:
            if todo in state or at[1] != 1:
                found.wrongs.append(f"{event['rev']}: {todo} is added at {at}")
        else:
            before = state[todo]
            if before[0] != event["from"] or before[1] + 1 != at[1]:
                found.wrongs.append(f"{event['rev']}: {todo} from {before} to {at}")
            if before[0] in TERMINAL:
                found.wrongs.append(f"{event['rev']}: {todo} moves on from {before[0]}")
        state[todo] = at
        found.ended += to in TERMINAL


def _budgets(found: Audit, events: Iterable[Fields], goal: Fields) -> None:
    """The goal's counters are the number of events that change them."""
    kinds = Counter(event["type"] for event in events)
    ended = sum(event.get("to") in TERMINAL for event in events)
    told = {
        "attempts_used": kinds["attempt_started"],
        "attempt_count": sum(
            event["type"] == "claimed" and event["action"] in {"select", "confirm"}
            for event in events
        ),
        "hypothesis_count": kinds["hypothesis_added"],
        "live": kinds["hypothesis_added"] - ended,
        "gate_count": kinds["gate_opened"],
        "promotions": sum(event.get("to") == "promoted" for event in events),
    }
    for name, wanted in told.items():
        stored = int(goal.get(name) or 0)
        if stored != wanted:
            found.wrongs.append(f"{name} is {stored}, the events give {wanted}")
    if int(goal.get("attempts_used") or 0) > int(goal.get("max_attempts") or 0):
        found.wrongs.append("more attempts than the budget has")


def _acknowledged(found: Audit, by_revision: dict[int, Fields], lines: Iterable[str]) -> None:
    """Every write that was answered is in the streams, under its revision, agent and todo."""
    for line in lines:
        name, agent, todo, fence, revision = line.split(" ")
        event = by_revision.get(int(revision))
        found.acknowledged += 1
        if event is None:
            found.wrongs.append(f"lost: {line}")
            continue
        if event["type"] == "successor_added":  # the last of the call whose end it names
            event = by_revision[int(event["ref"])]
        about = event.get("todo") == todo or name in BY_OPERATOR or name == "propose"
        if event["agent"] != agent or not about:
            found.wrongs.append(f"another event stands in the place of: {line}")
        if name == "claim" and event.get("fence") != fence:
            found.wrongs.append(f"another fence than was answered: {line}")
        found.steps += name not in BY_OPERATOR
