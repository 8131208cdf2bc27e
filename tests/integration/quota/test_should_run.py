"""`labmates quota should-run` and `claim`, through the installed program and a real server."""

import json
import subprocess
import time
from typing import TYPE_CHECKING, Any

import pytest

from contracts.records import NextAction
from contracts.store import keys
from contracts.store.library import NAME
from contracts.store.reader import Reader
from quota import warm
from quota.request import Request
from tests.integration.quota.goals import Goal, make_goal, register
from tests.support import wait_until
from tests.unit.cli.program import SCRIPT, run

if TYPE_CHECKING:
    import redis

EXECUTOR = ("quota", "should-run", "--agent-id", "executor-1")


def decision(*words: str, code: int = 0) -> dict[str, Any]:
    """Run a quota command with `--json` and check its document against the record."""
    printed = run(*words, "--json", code=code).stdout
    assert printed.count("\n") == 1
    found: dict[str, Any] = json.loads(printed)
    NextAction.model_validate_json(printed)
    return found


def test_a_ready_item_is_a_yes_with_the_command_that_follows(goal: Goal) -> None:
    todo = goal.propose("Sort by norm, bound by the triangle")
    found = decision(*EXECUTOR)
    assert found["should_run"] is True
    assert found["reason"] == "ready"
    assert found["selected"]["todo_id"] == todo
    assert found["selected"]["allowed_action"] == "select"
    assert found["next"] == ["labmates", "quota", "claim", "--agent-id", "executor-1"]
    assert found["wait"] is None
    assert found["budget"]["attempts"] == {"used": 0, "reserved": 0, "limit": 8}


def test_the_text_of_a_yes_reads_as_the_terminal_page_shows(goal: Goal) -> None:
    goal.propose("Prune by block minima", rank_reason="untried family")
    other = goal.propose("Sort by norm", rank=2.0, rank_reason="its parent is the best evidence")
    register(goal.writer, "executor-2", "executor")
    goal.claimed("executor-1")
    text = run("quota", "should-run", "--agent-id", "executor-2").stdout
    head, empty, *rows = text.splitlines()
    assert head.startswith("yes  ready   ")
    revision = Reader(goal.writer.client, goal.goal_id).goal()["rev"]
    assert head.endswith(f"executor-2 as executor, {goal.goal_id} rev {revision}")
    assert len(head) == 80
    assert empty == ""
    assert rows == [
        f"take       {other}  hyp_0002  Sort by norm",
        "action     select: hypothesis_proposed -> frontier_selected, version 1",
        "because    rank 1: its parent is the best evidence",
        "blocked    todo_0001  blocked_by claim:executor-1",
        "budget     attempts 0 of 8, parallel 1 of 3, 0.00 of 20.00 USD",
        "next       labmates quota claim --agent-id executor-2",
    ]


def test_peer_case_27_an_item_under_a_live_lease_is_not_offered_to_another(goal: Goal) -> None:
    todo = goal.propose("Only one")
    goal.claimed("executor-1")
    register(goal.writer, "executor-2", "executor")
    found = decision("quota", "should-run", "--agent-id", "executor-2", code=1)
    assert found["reason"] == "frontier_empty"
    assert found["blocked"] == [{"todo_id": todo, "blocked_by": "claim:executor-1"}]
    assert found["wait"]["on"] == ["claim:executor-1"]
    assert found["wait"]["until"].endswith("Z")
    assert found["wait"]["poll_after_s"] == 30


def test_an_open_claim_comes_first(goal: Goal) -> None:
    todo = goal.propose("Mine")
    assert decision("quota", "claim", "--agent-id", "executor-1")["reason"] == "ready"
    found = decision(*EXECUTOR)
    assert found["reason"] == "resume_claim"
    assert found["selected"]["todo_id"] == todo
    assert found["selected"]["lease_seconds_left"] in range(20, 31)
    assert found["next"][:2] == ["labmates", "worker"]


def test_peer_case_25_only_a_gated_item_is_a_no_that_names_the_gate(goal: Goal) -> None:
    todo = goal.propose("Held")
    body = '{"gate":{"kind":"owner","question":"May it?"}}'
    gate = goal.writer.open_gate(operator="operator:t", todo_id=todo, kind="owner", body=body)
    found = decision(*EXECUTOR, code=1)
    assert found["reason"] == "blocked_by_gate"
    assert found["blocked"] == [{"todo_id": todo, "blocked_by": f"gate:{gate}"}]
    assert found["wait"]["on"] == [f"gate:{gate}"]
    assert found["wait"]["open_for_s"] in range(30)
    text = run(*EXECUTOR, code=1).stdout
    assert f"next       a person: labmates gate show {gate}\n" in text


def test_a_paused_goal_says_who_and_why(goal: Goal) -> None:
    run("pause", "--reason", "lunch")
    found = decision(*EXECUTOR, code=1)
    assert found["reason"] == "goal_paused"
    assert found["wait"]["note"].endswith(": lunch")
    assert found["next"] == ["labmates", "resume"]
    run("resume")
    assert decision(*EXECUTOR, code=1)["reason"] == "frontier_empty"


def test_a_spent_budget_shows_the_gap_and_that_waiting_will_not_help(
    redis_client: "redis.Redis", goal: Goal
) -> None:
    goal.propose("One more")
    redis_client.hset(keys.goal(goal.goal_id), "attempts_used", "8")
    found = decision(*EXECUTOR, code=1)
    assert found["reason"] == "budget_exhausted"
    assert found["wait"] is None
    assert found["gap"]["target"] == 12.0
    assert found["gap"]["best"] is None
    text = run(*EXECUTOR, code=1).stdout
    assert "because    attempts 8 of 8 are used\n" in text
    assert "gap        best held-out none of 12.00x\n" in text
    assert "waits for  nothing; waiting will not help\n" in text


def test_peer_case_6_an_agent_off_the_roster_is_told_so_with_exit_code_3(goal: Goal) -> None:
    found = decision("quota", "should-run", "--agent-id", "nobody", code=3)
    assert found["reason"] == "agent_unknown"
    assert found["next"] == ["labmates", "agent", "list"]


def test_a_role_that_the_agent_does_not_hold_exits_3(goal: Goal) -> None:
    found = decision(*EXECUTOR, "--role", "curator", code=3)
    assert found["reason"] == "role_mismatch"


def test_the_goal_is_named_in_next_only_when_it_was_named_on_the_command_line(goal: Goal) -> None:
    goal.propose("One")
    assert "--goal-id" not in decision(*EXECUTOR)["next"]
    assert decision(*EXECUTOR, "--goal-id", goal.goal_id)["next"][-2:] == [
        "--goal-id",
        goal.goal_id,
    ]


def test_should_run_writes_nothing(redis_client: "redis.Redis", goal: Goal) -> None:
    goal.propose("One")

    def whole() -> dict[str, bytes | None]:
        found = redis_client.keys(keys.prefix(goal.goal_id) + "*")
        return {str(key): redis_client.dump(key) for key in found}

    before = whole()
    run(*EXECUTOR)
    run("quota", "frontier", "--agent-id", "executor-1")
    run("status")
    assert whole() == before


def test_the_cold_and_the_warm_path_give_the_same_document(goal: Goal, server_url: str) -> None:
    goal.propose("One")
    for agent, code in (("executor-1", 0), ("curator-1", 1), ("nobody", 3)):
        cold = decision("quota", "should-run", "--agent-id", agent, code=code)
        request = Request("should-run", agent, goal.goal_id, "", "", server_url, False, True, "o")
        assert warm.answer(request) == cold


def test_a_server_without_the_library_gets_it_and_the_question_is_answered(
    redis_client: "redis.Redis", goal: Goal
) -> None:
    goal.propose("One")
    redis_client.function_delete(NAME)
    assert decision(*EXECUTOR)["reason"] == "ready"


def test_a_claim_of_another_todo_than_the_first_is_refused(goal: Goal) -> None:
    first = goal.propose("One")
    second = goal.propose("Two", rank=2.0)
    words = ("quota", "claim", "--agent-id", "executor-1", "--todo-id", second)
    done = run(*words, code=3)
    assert first in done.stderr
    assert done.stderr.endswith("Nothing was written.\n")
    document = json.loads(run(*words, "--json", code=3).stdout)
    assert document["error"]["details"]["reason"] == "not_recommended"
    assert goal.writer.client.hget(keys.item(goal.goal_id, first), "claimed_by") is None


def test_waiting_ends_as_soon_as_work_is_there(goal: Goal) -> None:
    waiting = subprocess.Popen(
        [SCRIPT, *EXECUTOR, "--wait", "20", "--json"], stdout=subprocess.PIPE, text=True
    )
    wait_until(
        lambda: goal.writer.client.info("clients")["blocked_clients"],
        description="the program waits on the wake list",
    )
    begin = time.monotonic()
    goal.propose("At last")
    printed, _ = waiting.communicate(timeout=15)
    assert waiting.returncode == 0
    assert json.loads(printed)["reason"] == "ready"
    assert time.monotonic() - begin < 10


def test_waiting_is_over_when_its_time_is(goal: Goal) -> None:
    begin = time.monotonic()
    found = decision(*EXECUTOR, "--wait", "0.3", code=1)
    assert found["reason"] == "frontier_empty"
    assert time.monotonic() - begin >= 0.3


def test_waiting_does_not_begin_where_it_cannot_help(goal: Goal) -> None:
    begin = time.monotonic()
    decision("quota", "should-run", "--agent-id", "nobody", "--wait", "20", code=3)
    assert time.monotonic() - begin < 10


def test_a_goal_whose_contract_nobody_approved_is_a_no(
    redis_client: "redis.Redis", server_url: str, goal_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", server_url)
    make_goal(redis_client, goal_id, approved=False)
    found = decision(*EXECUTOR, "--goal-id", goal_id, code=1)
    assert found["reason"] == "contract_unapproved"
    assert found["phase"] is None
