"""`labmates quota renew | release | spend | frontier`, on a real server."""

import json

import pytest

from contracts.store import keys
from contracts.store.reader import Reader
from tests.integration.quota.goals import Goal, held
from tests.unit.cli.program import run

EXECUTOR = ("--agent-id", "executor-1")


def test_renew_moves_the_end_of_the_lease(goal: Goal) -> None:
    todo = goal.propose("One")
    run("quota", "claim", *EXECUTOR)
    client, leases = goal.writer.client, keys.leases(goal.goal_id)
    client.zadd(leases, {todo: 1.0})
    document = json.loads(run("quota", "renew", *EXECUTOR, "--json").stdout)
    assert document["todo_id"] == todo
    assert Reader(client, goal.goal_id).leases()[todo] > 1_000_000_000_000


def test_release_gives_the_item_back_and_a_second_one_is_refused(goal: Goal) -> None:
    todo = goal.propose("One")
    run("quota", "claim", *EXECUTOR)
    assert run("quota", "release", *EXECUTOR).stdout == f"{todo} is handed back: stopped\n"
    assert Reader(goal.writer.client, goal.goal_id).item(todo)["state"] == "hypothesis_proposed"
    done = run("quota", "release", *EXECUTOR, code=3)
    assert done.stderr.startswith("labmates: executor-1 holds no claim\n")


def test_an_agent_without_a_claim_cannot_renew_release_or_spend(goal: Goal) -> None:
    for words in (("renew",), ("release",), ("spend", "--usd", "1")):
        for agent, reason in (("executor-1", "not_claimed"), ("nobody", "agent_unknown")):
            done = run("quota", *words, "--agent-id", agent, "--json", code=3)
            assert json.loads(done.stdout)["error"]["details"]["reason"] == reason
            assert done.stderr == ""


def start_attempt(goal: Goal) -> str:
    """Claim the first hypothesis and start its attempt; gives the todo."""
    reply = goal.writer.claim(agent_id="executor-1", incarnation="test")
    claim = held(goal.goal_id, "executor-1", reply)
    base = Reader(goal.writer.client, goal.goal_id).goal()["champion_rev"]
    records = [("attempt_started", "{}")]
    goal.writer.advance(claim, "attempt_running", records=records, base_rev=base)
    return claim.todo_id


def test_spend_settles_an_attempt_once(goal: Goal) -> None:
    goal.propose("One")
    todo = start_attempt(goal)
    run("quota", "spend", *EXECUTOR, "--usd", "0.25")
    client = goal.writer.client
    assert Reader(client, goal.goal_id).goal()["cost"] == "250000"
    done = run("quota", "spend", *EXECUTOR, "--usd", "0.25", code=3)
    assert todo in done.stderr
    assert Reader(client, goal.goal_id).goal()["cost"] == "250000"


def test_an_attempt_under_way_cannot_be_released(goal: Goal) -> None:
    goal.propose("One")
    todo = start_attempt(goal)
    run("quota", "release", *EXECUTOR, code=3)
    assert Reader(goal.writer.client, goal.goal_id).item(todo)["state"] == "attempt_running"


@pytest.mark.parametrize("usd", ["nan", "inf", "-1", "1e300", "much"])
def test_a_cost_that_is_no_amount_is_wrong_usage(goal: Goal, usd: str) -> None:
    done = run("quota", "spend", *EXECUTOR, f"--usd={usd}", code=2)
    assert done.stderr.startswith("labmates: ")


def test_the_frontier_begins_with_what_should_run_selects(goal: Goal) -> None:
    goal.propose("Later", rank=2.0)
    goal.propose("First", rank=1.0)
    for agent in ("executor-1", "proposer-1", "evaluator-1", "curator-1"):
        done = run("quota", "frontier", "--agent-id", agent, "--json")
        found = json.loads(done.stdout)
        assert found["schema_version"] == "decentralized_research_frontier_v0"
        if found["selected"]:
            assert found["runnable"][0]["todo_id"] == found["selected"]["todo_id"]
            assert found["runnable"][0]["allowed_action"] == found["selected"]["allowed_action"]
        else:
            assert found["runnable"] == []
    text = run("quota", "frontier", *EXECUTOR).stdout
    assert text.index("First") < text.index("Later")


def test_the_frontier_shows_what_is_held_back_and_by_what(goal: Goal) -> None:
    first = goal.propose("Claimed", rank=1.0)
    second = goal.propose("Gated", rank=2.0)
    goal.claimed("executor-1")
    goal.writer.open_gate(operator="operator:t", todo_id=second, kind="owner", body="{}")
    found = json.loads(run("quota", "frontier", "--agent-id", "proposer-1", "--json").stdout)
    held_back = {each["todo_id"]: each["blocked_by"] for each in found["blocked"]}
    assert held_back == {first: "claim:executor-1", second: "gate:gate_0001"}


def test_the_frontier_of_an_unknown_agent_exits_3(goal: Goal) -> None:
    run("quota", "frontier", "--agent-id", "nobody", code=3)
