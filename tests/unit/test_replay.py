"""Replay accepts what an honest store wrote, and names what breaks a rule, event by event."""

import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
import redis

from contracts import records as rec
from contracts.events import AnyEvent, parse_entry
from contracts.labels import metric_status
from contracts.replay import apply, replay
from contracts.replay_state import GoalState, Violation, phase_of
from contracts.store.connect import connect
from contracts.store.embedded import ServerStatus
from contracts.words import MetricStatus, Phase, Role, State, Stream, Verdict
from tests.scenario import OPERATOR, Plan, Scenario, body
from tests.support import wait_until


def events_of(scenario: Scenario) -> list[AnyEvent]:
    """Read a goal's events in order of revision."""
    found = [
        parse_entry(scenario.goal_id, stream, entry_id, fields)
        for stream in Stream
        for entry_id, fields in scenario.reader.entries(stream)
    ]
    return sorted(found, key=lambda event: event.revision)


@pytest.fixture(scope="module")
def scenario(server: ServerStatus) -> Iterator[Scenario]:
    """Give a goal that was played to its end; only to be read."""
    with connect(server.url) as client:
        yield Scenario(client, f"p-{uuid.uuid4().hex[:12]}").open().play()


def first(events: list[AnyEvent], kind: str, **wanted: object) -> int:
    """Find the first event of a type with these attributes."""
    for position, event in enumerate(events):
        matches = all(getattr(event, name, None) == value for name, value in wanted.items())
        if event.type == kind and matches:
            return position
    message = f"no {kind} with {wanted}"
    raise AssertionError(message)


def test_an_honest_history_replays_to_the_stores_own_state(scenario: Scenario) -> None:
    state, violations = replay(scenario.goal_id, events_of(scenario))

    assert violations == []
    goal = scenario.reader.goal()
    assert state.champion is not None
    assert state.champion.commit == goal["champion_commit"]
    assert state.champion_revision == int(goal["champion_rev"])
    for item in state.hypothesis_items():
        stored = scenario.reader.item(item.todo_id)
        assert (item.state, item.version, item.fence, item.touched) == (
            stored["state"],
            int(stored["version"]),
            int(stored["fence"]),
            int(stored["touched"]),
        )
    assert (state.live, state.lanes, state.attempts_reserved) == (0, 0, 0)
    assert state.attempts_used == int(goal["attempts_used"])
    assert state.cost_micro_usd == int(goal["cost"])
    assert state.last_at is not None
    assert phase_of(state, state.last_at) == Phase.DONE


def test_the_scenario_reaches_every_ending(scenario: Scenario) -> None:
    state, _ = replay(scenario.goal_id, events_of(scenario))
    ends = {
        (item.hypothesis.title if item.hypothesis else ""): (item.state, item.end_reason)
        for item in state.hypothesis_items()
    }

    assert ends["product"] == ("promoted", "holdout_validated")
    assert ends["loop"] == ends["projection"] == ends["warm-up"] == ("retired", "contradicted")
    assert ends["autotune"] == ("retired", "retry_exhausted")
    assert ends["norms"] == ("retired", "no_measurable_gain")
    select = state.items[state.hypotheses["hyp_0002"]]
    assert select.state == State.PROMOTED
    assert [state.attempts[n].start.confirmation for n in select.attempts] == [
        None,
        "champion_moved",
    ]


def changed(event: AnyEvent, path: str, value: object) -> AnyEvent:
    """Give an event with one value changed, however deep."""
    names = path.split(".")
    parts: list[Any] = [event]
    for name in names[:-1]:
        parts.append(getattr(parts[-1], name))
    new: Any = value
    for part, name in zip(reversed(parts), reversed(names), strict=True):
        new = part.model_copy(update={name: new})
    copied: AnyEvent = new
    return copied


Pick = Callable[[list[AnyEvent]], int]


def pick(kind: str, **wanted: object) -> Pick:
    """Find an event later, in a history that is not played yet."""
    return lambda events: first(events, kind, **wanted)


def to(state: State) -> Pick:
    """Find the first transition into a state."""
    return pick("transitioned", to_state=state)


def evaluated_as(verdict: Verdict) -> Pick:
    """Find the first evaluation with a verdict."""
    return lambda events: next(
        position
        for position, event in enumerate(events)
        if event.type == "evaluation_recorded" and event.evaluation.verdict == verdict
    )


LIES: list[tuple[str, Pick, str, object, str]] = [
    ("agent off the roster", pick("claimed"), "agent_id", "ghost", "not on the roster"),
    ("wrong stream", pick("claimed"), "stream", Stream.OPERATOR, "has no place in this stream"),
    ("wrong writer", to(State.SUPPORTED), "writer", "curator", "may not write"),
    ("old fence", pick("evidence_recorded"), "fence", 1, "the live claim's is"),
    ("version that jumps", to(State.SUPPORTED), "version", 99, "version 99 after"),
    ("row that is not there", to(State.SUPPORTED), "to_state", State.PROMOTED, "no row"),
    ("source it is not in", to(State.SUPPORTED), "from_state", State.CONTRADICTED, "is evaluated"),
    ("another hypothesis", to(State.SUPPORTED), "hypothesis_id", "hyp_0999", "backs hyp_0001"),
    ("fence not its revision", pick("claimed"), "fence", 3, "a fence is the revision"),
    ("attempt out of turn", pick("attempt_started"), "attempt_number", 7, "attempt 1 is due"),
    ("base not the champion", pick("attempt_started"), "start.base_revision", 3, "the champion"),
    ("base commit", pick("attempt_started"), "start.base_commit", "0" * 40, "champion's commit"),
    ("scope", pick("attempt_started"), "start.scope_sha256", "0" * 64, "protected scope"),
    ("own number", pick("evidence_recorded"), "evidence.metric.value", 9.0, "self_reported"),
    (
        "label against the values",
        evaluated_as(Verdict.REGRESSION),
        "evaluation.measurement.primary_metric_status",
        MetricStatus.IMPROVED,
        "the label regressed",
    ),
    (
        "verdict against the values",
        evaluated_as(Verdict.REGRESSION),
        "evaluation.verdict",
        Verdict.IMPROVED,
        "for the verdict improved",
    ),
    (
        "another commit measured",
        evaluated_as(Verdict.IMPROVED),
        "evaluation.measurement.commit",
        "1" * 40,
        "the commit named in the evidence",
    ),
    (
        "boundary called clean",
        evaluated_as(Verdict.BOUNDARY),
        "evaluation.verdict",
        Verdict.CORRECTNESS,
        "the verdict boundary",
    ),
    (
        "decision on another commit",
        pick("decided"),
        "decision.commit",
        "2" * 40,
        "lacks a decision on the commit",
    ),
    ("decision on old evidence", pick("decided"), "decision.evidence_revision", 5, "revision"),
    ("target that is not met", pick("decided"), "decision.target_met", True, "target_met false"),
    ("signature on old evidence", pick("signed"), "signature.evidence_revision", 5, "revision"),
    ("second before first", pick("signed"), "signature.order", "second", "the first signature"),
    ("signature out of role", pick("signed"), "role", Role.CURATOR, "in the stream"),
    ("contract hash", pick("contract_proposed"), "contract_hash", "0" * 64, "hash differs"),
    ("another approval", pick("approved"), "approval.contract_hash", "0" * 64, "another contract"),
    ("cost twice", pick("spent"), "spend.attempt", 9, "the cost of attempt 9"),
]


@pytest.mark.parametrize(
    ("chosen", "path", "value", "what"),
    [lie[1:] for lie in LIES],
    ids=[lie[0].replace(" ", "-") for lie in LIES],
)
def test_a_lie_in_one_event_is_named_and_not_applied(
    scenario: Scenario, chosen: Pick, path: str, value: object, what: str
) -> None:
    events = events_of(scenario)
    position = chosen(events)
    lie = changed(events[position], path, value)
    state, before = replay(scenario.goal_id, events[:position])
    assert before == []

    found = apply(state, lie)
    # A record is judged with the transition, a decision with the signature behind it.
    for event in events[position + 1 :]:
        if found:
            break
        found = apply(state, event)

    assert found, "nothing was found"
    assert found[0].revision in {lie.revision, lie.revision + 1}
    assert what in found[0].what


def test_a_violating_event_leaves_the_state_as_it_was(scenario: Scenario) -> None:
    events = events_of(scenario)
    position = to(State.SUPPORTED)(events)
    state, _ = replay(scenario.goal_id, events[:position])
    item = state.items["todo_0001"]
    before = (item.state, item.version, state.live)

    apply(state, changed(events[position], "version", 99))

    assert (item.state, item.version, state.live) == before


def test_a_record_without_its_transition_is_named(scenario: Scenario) -> None:
    events = events_of(scenario)
    position = first(events, "evidence_recorded")
    del events[position + 1]
    events = [changed(event, "revision", number) for number, event in enumerate(events, start=1)]

    _, found = replay(scenario.goal_id, events[: position + 2])

    assert (found[0].type, found[0].what) == ("evidence_recorded", "no transition rests on it")


def test_a_lease_that_had_not_ended_cannot_have_expired(
    redis_client: redis.Redis, goal_id: str
) -> None:
    scenario = Scenario(redis_client, goal_id, lease_ms=1).open()
    for agent_id in ("evaluator-1", "proposer-1"):
        assert scenario.step(agent_id)
    scenario.claim("executor-1")

    def expired() -> bool:
        scenario.claim("executor-2")
        return any(event.type == "lease_expired" for event in events_of(scenario))

    wait_until(expired, description="somebody notices the ended lease")
    events = events_of(scenario)
    position = first(events, "lease_expired")
    state, violations = replay(goal_id, events)
    assert violations == []
    assert state.items["todo_0001"].lapses >= 1

    early = changed(events[position], "at", events[position].at - timedelta(hours=1))
    state, _ = replay(goal_id, events[:position])

    assert [each.what for each in apply(state, early)] == ["the lease had not ended"]


def test_an_operator_gate_holds_the_item_and_its_refusal_dooms_it(
    redis_client: redis.Redis, goal_id: str
) -> None:
    plans = (Plan("product", "gemm", Verdict.IMPROVED, 8.0),)
    scenario = Scenario(redis_client, goal_id, plans, policy={"owner_gate": True}).open().play()
    state, violations = replay(goal_id, events_of(scenario))
    assert violations == []
    gate = state.gates["gate_0001"]
    assert gate.decision is None
    assert state.items["todo_0001"].state == State.PROMOTION_GATE

    touched = int(scenario.reader.item("todo_0001")["touched"])
    word = rec.GateDecision(verdict="rejected", shown="0" * 8, reason="not now")
    scenario.writer.decide_gate(
        operator=OPERATOR,
        gate_id="gate_0001",
        verdict="rejected",
        touched=touched,
        body=body(decision=word),
    )
    state, violations = replay(goal_id, events_of(scenario))

    assert violations == []
    assert state.items["todo_0001"].doomed


def test_replaying_a_prefix_and_going_on_gives_the_same_state(scenario: Scenario) -> None:
    events = events_of(scenario)
    whole, _ = replay(scenario.goal_id, events)
    state = GoalState(scenario.goal_id)
    found: list[Violation] = []
    for event in events:
        found += apply(state, event)

    assert found == []
    assert state == whole


def test_labels_follow_the_contracts_thresholds(scenario: Scenario) -> None:
    events = events_of(scenario)
    rules = scenario.contract.evaluation
    event = events[evaluated_as(Verdict.IMPROVED)(events)]
    assert event.type == "evaluation_recorded"
    measured = event.evaluation.measurement
    assert measured.ratio is not None
    at_floor = measured.ratio.model_copy(update={"low": 1.05})
    below = measured.ratio.model_copy(update={"low": 1.0499})

    assert metric_status(measured.model_copy(update={"ratio": at_floor}), rules) == "improved"
    assert metric_status(measured.model_copy(update={"ratio": below}), rules) == "flat"
