"""Stores and names that are wrong: every command gives its code, one message, no traceback."""

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from contracts.store import keys
from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, stop_server
from tests.integration.quota.goals import Goal, make_goal
from tests.unit.cli.program import SCRIPT, run

if TYPE_CHECKING:
    import redis

READING: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("agent", "list"),
    ("gate", "list"),
    ("gate", "show", "gate_0001"),
    ("quota", "should-run", "--agent-id", "executor-1"),
    ("quota", "frontier", "--agent-id", "executor-1"),
)
WRITING: tuple[tuple[str, ...], ...] = (
    ("quota", "claim", "--agent-id", "executor-1"),
    ("quota", "renew", "--agent-id", "executor-1"),
    ("quota", "release", "--agent-id", "executor-1"),
    ("quota", "spend", "--agent-id", "executor-1", "--usd", "1"),
    ("agent", "add", "x", "--role", "executor"),
    ("agent", "remove", "executor-1"),
    ("pause",),
    ("resume",),
    ("gate", "open", "todo_0001", "--kind", "owner", "--reason", "x"),
    ("gate", "approve", "gate_0001", "00000000"),
    ("gate", "reject", "gate_0001", "--reason", "x"),
)
ALL = (*READING, *WRITING)


def outcome(*words: str) -> tuple[int, dict[str, str]]:
    """Run a command with `--json`; gives its code and its one error document."""
    done = subprocess.run(
        [SCRIPT, *words, "--json"], capture_output=True, text=True, timeout=60, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout).get("error", {})


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_field_case_125_with_json_stdout_is_one_document_also_for_an_unknown_goal(
    goal: Goal, words: tuple[str, ...]
) -> None:
    code, error = outcome(*words, "--goal-id", "no-such-goal")
    assert code == 2
    assert error["message"] == "there is no goal 'no-such-goal' in this store"


def test_field_case_124_with_the_store_down_every_command_exits_4_with_one_message(
    monkeypatch: pytest.MonkeyPatch, short_path: Path
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", f"unix://{short_path}/none.sock")
    started = [
        subprocess.Popen([SCRIPT, *words], stdout=-1, stderr=-1, stdin=-3, text=True)
        for words in ALL
    ]
    for words, process in zip(ALL, started, strict=True):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 4, words
        assert out == ""
        assert err.startswith("labmates: no answer from unix://"), words
        assert err.count("labmates:") == 1
        assert "Traceback" not in err


def test_a_read_only_store_answers_questions_and_refuses_writes_with_exit_code_4(
    store_home: Path,
) -> None:
    url = ensure_server()
    with connect(url) as client:
        make_goal(client, "knn").propose("One")
        client.execute_command("REPLICAOF", "127.0.0.1", "1")
        for words in (*READING[:3], *READING[4:]):
            run(*words)
        for words in (WRITING[0], WRITING[4], WRITING[6], WRITING[8]):
            code, error = outcome(*words)
            assert code == 4, words
            assert error["code"] == "store_read_only", words
        client.execute_command("REPLICAOF", "NO", "ONE")
    stop_server(store_home)


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_another_programs_keys_under_our_names_are_said_to_be_that(
    redis_client: "redis.Redis", goal: Goal, words: tuple[str, ...]
) -> None:
    redis_client.delete(keys.goal(goal.goal_id))
    redis_client.set(keys.goal(goal.goal_id), "somebody else's")
    code, error = outcome(*words)
    assert code == 4
    assert error["code"] == "store_foreign"


def test_several_goals_are_listed_when_none_is_named(
    redis_client: "redis.Redis", goal: Goal, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_goal(redis_client, goal.goal_id + "b")
    monkeypatch.delenv("LABMATES_GOAL_ID")
    for words in ALL:
        done = run(*words, code=2)
        assert goal.goal_id in done.stderr
        assert "labmates status --goal-id " in done.stderr


def test_an_empty_store_is_started_and_says_what_to_do() -> None:
    done = run("quota", "should-run", "--agent-id", "executor-1", code=2)
    assert done.stderr.startswith("labmates: there is no goal in this store yet\n")
    assert "labmates demo --execute --headless\n" in done.stderr
