"""The store's refusals and the guards in Python are one table: same answer, same words."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from contracts import records as rec
from contracts.errors import RefusedError
from contracts.guards import GUARD_CHECKS, Context, Missing, refusal
from contracts.models import Record
from contracts.replay_state import AttemptState, Champion, GoalState, ItemState
from contracts.store import keys
from contracts.store.writer import Held, Writer
from contracts.transitions import GUARDS, TABLE
from contracts.words import EventType, Role, Split, State, StopReason
from tests.scenario import Scenario, body, commit_of, contract_for, spread

TODO = "todo_0001"
AT = datetime(2026, 11, 30, tzinfo=UTC)
CHAMPION_REVISION = 12
RECORDS = (
    EventType.HYPOTHESIS_ADDED,
    EventType.ATTEMPT_STARTED,
    EventType.EVIDENCE_RECORDED,
    EventType.RETRY_RECORDED,
    EventType.EVALUATION_RECORDED,
    EventType.HOLDOUT_RECORDED,
)


@dataclass(frozen=True)
class World:
    """An item and a goal, as both sides are told of them."""

    state: State
    target: State
    role: Role
    kinds: frozenset[EventType]
    paused: bool = False
    used: int = 0
    doomed: bool = False
    reserved: bool = False
    base_current: bool = True
    attempted: bool = True
    wants_confirm: str = ""
    evidence: bool = True
    evaluation: bool = True
    holdout: bool = True
    holdout_required: bool = True
    owner_gate: bool = False
    retries: int = 0
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def base_revision(self) -> int:
        """The revision of the item's base."""
        return CHAMPION_REVISION if self.base_current else CHAMPION_REVISION - 1


def worlds() -> st.SearchStrategy[World]:
    """Draw worlds; half of the moves are rows of the table, so that guards are reached."""
    rows = [(rule.source, rule.target) for rule in TABLE]
    moves = st.one_of(
        st.sampled_from(rows),
        st.tuples(st.sampled_from(list(State)), st.sampled_from(list(State))),
    )
    flags = st.booleans()
    return moves.flatmap(
        lambda move: st.builds(
            World,
            state=st.just(move[0]),
            target=st.just(move[1]),
            role=st.sampled_from(list(Role)),
            kinds=st.frozensets(st.sampled_from(RECORDS)),
            paused=flags,
            used=st.sampled_from([0, 1, 20]),
            doomed=flags,
            reserved=flags,
            base_current=flags,
            attempted=flags,
            wants_confirm=st.sampled_from(["", "champion_moved", "noise"]),
            evidence=flags,
            evaluation=flags,
            holdout=flags,
            holdout_required=flags,
            owner_gate=flags,
            retries=st.integers(0, 3),
        )
    )


def payloads(world: World) -> dict[EventType, Record]:
    """Make the records of the call; only their presence counts for the store."""
    start = rec.AttemptStart(
        branch="b",
        base_commit=commit_of("base"),
        base_revision=world.base_revision,
        worktree="w",
        scope_sha256="0" * 64,
    )
    packet = rec.RetryPacket(attempt=1, stop_reason=StopReason.TIMEOUT, retry_reason="again")
    blank = rec.Approval(contract_hash="")
    made: dict[EventType, Record] = {
        EventType.ATTEMPT_STARTED: start,
        EventType.RETRY_RECORDED: packet,
    }
    return {kind: made.get(kind, blank) for kind in sorted(world.kinds)}


def as_replayed(world: World) -> Context:
    """Tell Python of a world."""
    contract = contract_for("g", owner_gate=world.owner_gate)
    if not world.holdout_required:
        evaluation = contract.evaluation.model_copy(update={"holdout": None, "target": None})
        contract = contract.model_copy(update={"evaluation": evaluation})
    goal = GoalState(
        "g",
        contract=contract,
        approved=True,
        paused=world.paused,
        attempts_used=world.used,
        champions=[Champion(CHAMPION_REVISION, commit_of("base"))],
    )
    item = ItemState(
        TODO,
        "hypothesis",
        world.state,
        doomed=world.doomed,
        reserved=world.reserved,
        base_revision=world.base_revision,
        attempt=1 if world.attempted else None,
        wants_confirm=world.wants_confirm,
        evidence_revision=5 if world.evidence else 0,
        evaluation_revision=6 if world.evaluation else 0,
        holdout_revision=7 if world.holdout else 0,
        retries=world.retries,
    )
    return Context(goal=goal, item=item, at=AT, records=payloads(world))


def tell_store(client: redis.Redis, goal_id: str, world: World) -> Held:
    """Tell the store of a world, and hold the item in it."""
    contract = contract_for(goal_id)
    client.hset(
        keys.goal(goal_id),
        mapping={
            "status": "approved",
            "paused": "1" if world.paused else "",
            "attempts_used": world.used,
            "max_attempts": contract.policy.max_attempts,
            "retries": contract.policy.retries,
            "champion_rev": CHAMPION_REVISION,
            "holdout_required": "1" if world.holdout_required else "0",
            "owner_gate": "1" if world.owner_gate else "0",
            "stop": "queue_empty",
        },
    )
    fields = {
        "kind": "hypothesis",
        "state": world.state,
        "version": "3",
        "hyp": "hyp_0001",
        "claimed_by": "agent-1",
        "claim_role": world.role,
        "incarnation": "agent-1#1",
        "fence": "40",
        "doomed": "1" if world.doomed else "",
        "reserved": "1" if world.reserved else "",
        "base_rev": str(world.base_revision),
        "attempt": "1" if world.attempted else "",
        "wants_confirm": world.wants_confirm,
        "evidence_rev": "5" if world.evidence else "",
        "evaluation_rev": "6" if world.evaluation else "",
        "holdout_rev": "7" if world.holdout else "",
        "retries": str(world.retries),
    }
    client.delete(keys.item(goal_id, TODO))
    client.hset(keys.item(goal_id, TODO), mapping={k: v for k, v in fields.items() if v})
    client.hset(
        keys.agent(goal_id, "agent-1"),
        mapping={"roles": ",".join(Role), "claim": TODO, "inc": "agent-1#1"},
    )
    return Held(goal_id, "agent-1", "agent-1#1", world.role, TODO, 40, 3)


@given(world=worlds())
@settings(
    max_examples=250,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
def test_store_and_guards_refuse_the_same_moves_in_the_same_words(
    redis_client: redis.Redis, goal_id: str, world: World
) -> None:
    if not redis_client.exists(keys.goal(goal_id)):
        Scenario(redis_client, goal_id).open()
    held = tell_store(redis_client, goal_id, world)
    writer = Writer(redis_client, goal_id)
    expected = refusal(as_replayed(world), world.target, world.role)

    records = [(str(kind), body(x=1)) for kind in sorted(world.kinds)]
    facts = {"base_rev": str(world.base_revision)} if _starts(world) else {}
    answer: Missing | None = None
    try:
        writer.advance(held, world.target, records=records, **facts)
    except RefusedError as refused:
        answer = Missing(refused.reason, refused.missing)

    assert answer == expected


def _starts(world: World) -> bool:
    return EventType.ATTEMPT_STARTED in world.kinds


def test_every_guard_of_the_table_has_its_check_and_its_words() -> None:
    used = {name for rule in TABLE for name in rule.guards}

    assert used <= set(GUARD_CHECKS) == set(GUARDS)


@pytest.mark.parametrize(
    ("flag", "accepted"), [(None, False), ("1", True)], ids=["failed", "passed"]
)
def test_a_promotion_needs_the_passing_held_out_record_on_both_sides(
    redis_client: redis.Redis, goal_id: str, flag: str | None, *, accepted: bool
) -> None:
    Scenario(redis_client, goal_id).open()
    world = World(State.PROMOTION_GATE, State.PROMOTED, Role.EVALUATOR, frozenset())
    held = tell_store(redis_client, goal_id, world)
    if flag:
        redis_client.hset(keys.item(goal_id, TODO), "holdout_pass", flag)
    context = as_replayed(world)
    start = payloads(World(State.SUPPORTED, State.RETIRED, Role.EVALUATOR, frozenset(RECORDS)))
    attempt = AttemptState(1, TODO, "hyp_0001", "e", start[EventType.ATTEMPT_STARTED], 3, AT)  # type: ignore[arg-type]
    measured = _improved() if flag else None
    attempt.holdout = rec.Holdout(attempt=1, status="measured", question=1, measurement=measured)
    context.goal.attempts[1] = attempt

    assert GUARD_CHECKS["holdout_passed"](context) is accepted
    writer = Writer(redis_client, goal_id)
    with pytest.raises(RefusedError) as refused:
        writer.sign(held, "promoted", signature="{}")
    # What passes the guard is still refused: the decision is not there.
    assert refused.value.reason == ("missing_record" if accepted else "holdout_passed")


def _improved() -> rec.Measurement:
    return rec.Measurement.model_validate(
        {
            "split": Split.HOLDOUT,
            "commit": commit_of("x"),
            "eval_status": "scored",
            "primary_metric_status": "improved",
            "value": 2.0,
            "spread": spread(2.0).to_json_dict(),
            "ratio": spread(2.0).to_json_dict(),
            "difference": spread(1.0).to_json_dict(),
        }
    )
