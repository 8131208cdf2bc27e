"""Peer cases of decisions, roles and successors that need no claim of a test, by their numbers."""

import pytest
import redis

from contracts.errors import RefusedError
from contracts.events import SuccessorAdded
from contracts.replay import replay
from contracts.store import keys
from contracts.store.writer import Writer
from contracts.words import Role, State, Stream
from projection.graph import document
from projection.reading import replay_goal
from projection.report import markdown
from projection.verify import verify
from projection.view import build_view
from tests.goals import OPERATOR, add_items, make_goal, take
from tests.integration.projection.test_verify import forge
from tests.integration.store.test_peer_review import found, played, standing
from tests.integration.store.test_successors import events_of
from tests.peers import review
from tests.scenario import PLANS, Scenario, body

BEST, WORSE = PLANS[7], PLANS[2]


@pytest.mark.parametrize("kind", ["decided", "signed"])
def test_peer_case_111_a_second_decider_planted_in_the_log_is_named_and_counts_for_nothing(
    redis_client: redis.Redis, goal_id: str, kind: str
) -> None:
    goal = played(redis_client, goal_id, BEST)
    review(goal, "curator-2", "hyp_0001")
    before = document(replay_goal(goal.reader).state)
    item = goal.reader.item("todo_0001")
    signature = {
        "evidence_revision": int(item["touched"]),
        "order": "second",
        "reason": "no_follow_up",
        "to_state": "retired",
    }
    decision = {name: signature[name] for name in ("evidence_revision", "reason")}
    decision["outcome"] = "retired"
    signed = kind == "signed"
    entry_id = forge(
        goal,
        redis_client,
        Stream.CURATOR if signed else Stream.EVALUATOR,
        {
            "type": kind,
            "writer": "curator" if signed else "evaluator",
            "role": "curator" if signed else "evaluator",
            "agent": "curator-3" if signed else "evaluator-1",
            "todo": "todo_0001",
            "hyp": "hyp_0001",
            **({"from": "promoted", "to": "retired"} if signed else {}),
            "version": str(int(item["version"]) + signed),
            "fence": item["fence"],
            "body": body(signature=signature) if signed else body(decision=decision),
        },
    )
    checked = verify(goal.reader)
    assert checked.exit_code() == 6
    assert {each.entry_id for each in checked.violations} == {entry_id}
    assert "todo_0001 is claimed by nobody" in {each.what for each in checked.violations}
    after = document(replay_goal(goal.reader).state)
    assert (after["nodes"], after["edges"]) == (before["nodes"], before["edges"])
    assert standing(goal, "hyp_0001")[0] == "confirmed"


def test_peer_case_121_an_evaluator_gets_nothing_and_closes_nothing_before_there_is_evidence(
    redis_client: redis.Redis, goal_id: str
) -> None:
    agents = [(f"{role}-1", role) for role in ("proposer", "executor", "evaluator")]
    writer = make_goal(redis_client, goal_id, agents=agents)
    (todo,) = add_items(writer, "proposer-1", [1.0])
    held = take(writer, "executor-1")
    for named in ("", todo):
        answer = writer.claim(agent_id="evaluator-1", incarnation="e", todo_id=named)
        assert (answer["should_run"], answer["reason"]) == ("0", "frontier_empty")
    item = redis_client.hgetall(keys.item(goal_id, todo))
    assert (item["state"], item["claimed_by"]) == (State.FRONTIER_SELECTED, held.agent_id)


def test_peer_case_123_without_any_evidence_nothing_is_concluded_and_the_todo_stays_open(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = Scenario(redis_client, goal_id, (BEST,)).open()
    while not goal.proposed:
        for agent_id in ("evaluator-1", "proposer-1"):
            goal.step(agent_id)
    with pytest.raises(RefusedError) as refused:
        review(goal, "curator-1", "hyp_0001")
    assert refused.value.reason == "no_decision"
    assert found(goal, "hyp_0001") is None
    state = replay_goal(goal.reader).state
    text = markdown(state, build_view(goal.reader), verify(goal.reader))
    assert "- Missing: all of 7.00x; nothing was accepted\n" in text
    assert "## What has not ended\n\n- hyp_0001: hypothesis_proposed\n" in text


def test_peer_case_133_a_successor_for_another_role_is_a_violation_and_one_without_agent_waits(
    redis_client: redis.Redis, goal_id: str
) -> None:
    goal = Scenario(redis_client, goal_id, (WORSE,)).open().play()
    changed = [
        each.model_copy(update={"target_role": Role.EXECUTOR})
        if isinstance(each, SuccessorAdded)
        else each
        for each in events_of(goal)
    ]
    state, violations = replay(goal_id, changed)
    assert "a successor is the proposer's" in violations[0].what
    assert state.successor_count == 0

    alone = f"{goal_id}-2"
    agents = [("proposer-1", "proposer"), ("executor-1", "executor")]
    writer = make_goal(redis_client, alone, agents=agents, successors="1")
    writer.close_source(take(writer, "proposer-1"), cursor="0")
    writer.register(operator=OPERATOR, agent_id="proposer-1", roles=[], body="{}")
    answer = writer.claim(agent_id="executor-1", incarnation="e")
    assert (answer["should_run"], answer["phase"]) == ("0", "iterate")  # it is not lost
    writer.register(operator=OPERATOR, agent_id="proposer-2", roles=["proposer"], body="{}")
    assert take(writer, "proposer-2").todo_id == "todo_successor_0001"


def refusal_of(client: redis.Redis, writer: Writer, agent_id: str = "executor-1") -> str:
    """Ask for work, which is a no that writes nothing; gives its reason."""
    before = client.hget(keys.goal(writer.goal_id), "rev")
    answer = writer.claim(agent_id=agent_id, incarnation="test")
    assert answer["should_run"] == "0"
    assert client.hget(keys.goal(writer.goal_id), "rev") == before
    return str(answer["reason"])


def test_peer_case_135_a_stopped_goal_runs_no_turn_until_it_is_resumed(
    redis_client: redis.Redis, goal_id: str
) -> None:
    agents = [("executor-1", "executor"), ("proposer-1", "proposer")]
    writer = make_goal(redis_client, goal_id, agents=agents)
    (todo,) = add_items(writer, "proposer-1", [1.0])
    writer.pause(operator=OPERATOR, value=True, note="lunch", body="{}")
    for agent_id, _ in agents:
        assert refusal_of(redis_client, writer, agent_id) == "goal_paused"
    writer.pause(operator=OPERATOR, value=False, note="", body="{}")
    assert take(writer, "executor-1").todo_id == todo
    assert take(writer, "proposer-1").todo_id == "todo_propose"


def test_peer_case_136_a_spent_budget_an_empty_frontier_and_a_stop_are_three_words(
    redis_client: redis.Redis, goal_id: str
) -> None:
    agents = [("executor-1", "executor"), ("proposer-1", "proposer")]
    writer = make_goal(redis_client, goal_id, agents=agents)
    assert refusal_of(redis_client, writer) == "frontier_empty"
    add_items(writer, "proposer-1", [1.0])
    redis_client.hset(keys.goal(goal_id), "attempts_used", "100000")
    assert refusal_of(redis_client, writer) == "budget_exhausted"
    writer.pause(operator=OPERATOR, value=True, note="lunch", body="{}")
    assert refusal_of(redis_client, writer) == "goal_paused"
