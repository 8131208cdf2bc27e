"""`labmates plan` and `labmates approve`, on real repositories and a real store."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import redis

from contracts.canonical import canonical
from contracts.contract import ResearchContract
from contracts.errors import PreconditionError, RecordsError, RefusedError, UsageError
from contracts.store import keys
from contracts.store.connect import connect
from contracts.store.home import labmates_home
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Writer
from contracts.words import Stream
from roles.cli import run
from roles.goal.contract_file import read_contract, require_unchanged
from roles.goal.goals import (
    approval_of,
    contract_of,
    create_goal,
    goal_numbers,
    operator_name,
    repository_of,
)
from roles.workspace.git import Git
from tests.contracts_on_disk import CONTRACT, changed, make_project
from tests.integration.roles.repositories import commit_files, snapshot, write
from tests.tiny import git


@pytest.fixture
def project(tmp_path: Path, goal_id: str, monkeypatch: pytest.MonkeyPatch) -> Git:
    """Give a repository whose folder names a goal that no other test uses; it is the place."""
    git = make_project(tmp_path / goal_id)
    monkeypatch.chdir(git.repo)
    return git


@pytest.fixture
def store(server_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("LABMATES_STORE_URL", server_url)
    return server_url


@pytest.fixture
def client(redis_client: redis.Redis) -> redis.Redis:
    ensure_library(redis_client)
    return redis_client


def say(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    code = run(list(argv))
    out, err = capsys.readouterr()
    assert "Traceback" not in out + err
    return code, out, err


def say_json(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = say(capsys, *argv, "--json")
    found = json.loads(out)
    assert isinstance(found, dict)
    return code, found


def test_peer_case_120_plan_shows_the_contract_to_write_and_writes_nothing(
    project: Git, capsys: pytest.CaptureFixture[str]
) -> None:
    before = snapshot(project.repo)
    code, out, err = say(capsys, "plan")
    digest = read_contract(project.repo).contract_hash
    assert (code, err) == (0, "")
    assert out.endswith(f"\nNext: labmates approve {digest[:8]}\n")
    for text in (
        digest,
        "Edit       solution.py   (1 file)",
        "bench.py data/one.txt hypotheses.jsonl labmates.toml   (4 files)",
        "20 attempts, one at a time",
        "gain_low95",
        "Nothing was written or started.",
    ):
        assert text in out, text
    assert out.isascii()
    assert all(len(line) <= 80 and line == line.rstrip() for line in out.splitlines())
    assert snapshot(project.repo) == before
    assert not labmates_home().exists()


def test_plan_as_json_names_the_next_command(
    project: Git, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = say_json(capsys, "plan")
    assert code == 0
    assert found["next"] == ["labmates", "approve", found["contract_hash"]]
    contract = ResearchContract.model_validate_json(json.dumps(found["contract"]))
    assert contract.contract_hash() == found["contract_hash"]
    assert found["editable_files"] == ["solution.py"]
    assert found["queue"]["feasible"] == [{"line": 1, "title": "Sort less.", "driver": "patch"}]


def test_plan_needs_no_store(
    project: Git, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", "redis://127.0.0.1:1")
    assert say(capsys, "plan")[0] == 0


def test_a_dirty_repository_is_exit_code_5_and_the_mend_works(
    project: Git, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project.repo, {"solution.py": "x = 2\n"})
    code, out, err = say(capsys, "plan")
    assert (code, out) == (5, "")
    assert "has changes that are not committed" in err
    assert "files      M solution.py" in err
    code, found = say_json(capsys, "plan")
    assert (code, found["error"]["code"]) == (5, "precondition")
    assert found["error"]["mend"][0] == ["git", "commit", "-am", "before labmates"]
    commit_files(project, {})
    assert say(capsys, "plan")[0] == 0


def test_the_mend_of_a_repository_with_new_files_leaves_it_clean(
    project: Git, capsys: pytest.CaptureFixture[str]
) -> None:
    write(project.repo, {"solution.py": "x = 2\n", "new.txt": "new\n"})
    code, found = say_json(capsys, "plan")
    assert code == 5
    mend = found["error"]["mend"]
    assert mend[:2] == [["git", "add", "-A"], ["git", "commit", "-m", "before labmates"]]
    for argv in mend[:2]:
        git(project.repo, *argv[1:])
    assert say(capsys, "plan")[0] == 0


def test_approve_makes_the_goal_of_exactly_this_contract(
    project: Git,
    goal_id: str,
    store: str,
    client: redis.Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = snapshot(project.repo)
    planned = read_contract(project.repo)
    code, out, _ = say(capsys, "approve", planned.contract_hash[:8])
    assert code == 0
    assert out.splitlines()[-1] == f"Next: labmates up --goal-id {goal_id}"
    reader = Reader(client, goal_id)
    goal = reader.goal()
    assert goal["status"] == "approved"
    assert goal["contract_hash"] == planned.contract_hash
    assert {name: goal[name] for name in goal_numbers(planned.contract)} == goal_numbers(
        planned.contract
    )
    assert (goal["max_attempts"], goal["lease_ms"], goal["holdout_limit"]) == ("20", "30000", "40")
    assert "target_met" not in goal
    assert contract_of(reader) == planned.contract
    known = approval_of(reader)
    assert known is not None
    assert known[0] == operator_name()
    assert goal_id in client.smembers(keys.GOALS)
    assert repository_of(goal_id) == project.repo
    folder = labmates_home() / "goals" / goal_id
    assert sorted(path.name for path in folder.iterdir()) == ["goal.json", "labmates.toml"]
    assert (folder / "labmates.toml").read_text() == CONTRACT
    assert snapshot(project.repo) == before


@pytest.mark.parametrize("bench", ["print('nothing')\n", "print(float('nan'))\n", "1 / 0\n"])
def test_a_metric_without_a_number_is_not_approved_unless_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, goal_id: str, server_url: str, bench: str
) -> None:
    git = make_project(tmp_path / "sorter", bench__py=bench)
    monkeypatch.chdir(git.repo)
    digest = read_contract(git.repo, goal_id=goal_id).contract_hash
    arguments = ["approve", digest, "--goal-id", goal_id, "--store", server_url]
    assert run(arguments) == 5
    assert run([*arguments, "--unchecked"]) == 0


def test_the_same_contract_approved_again_says_so_and_changes_nothing(
    project: Git,
    goal_id: str,
    store: str,
    client: redis.Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    digest = read_contract(project.repo).contract_hash
    assert say(capsys, "approve", digest)[0] == 0
    revision = Reader(client, goal_id).goal()["rev"]
    code, out, _ = say(capsys, "approve", digest.upper())
    assert code == 0
    assert "was approved before" in out
    assert say_json(capsys, "approve", digest)[1]["approved"] == "before"
    assert Reader(client, goal_id).goal()["rev"] == revision


@pytest.mark.parametrize("text", ["", "b14a135", "nothexadecimal", "0" * 65])
def test_a_hash_that_is_none_is_wrong_usage(
    text: str, project: Git, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = say(capsys, "approve", text)
    assert code == 2
    assert "labmates plan" in err


def test_another_hash_is_refused_and_nothing_is_written(
    project: Git,
    goal_id: str,
    store: str,
    client: redis.Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    digest = read_contract(project.repo).contract_hash
    other = ("0" if digest[7] != "0" else "1").join((digest[:7], digest[8:]))
    code, _, err = say(capsys, "approve", other)
    assert code == 3
    assert f"now        {digest[:8]}" in err
    assert err.endswith("Nothing was written.\n")
    # a right beginning with a wrong end is another hash
    assert say(capsys, "approve", digest[:-1] + ("0" if digest[-1] != "0" else "1"))[0] == 3
    assert Reader(client, goal_id).goal() == {}
    assert not (labmates_home() / "goals").exists()


def test_a_changed_contract_is_refused_under_the_old_name_and_taken_under_a_new_one(
    project: Git,
    goal_id: str,
    store: str,
    client: redis.Redis,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = read_contract(project.repo)
    assert say(capsys, "approve", first.contract_hash)[0] == 0
    text = changed(("min_gain = 0.05", "min_gain = 0.02"))
    commit_files(project, {"labmates.toml": text})
    second = read_contract(project.repo)
    code, found = say_json(capsys, "approve", second.contract_hash)
    assert (code, found["error"]["code"]) == (3, "refused")
    assert found["error"]["details"]["approved"].startswith(first.contract_hash[:8])
    assert found["error"]["details"]["now"] == second.contract_hash[:8]
    assert (labmates_home() / "goals" / goal_id / "labmates.toml").read_text() == CONTRACT
    mend = found["error"]["mend"][0]
    assert mend == ["labmates", "plan", "--goal-id", f"{goal_id}-2"]
    code, found = say_json(capsys, *mend[1:])
    argv = ["approve", found["contract_hash"], "--goal-id", f"{goal_id}-2"]
    assert say(capsys, *argv)[0] == 0
    assert contract_of(Reader(client, f"{goal_id}-2")).evaluation.min_gain == 0.02
    assert contract_of(Reader(client, goal_id)) == first.contract


def test_the_hash_of_the_old_contract_is_refused_with_what_differs(
    project: Git, goal_id: str, store: str, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = read_contract(project.repo).contract_hash
    assert say(capsys, "approve", digest)[0] == 0
    commit_files(project, {"labmates.toml": changed(("min_gain = 0.05", "min_gain = 0.02"))})
    code, _, err = say(capsys, "approve", digest)
    assert code == 3
    assert "no longer the contract that was approved" in err


def test_a_void_approval_names_the_first_difference_and_its_line(
    project: Git, goal_id: str, client: redis.Redis
) -> None:
    planned = read_contract(project.repo)
    assert create_goal(Writer(client, goal_id), planned.contract, "operator:ops", project.repo)
    reader = Reader(client, goal_id)
    assert require_unchanged(reader, project.repo).contract == planned.contract
    commit_files(project, {"solution.py": "x = 9\n"})  # the person's own work goes on
    assert require_unchanged(reader, project.repo).contract == planned.contract
    (project.repo / "labmates.toml").write_text(changed(("min_gain = 0.05", "min_gain = 0.02")))
    with pytest.raises(RefusedError) as caught:
        require_unchanged(reader, project.repo)
    facts = caught.value.facts
    assert facts["approved"].startswith(f"{planned.contract_hash[:8]}  by ops, ")
    assert "differs in evaluation.min_gain: 0.05 -> 0.02\nlabmates.toml line 15" in facts["now"]
    assert caught.value.mend[0] == ["git", "checkout", "labmates.toml"]
    assert caught.value.tail == "Nothing was started."


def test_an_approval_that_was_cut_off_is_completed_by_the_next_one(
    project: Git, goal_id: str, client: redis.Redis
) -> None:
    contract = read_contract(project.repo).contract
    body = canonical(
        {"contract": contract.to_json_dict(), "contract_hash": contract.contract_hash()}
    )
    Writer(client, goal_id).create(
        operator="operator:ops",
        contract_hash=contract.contract_hash(),
        numbers=goal_numbers(contract),
        bodies=["{}", body],
    )
    assert Reader(client, goal_id).goal()["status"] == "created"
    assert create_goal(Writer(client, goal_id), contract, "operator:ops", project.repo)
    assert Reader(client, goal_id).goal()["status"] == "approved"
    assert repository_of(goal_id) == project.repo


def test_eight_approvals_at_once_make_one_goal(
    project: Git, goal_id: str, server_url: str, client: redis.Redis
) -> None:
    planned = read_contract(project.repo)

    def one(_: int) -> bool:
        with connect(server_url) as own:
            writer = Writer(own, goal_id)
            return create_goal(
                writer, planned.contract, "operator:ops", project.repo, contract_text=planned.text
            )

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(one, range(8))) == 1
    types = [fields["type"] for _, fields in Reader(client, goal_id).entries(Stream.OPERATOR)]
    assert types.count("approved") == 1
    folder = labmates_home() / "goals" / goal_id
    assert sorted(path.name for path in folder.iterdir()) == ["goal.json", "labmates.toml"]


def test_a_goal_without_a_target_counts_as_having_met_it(
    project: Git, goal_id: str, client: redis.Redis
) -> None:
    text = changed(
        ("target = 0.5\n", ""), ('driver = "patch"', 'driver = "patch"\nstop = "queue_empty"')
    )
    commit_files(project, {"labmates.toml": text})
    create_goal(
        Writer(client, goal_id), read_contract(project.repo).contract, "operator:o", project.repo
    )
    assert Reader(client, goal_id).goal()["target_met"] == "1"


def test_the_lease_of_a_goal_can_be_set_for_tests(
    project: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    contract = read_contract(project.repo).contract
    monkeypatch.setenv("LABMATES_LEASE_S", "0.5")
    assert goal_numbers(contract)["lease_ms"] == "500"
    for text in ("0", "-1", "soon", "nan", "inf"):
        monkeypatch.setenv("LABMATES_LEASE_S", text)
        with pytest.raises(UsageError, match="LABMATES_LEASE_S"):
            goal_numbers(contract)


def test_a_contract_event_that_was_altered_is_a_contradiction(
    project: Git, goal_id: str, client: redis.Redis
) -> None:
    create_goal(
        Writer(client, goal_id), read_contract(project.repo).contract, "operator:o", project.repo
    )
    client.hset(keys.goal(goal_id), "contract_hash", "0" * 64)
    with pytest.raises(RecordsError, match="is not the one whose hash the goal holds") as caught:
        contract_of(Reader(client, goal_id))
    assert caught.value.facts["event"]
    with pytest.raises(UsageError, match="no goal"):
        contract_of(Reader(client, f"{goal_id}-none"))


def test_a_repository_that_is_unknown_or_gone_is_a_missing_precondition(
    project: Git, goal_id: str, client: redis.Redis
) -> None:
    with pytest.raises(PreconditionError, match="does not know the repository"):
        repository_of(goal_id)
    create_goal(
        Writer(client, goal_id), read_contract(project.repo).contract, "operator:o", project.repo
    )
    project.repo.rename(project.repo.with_name("moved"))
    with pytest.raises(PreconditionError, match="is gone"):
        repository_of(goal_id)
    (labmates_home() / "goals" / goal_id / "goal.json").write_text("{")
    with pytest.raises(PreconditionError, match="cannot be read"):
        repository_of(goal_id)


def test_approve_without_a_store_is_exit_code_4(
    project: Git, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", "unix:///nonexistent/store.sock")
    digest = read_contract(project.repo).contract_hash
    code, _, err = say(capsys, "approve", digest)
    assert code == 4
    assert "/nonexistent/store.sock" in err


def test_the_installed_command_plans_from_a_folder_below_the_root(project: Git) -> None:
    command = Path(sys.executable).with_name("labmates")
    below = project.repo / "data"
    done = subprocess.run(
        [command, "plan"],
        cwd=below,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Next: labmates approve " in done.stdout
