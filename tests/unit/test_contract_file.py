"""labmates.toml: strict, normalized, and compared with its commit."""

from pathlib import Path

import pytest

from contracts.errors import PreconditionError, UsageError
from roles.goal.contract_file import PlannedContract, goal_id_of, read_contract
from roles.goal.contract_toml import line_of, parse_contract
from roles.workspace.scope import matches
from tests.contracts_on_disk import CONTRACT, FILES, changed, make_project
from tests.integration.roles.repositories import commit_files, make_repository, raw_git, write


def fault_of(text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        parse_contract(text.encode())
    assert caught.value.exit_code == 2
    return caught.value


def planned(path: Path, *edits: tuple[str, str], **files: str) -> PlannedContract:
    return read_contract(make_project(path / "sorter", contract=changed(*edits), **files).repo)


def test_defaults_are_filled_in_and_the_rest_is_as_written(tmp_path: Path) -> None:
    git = make_project(tmp_path / "My Sorter!")
    found = read_contract(git.repo)
    contract = found.contract
    assert contract.context.goal_id == "my-sorter"
    assert contract.base_commit == git.head()
    assert contract.evaluation.pairs == 8
    assert contract.policy.max_attempts == 20
    assert contract.holdout_limit == 40
    assert found.contract_hash == contract.contract_hash()
    assert found.editable_files == ("solution.py",)
    assert [entry.title for entry in found.queue] == ["Sort less."]
    assert found.warnings == ()


def test_contract_queue_changes_and_what_commands_name_are_always_protected(tmp_path: Path) -> None:
    edits = ('protected = ["bench.py", "data/**"]', "protected = []")
    found = planned(tmp_path, edits)
    protected = found.contract.context.protected
    for path in ("labmates.toml", "hypotheses.jsonl", "bench.py", "changes/01/solution.py"):
        assert matches(path, protected), path
    assert found.protected_files == ("bench.py", "hypotheses.jsonl", "labmates.toml")


def test_the_scope_digest_follows_protected_content_and_nothing_else(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter")
    first = read_contract(git.repo).contract.protected_scope_sha256
    commit_files(git, {"README.md": "other\n", "solution.py": "x = 2\n"})
    assert read_contract(git.repo).contract.protected_scope_sha256 == first
    commit_files(git, {"data/one.txt": "2\n"})
    assert read_contract(git.repo).contract.protected_scope_sha256 != first


def test_a_named_base_is_compared_and_the_work_tree_may_be_dirty(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter")
    before = read_contract(git.repo)
    commit_files(git, {"data/one.txt": "2\n"})
    write(git.repo, {"notes.txt": "draft\n"})
    after = read_contract(git.repo, base=before.contract.base_commit)
    assert after.contract_hash == before.contract_hash


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ("min_gain = 0.05", "min_gian = 0.05", 15, "evaluation.min_gian is no key"),
        ("[policy]", "[polcy]", 21, "polcy is no part of the file; is policy meant?"),
        ("timeout_s = 5", 'timeout_s = "5"', 7, "environment.timeout_s should be a valid number"),
        ("timeout_s = 5", "timeout_s = true", 7, "true and false are no numbers"),
        ("timeout_s = 5", "timeout_s = nan", 7, "finite number"),
        ("timeout_s = 5", "timeout_s = inf", 7, "finite number"),
        ("timeout_s = 5", "timeout_s = 0", 7, "environment.timeout_s should be greater than 0"),
        ("timeout_s = 5", "timeout_s = 2026-01-01", 7, "date or time"),
        ("max_attempts = 20", "max_attempts = 2.5", 22, "policy.max_attempts should be"),
        ("max_attempts = 20", "max_attempts = 0", 22, "greater than or equal to 1"),
        ("max_attempts = 20", "max_attempts = true", 22, "should be a valid integer, not true"),
        ('"minimize"', '"smaller"', 11, "evaluation.direction should be 'maximize' or 'minimize'"),
        ('metric = "seconds"\n', "", 9, "evaluation.metric is missing"),
        ('editable = ["solution.py"]', "editable = []", 3, "context.editable"),
        ('editable = ["solution.py"]', 'editable = "solution.py"', 3, "context.editable should be"),
        ("target = 0.5\n", "", None, "strategy.stop is 'target', but evaluation.target is missing"),
        ("target = 0.5", "target = 0.5\nbounds = [2, 1]", 15, "lower bound must be below"),
        ("[context]", "[context", 1, "is no TOML"),
        ("target = 0.5", "target = 0.5\ntarget = 0.6", 15, "is no TOML"),
        ("[context]", '[context]\ngoal_id = "x"', 2, "context.goal_id is no key"),
    ],
)
def test_a_fault_of_the_file_is_named_with_its_line(
    old: str, new: str, line: int | None, says: str
) -> None:
    found = fault_of(changed((old, new)))
    assert says in found.message
    assert found.facts["file"] == "labmates.toml"
    assert found.facts.get("line") == (None if line is None else str(line))
    assert found.hint


def test_all_faults_are_named_at_once_in_the_order_of_lines() -> None:
    found = fault_of(changed(("max_attempts = 20", "max_attempts = 0"), ("dev =", "deb =")))
    assert found.facts["line"] == "12"
    assert "evaluation.deb is no key" in found.message
    found = fault_of(
        changed(("max_attempts = 20", "max_attempts = 0"), ("timeout_s = 5", "timeout_s = 0"))
    )
    assert found.facts["line"] == "7"
    assert "line 22: policy.max_attempts" in found.facts["also"]


def test_a_file_that_is_not_utf8_is_named_with_its_line() -> None:
    with pytest.raises(UsageError, match="line 2 is not UTF-8"):
        parse_contract(b"[context]\n\xff = 1\n")


def test_lines_of_inline_and_dotted_keys_are_found() -> None:
    text = "[environment]\nenv = { A = '1' }\n[a.b]\nc.d = 3\n"
    assert line_of(text, ("environment", "env", "A")) == 2
    assert line_of(text, ("a", "b", "c", "d")) == 4
    assert line_of(text, ("environment", "python")) == 1
    assert line_of(text, ("policy",)) is None


def test_more_than_fifty_attempts_are_clamped_with_a_warning(tmp_path: Path) -> None:
    found = planned(tmp_path, ("max_attempts = 20", "max_attempts = 51"))
    assert found.contract.policy.max_attempts == 50
    (warning,) = found.warnings
    assert "labmates.toml line 22: policy.max_attempts 51" in warning


@pytest.mark.parametrize(
    ("old", "new", "line", "says"),
    [
        ('"data/**"', '"dta/**"', 4, "'dta/**' matches no file"),
        ('"solution.py"', '"src/*.py"', 3, "'src/*.py' matches no file"),
        ('"solution.py"', '"../x.py"', 3, "is no path inside the repository"),
        ('"solution.py"', '"bench.py"', 3, "'bench.py' matches is protected too"),
        (
            '"python bench.py --split dev"',
            '"python missing.py"',
            12,
            "runs missing.py, which is not",
        ),
        ('"python bench.py --split dev"', '"python bench.py | tee x"', 12, "needs a shell"),
        ('"python bench.py --split dev"', '"./bench.py"', 12, "does not hold as executable"),
        ('"hypotheses.jsonl"', '"queue.jsonl"', 18, "names queue.jsonl, which is not in the base"),
        ('"patch"', '"magic"', 19, "strategy.driver must be one of command, files, patch"),
        ('"patch"', '"command"', 19, "strategy.driver_command is empty"),
    ],
)
def test_a_contract_that_does_not_fit_its_commit_is_named_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, says: str
) -> None:
    with pytest.raises(UsageError) as caught:
        planned(tmp_path, (old, new))
    assert says in caught.value.message
    assert caught.value.facts["line"] == str(line)


def test_a_file_that_a_command_names_cannot_be_the_editable_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="protected too") as caught:
        planned(tmp_path, ("python bench.py --split dev", "python bench.py solution.py"))
    assert "evaluation.dev names it" in caught.value.hint


def test_protected_files_below_an_editable_glob_stay_protected_with_a_warning(
    tmp_path: Path,
) -> None:
    found = planned(tmp_path, ('editable = ["solution.py"]', 'editable = ["*.py"]'))
    assert found.editable_files == ("solution.py",)
    assert "bench.py" in found.protected_files
    assert "which stay protected: bench.py" in found.warnings[0]


def test_a_queue_line_that_does_not_validate_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"hypotheses\.jsonl line 1 is no JSON"):
        planned(tmp_path, hypotheses__jsonl="{\n")
    with pytest.raises(UsageError, match="no feasible hypothesis"):
        planned(tmp_path / "other", hypotheses__jsonl="\n")


def test_the_queue_is_read_from_the_commit_and_not_from_the_work_tree(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter")
    (git.repo / "hypotheses.jsonl").write_text("{ broken\n")
    found = read_contract(git.repo, base=git.head())
    assert len(found.queue) == 1


def test_each_missing_precondition_has_its_own_message_and_mend(tmp_path: Path) -> None:
    def refusal(folder: Path) -> PreconditionError:
        with pytest.raises(PreconditionError) as caught:
            read_contract(folder)
        assert caught.value.exit_code == 5
        return caught.value

    (tmp_path / "plain").mkdir()
    raw_git(tmp_path, "init", "-q", "--bare", "bare.git")
    raw_git(tmp_path, "init", "-q", "empty")
    seen = {
        "no folder": refusal(tmp_path / "nowhere"),
        "no repository": refusal(tmp_path / "plain"),
        "bare": refusal(tmp_path / "bare.git"),
        "no commit": refusal(tmp_path / "empty"),
        "no contract": refusal(make_repository(tmp_path / "none", FILES).repo),
    }
    git = make_repository(tmp_path / "new", FILES)
    write(git.repo, {"labmates.toml": CONTRACT})
    seen["uncommitted"] = refusal(git.repo)
    git = make_project(tmp_path / "edited")
    write(git.repo, {"labmates.toml": CONTRACT + "\n# more\n"})
    seen["edited"] = refusal(git.repo)
    git = make_project(tmp_path / "dirty")
    write(git.repo, {"solution.py": "x = 3\n", "notes.txt": "?\n"})
    seen["dirty"] = refusal(git.repo)
    git = make_project(tmp_path / "nopython", contract=CONTRACT.replace(
        "timeout_s = 5", 'python = "no-such-python"'))  # fmt: skip
    seen["no program"] = refusal(git.repo)
    messages = [error.message for error in seen.values()]
    assert len(set(messages)) == len(messages)
    assert all(error.mend or error.hint for error in seen.values())
    assert "no git repository" in seen["no repository"].message
    assert "bare" in seen["bare"].message
    assert "has no commit yet" in seen["no commit"].message
    assert seen["uncommitted"].message == "labmates.toml is not committed"
    assert seen["edited"].message == "labmates.toml has changes that are not committed"
    assert seen["dirty"].facts["files"] == "M solution.py\n? notes.txt"
    assert "'no-such-python' of evaluation.dev" in seen["no program"].message


def test_a_missing_git_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git = make_project(tmp_path / "sorter")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Exception, match="git") as caught:
        read_contract(git.repo)
    assert getattr(caught.value, "exit_code", None) == 5


@pytest.mark.parametrize(
    ("name", "goal_id"),
    [
        ("KNN Service", "knn-service"),
        ("--x--", "x"),
        ("été", "t"),
        ("…", "goal"),
        ("a" * 99, "a" * 63),
    ],
)
def test_a_folders_name_becomes_a_goal_id(name: str, goal_id: str) -> None:
    assert goal_id_of(Path("/somewhere") / name) == goal_id


def test_a_goal_id_that_cannot_name_a_goal_is_refused(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter")
    with pytest.raises(UsageError, match="cannot name a goal"):
        read_contract(git.repo, goal_id="../x")


def test_a_change_that_index_flags_hide_is_seen(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter")
    raw_git(git.repo, "update-index", "--assume-unchanged", "labmates.toml")
    write(git.repo, {"labmates.toml": changed(("min_gain = 0.05", "min_gain = 0.02"))})
    with pytest.raises(PreconditionError, match="has changes that are not committed"):
        read_contract(git.repo)


def test_a_contract_file_that_is_a_link_is_refused(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter")
    outside = tmp_path / "outside.toml"
    (git.repo / "labmates.toml").rename(outside)
    (git.repo / "labmates.toml").symlink_to(outside)
    commit_files(git, {})
    with pytest.raises(PreconditionError, match="is a link"):
        read_contract(git.repo)


def test_line_ends_of_another_system_are_no_change(tmp_path: Path) -> None:
    git = make_project(tmp_path / "sorter", __gitattributes="* text eol=crlf\n")
    raw_git(git.repo, "rm", "-q", "--cached", "-r", ".")
    raw_git(git.repo, "reset", "-q", "--hard")
    assert b"\r\n" in (git.repo / "labmates.toml").read_bytes()
    assert read_contract(git.repo).contract.base_commit == git.head()
