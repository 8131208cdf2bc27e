"""Cases of claims and leases that others met, played on the model and the real store at once."""

from dataclasses import replace

import pytest
import redis

from contracts.errors import RefusedError
from tests.property.play import GOOD, Make
from tests.property.test_model_against_store import settle
from tests.property.work import step


@pytest.mark.parametrize("asker", ["curator-1", "proposer-1", "evaluator-1", "executor-2"])
def test_field_case_4_lapse_first_whoever_asks_gives_back_what_is_due(
    make: Make, asker: str
) -> None:
    play = make(max_parallel=1)
    todo = play.goes("executor-1", "select")
    play.expire(todo)
    play.compare()
    play.claim(asker)
    assert play.state(todo) in {"needs_retry", "frontier_selected"}


@pytest.mark.parametrize("where", ["select", "evaluate", "propose"])
def test_field_case_11_quarantine_an_item_that_costs_three_recoveries_waits_for_a_person(
    make: Make, where: str
) -> None:
    play = make()
    agent = {"select": "executor-1", "evaluate": "evaluator-1", "propose": "proposer-1"}[where]
    if where == "evaluate":
        play.evidence()
    for _ in range(3):
        play.take(agent, where)
        play.lapse(play.hands[agent].model.todo)
    (gate,) = play.reader.open_gates()
    assert play.reader.gate(gate)["kind"] == "poison"
    play.decide(gate, accepted=True)
    play.compare()
    play.take(agent, where)


def test_field_case_14_two_who_notice_an_ended_lease_write_one_event(make: Make) -> None:
    play = make()
    todo = play.goes("executor-1", "select")
    play.expire(todo)
    play.claim("curator-1")
    play.claim("evaluator-1")
    play.compare()
    kinds = [event.type for event in play.replayed.events.values()]
    assert kinds.count("lease_expired") == 1


def test_field_case_13_a_refused_report_leaves_its_agent_free_for_the_next_step(
    make: Make,
) -> None:
    play = make(2)
    todo = play.goes("executor-1", "select")
    play.lapse(todo)
    play.work("executor-1", done=False)
    play.take("executor-1", "select")


def test_field_case_8_an_agent_holds_one_claim_however_often_it_asks(make: Make) -> None:
    play = make(5, max_parallel=3)
    play.take("executor-1", "select")
    for _ in range(3):
        assert play.claim("executor-1")
    claimed = [item.todo for item in play.model.items.values() if item.claim]
    assert len(claimed) == 1


def test_field_case_10_after_many_restarts_an_agent_is_one_agent(make: Make) -> None:
    play = make()
    play.enlist("executor-1", "executor-1#1", "")
    for _ in range(100):
        play.crash("executor-1")
    assert len(play.reader.agent_ids()) == len(play.model.agents)
    play.compare()


def test_a_lost_reply_is_answered_again_and_applied_once(make: Make) -> None:
    play = make(3)
    play.writer.times = 3
    todo = play.at_gate()
    play.goes("evaluator-1", "sign")
    play.goes("curator-1", "cosign")
    assert play.state(todo) == "promoted"
    assert play.model.used == 1


def test_field_case_1_a_long_step_that_renews_is_started_once(make: Make) -> None:
    play = make()
    todo = play.goes("executor-1", "select")
    for _ in range(4):
        play.expire(todo)
        play.renew("executor-1")
        assert not play.claim("executor-2")
    play.work("executor-1")
    kinds = [event.type for event in play.replayed.events.values()]
    assert kinds.count("attempt_started") == 1


def test_field_case_5_field_case_16_nothing_in_the_store_is_a_lock_or_ends_by_itself(
    make: Make, redis_client: redis.Redis
) -> None:
    play = make()
    play.lapse(play.goes("executor-1", "select"))
    settle(play)
    names = set(redis_client.scan_iter(f"{{{play.goal_id}}}:*"))
    kinds = {name.split(":")[1] for name in names}
    known = {"goal", "item", "ready", "leases", "agent", "agents", "ops", "gate", "gates"}
    assert kinds <= known | {"texts", "hyps", "heads", "events", "wake"}
    assert {redis_client.ttl(name) for name in names} == {-1}


def test_field_case_20_a_report_on_an_unknown_todo_leaves_the_agents_claim_alone(
    make: Make,
) -> None:
    play = make()
    play.take("executor-1", "select")
    hand = play.hands["executor-1"]
    with pytest.raises(RefusedError) as refused:
        play.writer.release(replace(hand.real, todo_id="todo_9999"), "stopped")
    assert refused.value.reason == "todo_unknown"
    play.work("executor-1")


def test_an_older_fence_of_the_same_process_is_refused(make: Make) -> None:
    play = make()
    play.take("executor-1", "select")
    older = play.hands["executor-1"]
    play.lapse(older.model.todo)
    play.take("executor-1", "select")
    assert not step(play, older, GOOD)
    assert play.log[-1] == "  refused: stale_fence"
    play.work("executor-1")
