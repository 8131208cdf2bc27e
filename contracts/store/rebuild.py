"""Derived state out of the streams: what differs, and putting it right in one transaction.

Theory of operation. The streams are read, their chains and every event are checked, and the state
they imply is laid beside what the store acts on. What differs is written field by field in one
MULTI that a WATCH on the goal's hash and heads guards: every call of the library that changes
something compared here changes the goal's revision too, so a running worker either comes first
(then all is read again) or sees the whole mended state. Streams are never touched, fields that no
event gives are left alone (`contracts.expected`), and nothing is written where the records
contradict themselves.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import redis
from redis.exceptions import WatchError

from contracts.chain import verify_chains
from contracts.derived import Finding, differences, goal_findings
from contracts.expected import expected_state, lease_ms_of
from contracts.ids import new_incarnation
from contracts.replay import replay
from contracts.replay_state import GoalState, Violation
from contracts.store import keys
from contracts.store.connect import translate, with_retries
from contracts.store.reader import Reader
from contracts.store.snapshot import SNAPSHOT_TRIES, Snapshot, read_derived, read_snapshot
from contracts.stored import DerivedState
from contracts.words import Role, Stream

if TYPE_CHECKING:
    from redis.client import Pipeline

_SLACK_MS = 1000
_KINDS = {"item": "hash", "agent": "hash", "gate": "hash", "ready": "zset", "wake": "list"}
_SINGLE = {"goal": "hash", "heads": "hash", "hyps": "hash", "texts": "hash", "leases": "zset"}
_SINGLE |= {"agents": "set", "gates": "zset"}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A goal's records, and what of its derived state differs from them.

    Attributes:
        violations: What contradicts itself in the records; nothing is mended then.
        findings: What differs; empty for a sound goal, and where the records are not sound.
        heads: The last position and digest of each stream, computed.
        whole: False if the goal was written during every try to read it.
    """

    snapshot: Snapshot
    state: GoalState
    violations: tuple[Violation, ...]
    findings: tuple[Finding, ...]
    heads: Mapping[str, str]
    whole: bool = True


def check_records(snapshot: Snapshot) -> tuple[GoalState, list[Violation], dict[str, str]]:
    """Check chains and events; a lost head or revision is no violation while no event is missing.

    Gives the replayed state, what contradicts itself, and the computed heads.
    """
    goal_id, entries = snapshot.goal_id, snapshot.entries
    present = [
        int(fields["rev"])
        for found in entries.values()
        for _, fields in found
        if fields.get("rev", "").isdigit() and len(fields["rev"]) < 16
    ]
    last = max(present, default=0)
    stored = snapshot.heads
    lost = stored is not None and any(entries.get(each) and each not in stored for each in Stream)
    # Without its head nothing but the revision tells that a stream was cut at its end.
    revision = max(last, snapshot.revision) if lost or stored is None else last
    chain = verify_chains(goal_id, entries, None if lost else stored, revision)
    if lost and stored is not None:
        heads = dict(chain.heads) | dict(stored)
        chain = verify_chains(goal_id, entries, heads, revision)
    state, found = replay(goal_id, chain.events)
    violations = list(chain.violations)
    first = min((each.revision for each in violations), default=None)
    violations += [each for each in found if first is None or each.revision < first]
    violations.sort(key=lambda each: (each.revision, each.stream, each.entry_id))
    return state, violations, dict(chain.heads)


def diagnose(reader: Reader) -> Diagnosis:
    """Compare a goal's derived state with its streams; reads only.

    Raises:
        StoreError: The store cannot be read.
    """
    for _ in range(SNAPSHOT_TRIES):
        snapshot = read_snapshot(reader, goal_needed=False)
        types, leases = key_types(reader), _leases(reader)
        agents = [each.removeprefix("agent:") for each in types if each.startswith("agent:")]
        stored = read_derived(reader, snapshot, more_agents=agents)
        if stored is not None and reader.goal().get("rev") == stored.goal.get("rev"):
            state, violations, heads = check_records(snapshot)
            found = [] if violations else _findings(state, heads, snapshot, stored)
            if not violations:
                found += _key_findings(state, types, leases, stored)
            return Diagnosis(snapshot, state, tuple(violations), tuple(found), heads)
    snapshot = read_snapshot(reader, goal_needed=False)
    state, violations, heads = check_records(snapshot)
    return Diagnosis(snapshot, state, tuple(violations), (), heads, whole=False)


def _findings(
    state: GoalState, heads: Mapping[str, str], snapshot: Snapshot, stored: DerivedState
) -> list[Finding]:
    found = [each for each in goal_findings(state, stored.goal) if not each.passed]
    found += differences(state, stored)
    there = snapshot.heads or {}
    found += [
        Finding(f"head of {stream}", there.get(stream, "absent"), head, False)
        for stream, head in heads.items()
        if there.get(stream) != head
    ]
    return found


def key_types(reader: Reader) -> dict[str, str]:
    """Give the type of each derived key of the goal, by its name behind the hash tag."""
    start = f"{keys.prefix(reader.goal_id)}:"

    def ask() -> dict[str, str]:
        names = sorted(map(str, reader.client.scan_iter(match=f"{start}*", count=1000)))
        with reader.client.pipeline(transaction=False) as batch:
            for name in names:
                batch.type(name)
            return dict(zip(names, map(str, batch.execute()), strict=True))

    found = with_retries(ask, url=reader.url)
    return {name.removeprefix(start): kind for name, kind in found.items()}


def _wanted_kind(name: str) -> str:
    """Give the type that a key must have; empty for one that is not derived state."""
    head, _, rest = name.partition(":")
    return _KINDS.get(head, "") if rest else _SINGLE.get(name, "")


def _leases(reader: Reader) -> dict[str, float] | None:
    """Give the ends of the leases; None where the key is of a foreign kind."""
    try:
        found: Any = reader.client.zrange(keys.leases(reader.goal_id), 0, -1, withscores=True)
    except redis.ResponseError:
        return None
    except redis.RedisError as error:
        raise translate(error, url=reader.url) from error
    return {str(todo): float(end) for todo, end in found}


def _claimed(state: GoalState) -> set[str]:
    return {item.todo_id for item in state.items.values() if item.claimed_by}


def _key_findings(
    state: GoalState,
    types: Mapping[str, str],
    leases: Mapping[str, float] | None,
    stored: DerivedState,
) -> list[Finding]:
    """Find keys of a foreign kind, items and gates that no event made, and wrong leases."""
    found = [
        Finding(f"key {name}", kind, _wanted_kind(name), False)
        for name, kind in types.items()
        if _wanted_kind(name) not in {"", kind}
    ]
    found += [Finding(f"key {name}", "there", "absent", False) for name in _strays(state, types)]
    claimed = _claimed(state)
    known = leases or {}
    for todo in sorted(claimed ^ known.keys()):
        due = todo in claimed
        found.append(Finding(f"lease of {todo}", _there(not due), _there(due), passed=False))
    length = stored.goal.get("lease_ms", "")
    if state.contract is not None and not (length.isdigit() and int(length) > 0):
        found.append(Finding("lease_ms", length or "absent", lease_ms_of(state), False))
    return found


def _there(there: bool) -> str:
    return "there" if there else "absent"


def _strays(state: GoalState, types: Mapping[str, str]) -> list[str]:
    """Name the items and gates that no event made."""
    known = {f"item:{todo}" for todo in state.items} | {f"gate:{gate}" for gate in state.gates}
    return [name for name in types if name.startswith(("item:", "gate:")) and name not in known]


# Mending -----------------------------------------------------------------------------------------


def rebuild(reader: Reader) -> tuple[Finding, ...]:
    """Put the derived state right where it differs; gives what differed.

    Writes nothing where all agrees, or where the records contradict themselves.

    Raises:
        StoreError: The store cannot be written, or the goal is written all the time.
    """
    goal_id = reader.goal_id
    for _ in range(SNAPSHOT_TRIES):
        try:
            with reader.client.pipeline() as batch:
                batch.watch(keys.goal(goal_id), keys.heads(goal_id))  # type: ignore[no-untyped-call]
                found = diagnose(reader)
                if found.violations or not found.findings:
                    return ()
                types, leases = key_types(reader), _leases(reader)
                stored = _stored_hashes(reader, types)
                now_ms = reader.now_ms()
                batch.multi()
                _mend(batch, found, types, stored)
                _mend_leases(batch, found.state, leases, stored.get("goal", {}), now_ms)
                wake_everybody(batch, goal_id)
                batch.execute()
        except WatchError:
            continue
        except redis.RedisError as error:
            raise translate(error, url=reader.url) from error
        else:
            return found.findings
    message = f"the goal {goal_id} is written all the time; nothing was mended"
    raise translate(redis.ConnectionError(message), url=reader.url)


def _stored_hashes(reader: Reader, types: Mapping[str, str]) -> dict[str, dict[str, str]]:
    hashes = (name for name, kind in types.items() if kind == "hash")
    names = [name for name in hashes if _wanted_kind(name) == "hash"]
    with reader.client.pipeline(transaction=False) as batch:
        for name in names:
            # redis-py's own switch to hand out bytes, which a stranger may have put there
            batch.execute_command(  # type: ignore[no-untyped-call]
                "HGETALL", f"{keys.prefix(reader.goal_id)}:{name}", NEVER_DECODE=True
            )
        answers: list[Any] = batch.execute()
    return {
        name: {_text(field): _text(value) for field, value in answer.items()}
        for name, answer in zip(names, answers, strict=True)
    }


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def _mend(
    batch: "Pipeline", found: Diagnosis, types: Mapping[str, str], stored: dict[str, dict[str, str]]
) -> None:
    state, expected = found.state, expected_state(found.state)
    start = f"{keys.prefix(state.goal_id)}:"
    for name, kind in types.items():
        if _wanted_kind(name) not in {"", kind}:
            batch.delete(start + name)
    for name in _strays(state, types):
        batch.delete(start + name)
    wrong = {each.name for each in found.findings}
    for gate_id, fields in expected.gates.items():
        if f"{gate_id} body" not in wrong:
            fields.pop("body")  # the event's own spelling stays
    nobody = {"roles": "", "claim": ""}
    for name in stored:
        if name.startswith("agent:"):
            expected.agents.setdefault(name.removeprefix("agent:"), nobody)
    put_state(batch, state.goal_id, expected, found.heads, stored)
    whole = {"hyps": expected.hypotheses, "texts": expected.texts}
    for name, fields in whole.items():
        extra = stored.get(name, {}).keys() - fields.keys()
        if extra:
            batch.hdel(start + name, *sorted(extra))


def _mend_leases(
    batch: "Pipeline",
    state: GoalState,
    leases: Mapping[str, float] | None,
    goal: Mapping[str, str],
    now_ms: int,
) -> None:
    length = goal.get("lease_ms", "")
    lease_ms = int(length) if length.isdigit() and int(length) > 0 else lease_ms_of(state)
    batch.hset(keys.goal(state.goal_id), "lease_ms", str(lease_ms))
    if not goal.get("store"):
        batch.hset(keys.goal(state.goal_id), "store", new_incarnation())
    key, claimed, known = keys.leases(state.goal_id), _claimed(state), leases or {}
    for todo in sorted(claimed - known.keys()):
        batch.zadd(key, {todo: now_ms + lease_ms})
    for todo in sorted(known.keys() - claimed):
        batch.zrem(key, todo)


def put_state(
    batch: "Pipeline",
    goal_id: str,
    expected: DerivedState,
    heads: Mapping[str, str],
    stored: Mapping[str, Mapping[str, str]] | None = None,
) -> None:
    """Queue the writes that make a goal's derived state the expected one, field by field.

    Args:
        batch: In a transaction.
        goal_id: The goal.
        expected: All of it; other fields of the hashes are left alone.
        heads: Of the streams.
        stored: The hashes as they are, by key name behind the hash tag; None for no goal at all.
    """
    start, stored = f"{keys.prefix(goal_id)}:", stored or {}
    hashes: dict[str, Mapping[str, str]] = {"goal": expected.goal, "heads": heads}
    hashes |= {f"item:{todo}": fields for todo, fields in expected.items.items()}
    hashes |= {f"agent:{agent}": fields for agent, fields in expected.agents.items()}
    hashes |= {f"gate:{gate}": fields for gate, fields in expected.gates.items()}
    hashes |= {"hyps": expected.hypotheses, "texts": expected.texts}
    for name, fields in hashes.items():
        there = stored.get(name, {})
        put = {k: v for k, v in fields.items() if v and there.get(k) != v}
        if put:
            batch.hset(start + name, mapping=dict[Any, Any](put))
        gone = [k for k, v in fields.items() if not v and k in there]
        if gone:
            batch.hdel(start + name, *gone)
    for name, todos in expected.ready.items():
        batch.delete(keys.ready(goal_id, name))
        if todos:
            batch.zadd(keys.ready(goal_id, name), dict[Any, Any](todos))
    batch.delete(keys.gates(goal_id), keys.agents(goal_id))
    if expected.open_gates:
        batch.zadd(keys.gates(goal_id), dict[Any, Any](expected.open_gates))
    if expected.roster:
        batch.sadd(keys.agents(goal_id), *sorted(expected.roster))


def wake_everybody(batch: "Pipeline", goal_id: str) -> None:
    """Queue a token for each role: what waits looks again."""
    for role in Role:
        batch.rpush(keys.wake(goal_id, role), "1")
