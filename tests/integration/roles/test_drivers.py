"""The drivers files, patch and command, on real worktrees and real processes."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from contracts.errors import UsageError
from roles.drivers.base import DRIVERS, Brief, DriverStatus, get_driver
from roles.processes.process import EndedBy
from roles.workspace.git import Git
from roles.workspace.storing import write_tree
from tests.integration.roles.repositories import (
    commit_files,
    make_repository,
    raw_git,
    snapshot,
    write,
)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return make_repository(tmp_path / "repo")


@pytest.fixture
def change(tmp_path: Path) -> Path:
    folder = tmp_path / "change"
    folder.mkdir()
    return folder


def brief(git: Git, change_dir: Path | None = None, **more: object) -> Brief:
    fields: dict[str, object] = {
        "goal_id": "g",
        "hypothesis_id": "hyp_001",
        "attempt": 1,
        "title": "t",
        "hypothesis": "h \u00e9",
        "worktree": git.repo,
        "editable": ("solution.py",),
        "protected": ("eval/**",),
        "timeout_s": 20.0,
        "change_dir": change_dir,
    }
    return Brief(**{**fields, **more})  # type: ignore[arg-type] # fields of many types


def python(code: str) -> str:
    """Write a command line that runs Python code, without a shell to quote for."""
    return f"{sys.executable} -S -c '{code}'"


def test_an_unknown_driver_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(UsageError, match="'nope' is no driver; there are command, files, patch"):
        get_driver("nope")
    for name in DRIVERS:
        assert callable(get_driver(name).run)


def test_files_copies_new_and_changed_files_and_their_mode(git: Git, change: Path) -> None:
    write(change, {"solution.py": "fast", "deep/new/run.sh": "#!/bin/sh\n"})
    (change / "deep/new/run.sh").chmod(0o755)
    got = get_driver("files").run(brief(git, change))
    assert (got.status, got.summary) == (DriverStatus.CHANGED, "wrote deep/new/run.sh, solution.py")
    assert (git.repo / "solution.py").read_text() == "fast"
    assert os.access(git.repo / "deep/new/run.sh", os.X_OK)
    assert get_driver("files").run(brief(git, change)).status is DriverStatus.NO_CHANGE


def test_files_may_write_outside_the_editable_scope_for_the_check_to_catch(
    git: Git, change: Path
) -> None:
    write(change, {"eval/eval.py": "print(99)"})
    assert get_driver("files").run(brief(git, change)).status is DriverStatus.CHANGED
    assert (git.repo / "eval/eval.py").read_text() == "print(99)"


@pytest.mark.parametrize("target", ["../outside", "/tmp", "eval"])
def test_field_case_146_files_writes_through_no_link(
    target: str, git: Git, change: Path, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (git.repo / "src" / "l").symlink_to(target)
    write(change, {"src/l/x": "evil", "solution.py": "fast"})
    before = snapshot(tmp_path)
    got = get_driver("files").run(brief(git, change))
    assert got.status is DriverStatus.DRIVER_ERROR
    assert "src/l/x would be written through the link src/l" in got.summary
    assert snapshot(tmp_path) == before


def test_field_case_146_files_replaces_no_link_and_leaves_hard_links_alone(
    git: Git, change: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (git.repo / "solution.py").unlink()
    (git.repo / "solution.py").hardlink_to(outside)
    write(change, {"solution.py": "fast"})
    assert get_driver("files").run(brief(git, change)).status is DriverStatus.CHANGED
    assert outside.read_text() == "precious"
    (git.repo / "solution.py").unlink()
    (git.repo / "solution.py").symlink_to(tmp_path / "dangling")
    assert get_driver("files").run(brief(git, change)).status is DriverStatus.DRIVER_ERROR
    assert not (tmp_path / "dangling").exists()


def test_files_refuses_links_git_files_and_missing_folders(git: Git, change: Path) -> None:
    run = get_driver("files").run
    assert run(brief(git)).status is DriverStatus.DRIVER_ERROR
    assert run(brief(git, change / "gone")).status is DriverStatus.DRIVER_ERROR
    assert run(brief(git, change)).status is DriverStatus.NO_CHANGE
    write(change, {".git/hooks/post-checkout": "evil"})
    assert "git's own" in run(brief(git, change)).summary
    (change / ".git").rename(change.parent / "away")
    (change / "l").symlink_to("/etc/hosts")
    assert "holds a link: l" in run(brief(git, change)).summary
    (change / "l").unlink()
    write(change, {"solution.py/x": ""})
    assert run(brief(git, change)).summary == "solution.py is a file, not a folder"


PATCH = """\
--- a/solution.py
+++ b/solution.py
@@ -1 +1 @@
-print('slow')
+print('fast')
"""


def test_patch_applies_or_is_a_base_conflict_that_changes_nothing(git: Git, change: Path) -> None:
    run = get_driver("patch").run
    second = PATCH + "--- /dev/null\n+++ b/new\n@@ -0,0 +1 @@\n+x\n"
    write(change, {"change.patch": second})
    assert run(brief(git, change)).status is DriverStatus.CHANGED
    assert (git.repo / "solution.py").read_text() == "print('fast')\n"
    assert (git.repo / "new").read_text() == "x\n"
    (git.repo / "new").unlink()
    got = run(brief(git, change))
    assert got.status is DriverStatus.BASE_CONFLICT
    assert got.summary == "solution.py: patch does not apply"
    assert not (git.repo / "new").exists()


def test_patch_takes_a_difference_of_two_commits_with_binary_files(git: Git, change: Path) -> None:
    old = git.head()
    (git.repo / "data").write_bytes(bytes(range(256)))
    new = commit_files(git, {"solution.py": "fast"}, remove=("README.md",))
    raw_git(git.repo, "reset", "-q", "--hard", old)
    (change / "change.patch").write_bytes(git.diff_bytes(old, new))
    assert get_driver("patch").run(brief(git, change)).status is DriverStatus.CHANGED
    assert write_tree(git, old) == git.tree_of(new)


def test_patch_tells_an_empty_a_broken_and_a_missing_patch_apart(git: Git, change: Path) -> None:
    run = get_driver("patch").run
    assert run(brief(git)).status is DriverStatus.DRIVER_ERROR
    assert run(brief(git, change)).status is DriverStatus.DRIVER_ERROR
    write(change, {"change.patch": "\n"})
    assert run(brief(git, change)).status is DriverStatus.NO_CHANGE
    write(change, {"change.patch": "this is no patch"})
    assert run(brief(git, change)).status is DriverStatus.DRIVER_ERROR
    write(change, {"change.patch": PATCH.replace("@@ -1 +1 @@", "@@ -1,9 +1 @@")})
    assert run(brief(git, change)).status is DriverStatus.DRIVER_ERROR


@pytest.mark.parametrize("name", ["../outside", "src/l/x", ".git/hooks/post-checkout"])
def test_field_case_146_patch_writes_nothing_outside(
    name: str, git: Git, change: Path, tmp_path: Path
) -> None:
    (git.repo / "src" / "l").symlink_to(tmp_path)
    new = f"diff --git a/{name} b/{name}\nnew file mode 100644\n"
    write(change, {"change.patch": f"{new}--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"})
    before = snapshot(tmp_path)
    got = get_driver("patch").run(brief(git, change))
    assert got.status in {DriverStatus.BASE_CONFLICT, DriverStatus.DRIVER_ERROR}
    assert snapshot(tmp_path) == before


def test_patch_runs_no_planted_filter(git: Git, change: Path, tmp_path: Path) -> None:
    trap = tmp_path / "evil.sh"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    trap.chmod(0o755)
    raw_git(git.repo, "config", "filter.x.clean", str(trap))
    raw_git(git.repo, "config", "filter.x.smudge", str(trap))
    write(git.repo / ".git", {"info/attributes": "* filter=x\n"})
    write(change, {"change.patch": PATCH})
    assert get_driver("patch").run(brief(git, change)).status is DriverStatus.CHANGED
    assert not (tmp_path / "ran").exists()


def test_command_gets_the_brief_by_file_and_changes_the_worktree(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LABMATES_STORE_URL", "redis://:secret@host")
    code = (
        "import json, os; b = json.load(open(os.environ[\"LABMATES_BRIEF\"])); "
        "open(\"solution.py\", \"w\").write(b[\"hypothesis\"]); "
        "json.dump([b, dict(os.environ), os.getcwd()], open(os.environ[\"OUT\"], \"w\")); "
        "print(\"done it\")"
    )  # fmt: skip
    out, log = tmp_path / "out.json", tmp_path / "run.log"
    got = get_driver("command").run(
        brief(git, command=python(code), env={"OUT": str(out)}, log_path=log)
    )
    assert (got.status, got.summary, got.cost_usd) == (DriverStatus.CHANGED, "done it", 0.0)
    assert got.process is not None
    assert got.process.log_path == log
    assert log.read_text() == "done it\n"
    assert (git.repo / "solution.py").read_text() == "h \u00e9"
    paper, env, cwd = json.loads(out.read_text())
    assert cwd == str(git.repo)
    assert paper["editable"] == ["solution.py"]
    assert (paper["goal_id"], paper["attempt"]) == ("g", 1)
    assert {n for n in env if n.startswith("LABMATES_")} == {"LABMATES_BRIEF", "LABMATES_STEP"}
    assert not Path(env["LABMATES_BRIEF"]).exists()
    assert not Path(env["HOME"]).exists()


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("true", DriverStatus.NO_CHANGE),
        ("false", DriverStatus.CRASH),
        ("no-such-program", DriverStatus.CRASH),
        ("sh -c 'echo x > solution.py; exit 1'", DriverStatus.CRASH),
        ("sh -c 'kill -9 $$'", DriverStatus.CRASH),
        ("", DriverStatus.DRIVER_ERROR),
        ("echo 'open", DriverStatus.DRIVER_ERROR),
        ("-x", DriverStatus.DRIVER_ERROR),
        ("rm solution.py", DriverStatus.CHANGED),
        ("chmod +x solution.py", DriverStatus.CHANGED),
        ("cp -p README.md README.md.2", DriverStatus.CHANGED),
        ("sh -c 'echo x > .git/x'", DriverStatus.NO_CHANGE),
    ],
)
def test_a_commands_end_is_told_by_its_status(command: str, status: DriverStatus, git: Git) -> None:
    got = get_driver("command").run(brief(git, command=command))
    assert got.status is status
    assert got.summary


def test_a_command_is_read_by_no_shell(git: Git, tmp_path: Path) -> None:
    got = get_driver("command").run(brief(git, command=f"echo x; touch {tmp_path}/p $(touch p)"))
    assert got.summary == f"x; touch {tmp_path}/p $(touch p)"
    assert not (tmp_path / "p").exists()


def test_time_silence_and_stop_end_a_command(git: Git) -> None:
    run = get_driver("command").run
    late = run(brief(git, command="sleep 60", timeout_s=0.5))
    assert late.status is DriverStatus.TIMEOUT
    assert late.process is not None
    assert late.process.ended_by is EndedBy.TIMEOUT
    assert run(brief(git, command="sleep 60", silence_s=0.5)).status is DriverStatus.SILENT
    asked = threading.Event()
    asked.set()
    stopped = run(brief(git, command="sleep 60", stop=asked.is_set))
    assert stopped.status is DriverStatus.STOPPED
