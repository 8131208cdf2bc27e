"""Ideas of a person, and the successor that an unmet target demands."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import redis

from contracts.errors import RefusedError
from contracts.events import AnyEvent, Released, SuccessorAdded
from contracts.replay import replay
from contracts.replay_state import GoalState, phase_of
from contracts.store import keys
from contracts.store.reader import Reader
from contracts.words import Phase, State, Stream, Verdict
from projection.reading import replay_goal
from projection.verify import verify
from projection.view import improvements
from tests.goals import make_goal, take
from tests.peers import add_idea
from tests.scenario import AGENTS, PLANS, Plan, Scenario, body

SMALL, BEST, WORSE = PLANS[0], PLANS[7], PLANS[2]
TRIED = Plan("autotune", "search", Verdict.UNSCORED)


def played(
    client: redis.Redis,
    goal_id: str,
    *plans: Plan,
    strategy: dict[str, object] | None = None,
    **policy: object,
) -> Scenario:
    """Play a goal of these plans to its end."""
    return Scenario(client, goal_id, plans, policy=policy, strategy=strategy or {}).open().play()


def events_of(goal: Scenario) -> list[AnyEvent]:
    """Give all events in order of revision."""
    found = replay_goal(goal.reader).state
    return [found.events[revision] for revision in sorted(found.events)]


def successors(events: Sequence[AnyEvent]) -> list[SuccessorAdded]:
    """Give the successors that were added."""
    return [each for each in events if isinstance(each, SuccessorAdded)]


def phase(goal: Scenario) -> str | None:
    """Give the phase of now, as the store and as replay have it."""
    stored = str(goal.reader.should_run("-", brief=True)["phase"])
    found = replay_goal(goal.reader)
    assert phase_of(found.state, found.now) == stored
    return stored


def sound(goal: Scenario) -> bool:
    """Tell whether `verify` has nothing to say."""
    checked = verify(goal.reader)
    assert checked.violations == ()
    return all(each.passed for each in checked.derived)


# Successors --------------------------------------------------------------------------------------


def test_peer_case_124_a_validated_result_below_the_target_has_one_successor(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, SMALL)
    events = events_of(goal)
    (added,) = successors(events)
    before = events[events.index(added) - 1]
    assert (before.todo_id, before.to_state) == ("todo_0001", State.PROMOTED)
    assert (added.after_todo_id, added.record_revision) == ("todo_0001", before.revision)
    assert added.stream == Stream.CURATOR  # the role that ended the cycle
    last = [each for each in events if isinstance(each, Released)][-1]
    assert (last.todo_id, last.reason) == (added.todo_id, "no_follow_up")
    assert phase(goal) == Phase.ESCALATE
    assert sound(goal)


def test_peer_case_126_a_retired_hypothesis_has_exactly_one_successor(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, WORSE)
    events = events_of(goal)
    assert [each.todo_id for each in successors(events)] == ["todo_successor_0001"]
    assert goal.reader.item("todo_0001")["state"] == State.RETIRED
    assert phase(goal) == Phase.ESCALATE
    assert sound(goal)


def test_peer_case_127_exhausted_retries_have_the_same_successor(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, TRIED, retries=0)
    assert len(successors(events_of(goal))) == 1
    assert goal.reader.item("todo_0001")["state"] == State.RETIRED
    assert sound(goal)


def test_peer_case_129_a_successor_with_another_lineage_is_a_violation(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, SMALL)
    events = events_of(goal)
    for forged in (
        {"after_todo_id": "todo_0099"},
        {"after_todo_id": "todo_successor_0001"},
        {"record_revision": 3},
        {"todo_id": "todo_successor_0007"},
    ):
        changed = [
            each.model_copy(update=forged) if isinstance(each, SuccessorAdded) else each
            for each in events
        ]
        state, violations = replay(goal_id, changed)
        assert violations
        assert violations[0].type == "successor_added"
        assert state.successor_count == 0
    number = events.index(successors(events)[0])
    without = [
        *events[:number],
        events[number + 1].model_copy(update={"revision": events[number].revision}),
    ]
    _, violations = replay(goal_id, without)
    assert "owes is missing" in violations[0].what


def test_peer_case_130_the_last_step_sent_twice_adds_one_successor(
    redis_client: redis.Redis, goal_id: str
) -> None:
    writer = make_goal(redis_client, goal_id, agents=[("proposer-1", "proposer")], successors="1")
    held = take(writer, "proposer-1")
    values = {**held.fields(), "cursor": "0", "op": "twice"}
    for _ in range(2):
        writer.call("close_source", values)
    entries = Reader(redis_client, goal_id).entries(Stream.PROPOSER)
    kinds = [fields["todo"] for _, fields in entries if fields["type"] == "successor_added"]
    assert kinds == ["todo_successor_0001"]
    assert take(writer, "proposer-1").todo_id == "todo_successor_0001"


def test_peer_case_132_a_target_reached_has_no_successor(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(
        redis_client,
        goal_id,
        SMALL,
        BEST,
        strategy={"required_holdout_improvement_count": 2},
    )
    assert successors(events_of(goal)) == []
    assert phase(goal) == Phase.DONE
    assert sound(goal)


def test_a_target_of_more_improvements_than_there_were_is_unmet(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, BEST, strategy={"required_holdout_improvement_count": 2})
    assert len(successors(events_of(goal))) == 1
    assert phase(goal) == Phase.ESCALATE
    assert sound(goal)


def test_no_successor_without_budget_or_against_the_contract(
    redis_client: redis.Redis, goal_id: str
) -> None:
    spent = played(redis_client, goal_id, SMALL, max_attempts=1)
    against = played(
        redis_client, f"{goal_id}-2", SMALL, strategy={"unmet_target_rule": "escalate"}
    )
    for goal in (spent, against):
        assert successors(events_of(goal)) == []
        assert phase(goal) == Phase.ESCALATE
        assert sound(goal)


def test_a_successor_whose_source_has_more_opens_it_again(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, WORSE)
    assert phase(goal) == Phase.ESCALATE
    again = Scenario(redis_client, f"{goal_id}-2", (WORSE,)).open()
    while again.reader.goal().get("successor", "") == "":
        assert sum(again.step(agent_id) for agent_id in AGENTS)
    again.plans = (WORSE, SMALL)  # the source has more by now
    again.by_title[SMALL.title] = SMALL
    again.play()
    todos = replay_goal(again.reader).state.items
    assert todos["todo_0002"].state == State.PROMOTED
    first, second = successors(events_of(again))
    assert (first.todo_id, second.todo_id) == ("todo_successor_0001", "todo_successor_0002")
    assert second.after_todo_id in {"todo_0002", "todo_propose"}
    assert phase(again) == Phase.ESCALATE
    assert sound(again)


def test_a_successor_waits_out_a_pause_and_a_gate(redis_client: redis.Redis, goal_id: str) -> None:
    writer = make_goal(redis_client, goal_id, agents=[("proposer-1", "proposer")], successors="1")
    writer.close_source(take(writer, "proposer-1"), cursor="0")
    writer.pause(operator="operator:test", value=True, note="", body="{}")
    answer = writer.claim(agent_id="proposer-1", incarnation="test")
    assert (answer["should_run"], answer["reason"]) == ("0", "goal_paused")
    writer.pause(operator="operator:test", value=False, note="", body="{}")
    gate = writer.open_gate(
        operator="operator:test", todo_id="todo_successor_0001", kind="merge", body="{}"
    )
    assert writer.claim(agent_id="proposer-1", incarnation="test")["should_run"] == "0"
    touched = int(redis_client.hget(keys.item(goal_id, "todo_successor_0001"), "touched") or 0)
    writer.decide_gate(
        operator="operator:test", gate_id=gate, verdict="rejected", touched=touched, body="{}"
    )
    answer = writer.claim(agent_id="proposer-1", incarnation="test")
    assert (answer["reason"], answer["phase"]) == ("goal_escalated", "escalate")


def test_peer_case_90_improvements_are_counted_against_the_best_accepted_so_far(
    redis_client: redis.Redis, goal_id: str
) -> None:
    agents = [(f"{role}-1", role) for role in ("proposer", "executor", "evaluator", "curator")]
    writer = make_goal(redis_client, goal_id, agents=agents, holdout_required="0")
    for number, value in enumerate((4.3, 2.0, 3.0)):
        writer.propose(
            take(writer, "proposer-1"),
            body="{}",
            text_digest=str(number),
            rank=1.0,
            rank_reason="",
            title="t",
            family="f",
            cursor="",
        )
        goal = Reader(redis_client, goal_id).goal()
        held = take(writer, "executor-1")
        moved = writer.advance(
            held,
            "attempt_running",
            records=[("attempt_started", "{}")],
            base_rev=goal["champion_rev"],
        )
        held = replace(held, version=int(str(moved["version"])))
        writer.advance(
            held, "evidence_recorded", records=[("evidence_recorded", "{}")], commit="c" * 40
        )
        held = take(writer, "evaluator-1")
        moved = writer.advance(held, "evaluated", records=[("evaluation_recorded", "{}")])
        held = replace(held, version=int(str(moved["version"])))
        writer.advance(held, "promotion_gate")
        decided = body(decision={"value": value})
        held = take(writer, "evaluator-1")
        writer.sign(held, "promoted", signature="{}", decided=decided)
        writer.sign(take(writer, "curator-1"), "promoted", signature="{}")
    goal = Reader(redis_client, goal_id).goal()
    assert (goal["promotions"], goal["improvements"], goal["best_value"]) == (
        "3",
        "1",
        "4.2999999999999998",
    )


def test_replay_counts_improvements_as_the_view_does(
    redis_client: redis.Redis, goal_id: str
) -> None:
    state: GoalState = replay_goal(Scenario(redis_client, goal_id).open().play().reader).state
    assert state.improvements == improvements(state) > 1


# Ideas -------------------------------------------------------------------------------------------


def test_an_idea_wakes_an_escalated_goal_and_is_tried(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, WORSE)
    assert phase(goal) == Phase.ESCALATE
    name = add_idea(goal, BEST)
    assert name == "todo_idea_0001"
    assert phase(goal) == Phase.ITERATE
    goal.play()
    state = replay_goal(goal.reader).state
    assert state.items[name].state == "closed"
    tried = state.items["todo_0002"]
    assert tried.state == State.PROMOTED
    assert tried.hypothesis
    assert tried.hypothesis.source == "person"
    assert phase(goal) == Phase.DONE
    assert sound(goal)


def test_an_idea_comes_before_the_queue_and_keeps_a_cycle_open(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = Scenario(redis_client, goal_id, (WORSE,)).open()
    add_idea(goal, SMALL)
    goal.play()
    state = replay_goal(goal.reader).state
    first = state.items["todo_0001"].hypothesis
    assert first
    assert first.source == "person"
    assert sound(goal)


def test_the_same_text_twice_is_refused_with_what_is_there(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = Scenario(redis_client, goal_id, (WORSE,)).open()
    name = add_idea(goal, SMALL)
    for there in (name, "hyp_0001"):
        with pytest.raises(RefusedError) as refused:
            add_idea(goal, SMALL)
        assert (refused.value.reason, refused.value.missing) == ("duplicate", there)
        goal.play()
    assert goal.reader.goal()["idea_count"] == "1"
    assert sound(goal)


def test_a_goal_that_takes_no_attempts_takes_no_idea(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = played(redis_client, goal_id, WORSE, max_attempts=1)
    with pytest.raises(RefusedError) as refused:
        add_idea(goal, SMALL)
    assert refused.value.reason == "not_closed"


def test_the_proposer_does_not_put_other_words_into_an_idea(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = Scenario(redis_client, goal_id, (WORSE,)).open()
    add_idea(goal, SMALL)
    found = goal.claim("proposer-1")
    assert found
    with pytest.raises(RefusedError) as refused:
        goal.propose(found[0], WORSE, goal.hypothesis(WORSE, source="person"))
    assert refused.value.reason == "foreign_text"
