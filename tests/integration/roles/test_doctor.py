"""`labmates doctor` finds, says what mends, mends with --fix, and otherwise only reads."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts.errors import RefusedError
from contracts.store import keys
from contracts.store.connect import connect
from contracts.store.embedded import ensure_server, stop_server
from contracts.words import Stream
from projection.verify import verify
from roles.cli import run
from roles.steps.lane import incarnation_of_this_process
from tests.integration.store.dumps import dump
from tests.scenario import Scenario
from tests.tiny import git, make_goal, make_repository

Doctor = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def doctor(capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run the doctor; gives its exit code, and each check by its name."""

    def ask(*arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
        capsys.readouterr()
        code = run(["doctor", "--json", *arguments])
        document = json.loads(capsys.readouterr().out)
        assert document["ok"] == (code == 0)
        return code, {each["name"]: each for each in document["checks"]}

    return ask


@pytest.fixture
def client(server_of_home: str) -> Iterator[redis.Redis]:
    """Give a client of the embedded server of this test's home."""
    with connect(server_of_home) as found:
        yield found


@pytest.fixture
def own(client: redis.Redis) -> Scenario:
    """Give a goal in the middle of its work, the only one of its store."""
    found = Scenario(client, "lab-1").open().play(6)
    assert found.claim("executor-1")
    return found


def outcomes(checks: dict[str, dict[str, Any]], outcome: str) -> set[str]:
    """Name the checks that ended so."""
    return {name for name, each in checks.items() if each["outcome"] == outcome}


def test_without_a_store_it_looks_at_the_machine_and_starts_nothing(
    store_home: Path, doctor: Doctor
) -> None:
    code, checks = doctor()

    assert code == 0
    assert {"git", "server program", "LABMATES_HOME", "server"} == set(checks)
    assert not store_home.exists()


def test_a_server_that_was_stopped_is_found_and_started_with_fix(
    store_home: Path, own: Scenario, doctor: Doctor
) -> None:
    own.client.close()
    stop_server(store_home)

    code, checks = doctor()
    assert code == 1
    assert checks["server"]["mend"] == ["labmates", "store", "start"]

    code, checks = doctor("--fix")
    assert code == 0
    assert outcomes(checks, "mended") == {"server"}


def test_a_store_that_does_not_answer_exits_5(
    monkeypatch: pytest.MonkeyPatch, doctor: Doctor
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", "redis://127.0.0.1:1/0")
    code, checks = doctor()
    assert code == 5
    assert checks["answer"]["outcome"] == "missing"


def test_a_machine_without_git_exits_5(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, doctor: Doctor
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, checks = doctor()
    assert code == 5
    assert checks["git"]["outcome"] == "missing"


def test_a_sound_goal_gives_exit_0_and_no_byte_changes(own: Scenario, doctor: Doctor) -> None:
    before = (
        {str(name): own.client.type(name) for name in own.client.scan_iter()},
        dump(own.client, own.goal_id),
    )
    for arguments in ((), ("--fix",), ("--goal-id", "lab-1")):
        code, checks = doctor(*arguments)
        assert code == 0, checks
        assert outcomes(checks, "ok") == set(checks)
    after = (
        {str(name): own.client.type(name) for name in own.client.scan_iter()},
        dump(own.client, own.goal_id),
    )
    assert after == before


def test_everything_that_was_found_is_only_read_without_fix_and_mended_with_it(
    own: Scenario, doctor: Doctor
) -> None:
    client = own.client
    client.config_set("maxmemory-policy", "allkeys-lru")
    client.config_set("appendonly", "no")
    client.srem(keys.GOALS, "lab-1")
    client.sadd(keys.GOALS, "ghost")
    client.function_flush()
    client.hset(keys.goal("lab-1"), "cost", "7")
    client.hdel(keys.heads("lab-1"), "executor")
    client.hset(keys.lane("lab-1", "executor-2"), "state", "working")
    before = dump(client, "lab-1")

    code, checks = doctor()

    broken = {"eviction", "persistence", "list of goals", "functions", "derived state", "lanes"}
    assert code == 1
    assert outcomes(checks, "found") == broken
    assert dump(client, "lab-1") == before
    assert client.smembers(keys.GOALS) == {"ghost"}
    assert client.config_get("appendonly") == {"appendonly": "no"}
    assert client.function_list() == []

    code, checks = doctor("--fix")
    assert code == 0
    assert outcomes(checks, "mended") == broken

    code, checks = doctor()
    assert code == 0
    assert outcomes(checks, "ok") == set(checks)
    assert client.config_get("maxmemory-policy") == {"maxmemory-policy": "noeviction"}
    own.play()
    assert verify(own.reader).exit_code() == 0


def test_the_settings_of_another_server_are_named_and_never_changed(
    own: Scenario, server_of_home: str, doctor: Doctor
) -> None:
    own.client.config_set("maxmemory-policy", "allkeys-random")

    code, checks = doctor("--fix", "--store", server_of_home)

    assert code == 1
    said = ["config", "set", "maxmemory-policy", "noeviction"]
    assert checks["eviction"]["mend"][-4:] == said
    assert own.client.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-random"}


def test_field_case_34_an_eviction_policy_and_a_missing_stream_are_alarms(
    own: Scenario, doctor: Doctor
) -> None:
    own.client.config_set("maxmemory-policy", "allkeys-lru")
    own.client.delete(keys.events("lab-1", Stream.EXECUTOR))

    code, checks = doctor("--fix")

    assert code == 6
    assert checks["eviction"]["outcome"] == "mended"
    assert checks["streams"]["says"] == "gone: executor"
    assert checks["records"]["outcome"] == "alarm"


def test_a_store_that_is_nearly_full_is_found(own: Scenario, doctor: Doctor) -> None:
    used = int(own.client.info("memory")["used_memory"])
    own.client.config_set("maxmemory", str(int(used * 1.2)))
    code, checks = doctor()
    own.client.config_set("maxmemory", "0")
    assert code == 1
    assert "of maxmemory" in checks["memory"]["says"]


@pytest.mark.parametrize("keep", [0, 3])
def test_field_case_37_a_trimmed_stream_is_found(own: Scenario, doctor: Doctor, keep: int) -> None:
    own.client.xtrim(keys.events("lab-1", Stream.CURATOR), maxlen=keep)
    own.client.xtrim(keys.events("lab-1", Stream.EVALUATOR), maxlen=keep)

    code, checks = doctor("--fix")

    assert code == 6
    assert checks["streams"]["outcome"] == "alarm"
    assert "evaluator" in checks["streams"]["says"]
    assert "derived state" not in checks
    assert run(["verify", "--goal-id", "lab-1"]) == 6


def test_field_case_40_state_without_its_event_is_found_and_taken_back(
    own: Scenario, doctor: Doctor
) -> None:
    before = own.reader.item("todo_0003")
    own.client.hset(keys.item("lab-1", "todo_0003"), "state", "promoted")

    code, checks = doctor()
    assert code == 1
    assert "todo_0003 state is promoted" in checks["derived state"]["says"]

    code, _ = doctor("--fix")
    assert code == 0
    assert own.reader.item("todo_0003") == before


def test_field_case_29_lost_wake_lists_and_ready_sets_run_nothing_twice(
    own: Scenario, doctor: Doctor
) -> None:
    # No consumer group is there to be lost: what decides is the state of the todos.
    started = sum(1 for _, each in own.reader.entries(Stream.EXECUTOR) if is_start(each))
    for name in own.client.scan_iter(match="{lab-1}:ready:*"):
        own.client.delete(name)
    for name in own.client.scan_iter(match="{lab-1}:wake:*"):
        own.client.delete(name)

    assert doctor()[0] == 1
    assert doctor("--fix")[0] == 0

    own.play()
    found = verify(own.reader)
    assert found.exit_code() == 0
    assert len(found.state.attempts) > started
    ended = [item for item in found.state.hypothesis_items() if item.terminal]
    assert len(ended) == len(own.plans)


def is_start(fields: dict[str, str]) -> bool:
    """Tell whether an entry starts an attempt."""
    return fields.get("type") == "attempt_started"


def test_field_case_32_a_position_set_back_brings_no_ended_todo_back(
    own: Scenario, doctor: Doctor
) -> None:
    # The nearest there is to a position: an ended todo put back among what is handed out.
    own.play()
    attempts = len(verify(own.reader).state.attempts)
    for todo in own.reader.derived(todos=(), agents=(), gates=(), classes=()).hypotheses.values():  # type: ignore[union-attr]
        own.client.zadd(keys.ready("lab-1", "start"), {todo: 0})

    assert doctor()[0] == 1
    assert doctor("--fix")[0] == 0

    own.play(3)
    found = verify(own.reader)
    assert found.exit_code() == 0
    assert len(found.state.attempts) == attempts


def test_field_case_38_a_deleted_entry_stops_nobody_and_is_named(
    own: Scenario, doctor: Doctor
) -> None:
    claimed = [e for e, f in own.reader.entries(Stream.EXECUTOR) if f["type"] == "claimed"]
    own.client.xdel(keys.events("lab-1", Stream.EXECUTOR), claimed[-1])

    code, checks = doctor("--fix")
    assert code == 6
    assert checks["streams"]["says"] == "entries were trimmed or deleted: executor lost 1"

    # The claim is the todo's; its holder goes on from there.
    found = own.claim("executor-1")
    assert found
    own.writer.release(found[0], "stopped")
    own.play()
    goal = own.reader.goal()
    assert (goal.get("live"), goal.get("lanes")) == ("0", "0")


def test_dead_lanes_and_their_leftovers_are_removed_and_live_ones_kept(
    server_of_home: str, store_home: Path, tmp_path: Path, doctor: Doctor
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-1")
    for agent_id in ("executor-1", "executor-2"):
        context.writer.register(
            operator="operator:test",
            agent_id=agent_id,
            roles=["executor"],
            body=json.dumps({"registration": {"agent_id": agent_id, "roles": ["executor"],
                             "schema_version": "agent_registration_v0"}}),
        )  # fmt: skip
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    here = incarnation_of_this_process()
    born = here | {"inc": "gone", "pid": str(dead.pid), "start": "1.00"}
    context.writer.enlist(agent_id="executor-1", role="executor", incarnation=born, dead="")
    context.writer.enlist(agent_id="executor-2", role="executor", incarnation=here, dead="")
    client, note = context.reader.client, context.folder / "lanes" / "executor-1.json"
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_text(json.dumps({"pid": dead.pid, "start": "1.00"}))
    for agent_id in ("executor-1", "executor-2"):
        client.hset(keys.lane("tiny-1", agent_id), "state", "working")
        (store_home / "scratch" / "tiny-1" / agent_id).mkdir(parents=True)
    stranger = store_home / "worktrees" / "tiny-1" / "notes"
    stranger.mkdir(parents=True)

    code, checks = doctor()
    assert code == 1
    assert checks["lanes"]["says"] == "without a process: executor-1"
    assert checks["scratch"]["says"] == "of agents that are gone: executor-1"
    assert note.exists()

    assert doctor("--fix")[0] == 0

    assert not note.exists()
    assert context.reader.lane("executor-1") == {}
    assert context.reader.lane("executor-2") == {"state": "working"}
    assert context.reader.agent("executor-1").get("inc") is None
    assert context.reader.agent("executor-2")["inc"] == here["inc"]
    assert [each.name for each in (store_home / "scratch" / "tiny-1").iterdir()] == ["executor-2"]
    assert stranger.is_dir()


# Goals -------------------------------------------------------------------------------------------


def test_a_goal_is_archived_removed_and_restored_by_commands(
    own: Scenario, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, seen = str(tmp_path / "lab.jsonl.gz"), verify(own.reader).to_json_dict()
    assert run(["goal", "list"]) == 0
    assert "lab-1  approved, revision" in capsys.readouterr().out
    assert run(["goal", "remove", "lab-1"]) == 2
    assert run(["goal", "archive", file]) == 0
    assert run(["goal", "archive", file]) == 2
    held = own.claim("executor-1")
    assert held
    own.writer.release(held[0], "stopped")
    assert run(["goal", "remove", "lab-1", "--archive", file]) == 3
    assert run(["goal", "archive", file, "--force"]) == 0
    seen = verify(own.reader).to_json_dict()

    capsys.readouterr()
    assert run(["goal", "remove", "lab-1", "--archive", file]) == 0
    assert "keys of lab-1" in capsys.readouterr().out
    assert dump(own.client, "lab-1") == {}
    assert not own.client.exists(keys.GOALS)

    assert run(["store", "restore", file]) == 0
    assert run(["store", "restore", file]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("there already")
    assert verify(own.reader).to_json_dict() == seen


def test_a_store_is_copied_into_another_by_one_command(
    own: Scenario, short_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = ensure_server(short_path / "other")
    try:
        assert run(["store", "copy", url, "--json"]) == 0
        told = json.loads(capsys.readouterr().out)
        assert [each["new"] for each in told["goals"]] == [True]
        assert told["goals"][0]["heads"] == own.reader.heads()
        assert run(["verify", "--store", url, "--records"]) == 0
    finally:
        stop_server(short_path / "other")


def test_a_goal_with_live_lanes_is_not_removed(own: Scenario) -> None:
    own.writer.enlist(
        agent_id="executor-2",
        role="executor",
        incarnation=incarnation_of_this_process(),
        dead="",
    )
    before = dump(own.client, "lab-1")
    assert run(["goal", "remove", "lab-1", "--no-archive"]) == 3
    assert dump(own.client, "lab-1") == before


def test_a_removed_goal_leaves_the_repository_and_its_branches(
    server_of_home: str, store_home: Path, tmp_path: Path
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo")
    context = make_goal(repository, "tiny-1")
    branch = "labmates/tiny-1/hyp_0001/1"
    git(repository, "branch", branch)
    before = git(repository, "for-each-ref")

    assert run(["goal", "remove", "tiny-1", "--no-archive"]) == 0
    assert git(repository, "for-each-ref") == before
    assert not context.folder.exists()
    assert (store_home / "store").is_dir()

    make_goal(repository, "tiny-1")
    assert run(["goal", "remove", "tiny-1", "--no-archive", "--branches"]) == 0
    assert branch not in git(repository, "for-each-ref")
    assert (repository / "value.txt").read_text() == "1\n"
    assert shutil.which("git")
    assert os.environ["LABMATES_HOME"] == str(store_home)


def test_a_removed_goal_is_unknown_to_its_agents(own: Scenario) -> None:
    assert run(["goal", "remove", "lab-1", "--no-archive"]) == 0
    with pytest.raises(RefusedError) as caught:
        own.claim("executor-1")
    assert caught.value.reason == "goal_unknown"
