"""Worktrees of attempts on real repositories: crashes, strangers, conflicts, and no trace left."""

import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from contracts.errors import MachineError, PreconditionError, UsageError
from roles.workspace.git import Git
from roles.workspace.objects import changes_between
from roles.workspace.scope import check_scope
from roles.workspace.worktree import (
    Worktree,
    close,
    commit_change,
    open_attempt,
    remove_tree,
    replay,
)
from tests.integration.roles.repositories import (
    ENV,
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
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def open_one(git: Git, home: Path, attempt: int = 1, *, base: str = "HEAD") -> Worktree:
    return open_attempt(git, home, goal="g", hypothesis="hyp_001", attempt=attempt, base=base)


def text(worktree: Worktree, name: str = "solution.py") -> str:
    return (worktree.path / name).read_text()


def test_an_attempt_is_opened_changed_committed_and_closed(git: Git, home: Path) -> None:
    worktree = open_one(git, home)
    assert worktree.path == home / "worktrees" / "g" / "1"
    assert worktree.branch == "labmates/g/hyp_001/1"
    assert raw_git(worktree.path, "branch", "--show-current") == worktree.branch
    assert (worktree.committed, worktree.salvaged) == (None, None)
    assert commit_change(worktree, "nothing") is None
    write(worktree.path, {"solution.py": "fast", "new/file": "x", "run.log": "ignored"})
    commit = commit_change(worktree, "faster")
    assert commit is not None
    assert git.refs(worktree.ref) == {worktree.ref: commit}
    assert git.parent_of(commit) == worktree.base == git.head()
    names = [(c.status, c.path) for c in changes_between(git, worktree.base, commit)]
    assert names == [("A", "new/file"), ("M", "solution.py")]
    assert raw_git(worktree.path, "status", "--porcelain") == ""
    close(worktree)
    assert not worktree.path.exists()
    assert not worktree.admin.exists()
    assert git.refs(worktree.ref) == {worktree.ref: commit}
    close(worktree)


def test_the_users_repository_is_byte_identical_afterwards(git: Git, home: Path) -> None:
    raw_git(git.repo, "remote", "add", "origin", str(git.repo))
    raw_git(git.repo, "config", "branch.autoSetupMerge", "always")
    write(git.repo, {"run.log": "ignored", "staged": "1"})
    raw_git(git.repo, "add", "staged")
    write(git.repo, {"README.md": "not committed", "untracked": "u"})
    before = snapshot(git.repo)
    first = open_one(git, home)
    write(first.path, {"solution.py": "fast"})
    commit = commit_change(first, "faster")
    assert commit
    second = open_one(git, home, 2, base=commit)
    write(second.path, {"solution.py": "else"})
    open_one(git, home, 2)  # as after a crash: salvages
    assert replay(git, open_one(git, home, 3), commit)
    for worktree in (first, second, open_one(git, home, 3)):
        close(worktree)
    after = snapshot(git.repo)
    assert sorted(set(before) ^ set(after)) == []
    assert [name for name in before if before[name] != after[name]] == []
    assert list((git.repo / ".git" / "worktrees").glob("*")) == []
    assert len(git.refs("refs/heads/labmates")) == 4


@pytest.mark.parametrize(
    ("goal", "hypothesis", "attempt"),
    [("../x", "hyp_001", 1), ("g", "a/b", 1), ("g", "hyp_001", 0), ("--x", "hyp_001", 1),
     ("G", "hyp_001", 1), ("g", "hyp_001\n", 1), ("g", "", 1)],
)  # fmt: skip
def test_field_case_140_what_is_no_id_names_no_attempt(
    goal: str, hypothesis: str, attempt: int, git: Git, home: Path
) -> None:
    with pytest.raises(UsageError, match="names no attempt"):
        open_attempt(git, home, goal=goal, hypothesis=hypothesis, attempt=attempt, base="HEAD")
    assert not home.exists()


def test_field_case_64_a_branch_in_the_way_gives_one_clear_error_and_no_half_state(
    git: Git, home: Path
) -> None:
    raw_git(git.repo, "branch", "labmates")
    with pytest.raises(PreconditionError, match="the branch labmates stands in the way") as caught:
        open_one(git, home)
    assert caught.value.mend == [["git", "branch", "-m", "labmates", "my-labmates"]]
    assert not home.exists()
    subprocess.run(caught.value.mend[0], cwd=git.repo, env=ENV, check=True)
    assert open_one(git, home).path.is_dir()
    raw_git(git.repo, "branch", "labmates/g/hyp_001/7/mine")
    with pytest.raises(PreconditionError, match="labmates/g/hyp_001/7/mine stands in the way"):
        open_one(git, home, 7)


def test_field_case_64_other_names_of_the_user_are_no_hindrance(git: Git, home: Path) -> None:
    for name in ("g", "labmates-g", "labmates/other/x", "labmates/g/hyp_001/11"):
        raw_git(git.repo, "branch", name)
    assert open_one(git, home).path.is_dir()


def test_field_case_55_ten_at_once_from_a_tracking_branch_with_a_stale_config_lock(
    git: Git, home: Path
) -> None:
    raw_git(git.repo, "remote", "add", "origin", str(git.repo))
    raw_git(git.repo, "fetch", "-q", "origin")
    lock = git.repo / ".git" / "config.lock"
    lock.write_text("")
    with ThreadPoolExecutor(10) as pool:
        found = list(pool.map(lambda n: open_one(git, home, n, base="origin/main"), range(1, 11)))
    assert {worktree.path.name for worktree in found} == {str(n) for n in range(1, 11)}
    for worktree in found:
        assert raw_git(worktree.path, "branch", "--show-current") == worktree.branch
        write(worktree.path, {"solution.py": str(worktree.attempt)})
    with ThreadPoolExecutor(10) as pool:
        commits = list(pool.map(lambda w: commit_change(w, "x"), found))
    assert len(set(commits)) == 10
    assert None not in commits
    assert lock.exists()


def test_field_case_55_a_branch_without_a_folder_is_used(git: Git, home: Path) -> None:
    raw_git(git.repo, "branch", "labmates/g/hyp_001/1")
    assert text(open_one(git, home)) == "print('slow')\n"


def test_field_case_58_only_the_missing_worktree_is_repaired(git: Git, home: Path) -> None:
    other = open_one(git, home, 9)
    shutil.move(other.path, home / "unmounted")
    users = git.repo.parent / "users-own"
    raw_git(git.repo, "worktree", "add", "-q", str(users))
    shutil.move(users, home / "users-unmounted")
    first = open_one(git, home)
    shutil.rmtree(first.path)
    again = open_one(git, home)
    assert text(again) == "print('slow')\n"
    listed = raw_git(git.repo, "worktree", "list", "--porcelain")
    assert f"worktree {other.path}\n" in listed
    assert f"worktree {users}\n" in listed
    assert listed.count(f"worktree {again.path}\n") == 1


def test_field_case_59_a_folder_that_is_not_ours_is_moved_aside(git: Git, home: Path) -> None:
    path = home / "worktrees" / "g" / "1"
    write(path, {"x": "precious"})
    open_one(git, home)
    assert (path.with_name("1.aside-1") / "x").read_text() == "precious"
    shutil.rmtree(path)
    write(path, {"x": "precious too", ".git": "gitdir: /nowhere\n"})
    assert text(open_one(git, home)) == "print('slow')\n"
    assert (path.with_name("1.aside-2") / "x").read_text() == "precious too"


def test_field_case_61_a_folder_without_its_git_file_is_moved_aside_and_made_again(
    git: Git, home: Path
) -> None:
    worktree = open_one(git, home)
    write(worktree.path, {"solution.py": "edited"})
    (worktree.path / ".git").unlink()
    again = open_one(git, home)
    assert text(again) == "print('slow')\n"
    aside = worktree.path.with_name("1.aside-1")
    assert (aside / "solution.py").read_text() == "edited"
    close(again)
    assert aside.exists()


def test_field_case_61_a_git_file_that_points_elsewhere_decides_nothing(
    git: Git, home: Path, tmp_path: Path
) -> None:
    victim = make_repository(tmp_path / "victim")
    before = snapshot(victim.repo)
    worktree = open_one(git, home)
    write(worktree.path, {"solution.py": "fast", ".git": f"gitdir: {victim.repo}/.git\n"})
    commit = commit_change(worktree, "x")
    assert commit
    assert git.show(commit, "solution.py") == b"fast"
    close(worktree)
    assert snapshot(victim.repo) == before


def test_field_case_146_a_link_as_the_worktrees_root_is_not_followed(
    git: Git, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    write(target, {"precious": "1"})
    path = home / "worktrees" / "g" / "1"
    path.parent.mkdir(parents=True)
    path.symlink_to(target)
    worktree = open_one(git, home)
    assert not worktree.path.is_symlink()
    shutil.rmtree(worktree.path)
    worktree.path.symlink_to(target)
    close(worktree)
    assert not worktree.path.exists()
    assert sorted(p.name for p in target.iterdir()) == ["precious"]


def test_field_case_146_closing_follows_no_link_in_the_worktree(
    git: Git, home: Path, tmp_path: Path
) -> None:
    target = tmp_path / "target"
    write(target, {"deep/precious": "1"})
    worktree = open_one(git, home)
    (worktree.path / "l").symlink_to(target)
    locked = worktree.path / "locked" / "deep"
    locked.mkdir(parents=True)
    (locked / "f").write_text("x")
    locked.chmod(0o500)
    locked.parent.chmod(0o500)
    close(worktree)
    assert not worktree.path.exists()
    assert (target / "deep" / "precious").read_text() == "1"


def test_removing_a_tree_changes_nothing_beside_it(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    write(parent, {"tree/deep/x": "1", "target/x": "1", "file": "1"})
    parent.chmod(0o755)
    (parent / "target").chmod(0o755)
    (parent / "tree" / "l").symlink_to(parent / "target")
    (parent / "link").symlink_to(parent / "target")
    for wrong in ("gone", "file", "link"):
        with pytest.raises(MachineError, match="is no folder of ours"):
            remove_tree(parent / wrong)
    remove_tree(parent / "tree")
    assert sorted(path.name for path in parent.iterdir()) == ["file", "link", "target"]
    assert (parent / "target" / "x").exists()
    assert (parent.stat().st_mode & 0o777, (parent / "target").stat().st_mode & 0o777) == (
        0o755,
        0o755,
    )


def test_folders_without_write_permission_are_removed_for_any_user(tmp_path: Path) -> None:
    root = tmp_path / "a"
    write(root, {"b/f": "x", "b/c/f": "x"})
    for folder, mode in (("b/c", 0), ("b", 0), (".", 0o500)):
        (root / folder).chmod(mode)
    # root without these two capabilities is bound by modes, as any other user is
    script = (
        "import ctypes, os, sys\n"
        "if os.geteuid() == 0:\n"
        "    for capability in (1, 2): ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)\n"
        "os.execv(sys.executable, [sys.executable, '-c', sys.argv[1], sys.argv[2]])\n"
    )
    work = (
        "import pathlib, sys; from roles.workspace.worktree import remove_tree\n"
        "root = pathlib.Path(sys.argv[1])\n"
        "try: (root / 'new').mkdir()\n"
        "except PermissionError: remove_tree(root)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, work, str(root)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not root.exists()


def test_a_commit_that_an_earlier_half_made_is_given_back(git: Git, home: Path) -> None:
    first = open_one(git, home)
    write(first.path, {"solution.py": "fast"})
    commit = commit_change(first, "faster")
    again = open_one(git, home)
    assert again.committed == commit
    assert again.salvaged is None
    assert text(again) == "fast"
    shutil.rmtree(first.path)
    assert open_one(git, home).committed == commit


def test_uncommitted_edits_of_a_dead_attempt_are_salvaged_each_time(git: Git, home: Path) -> None:
    ref = "refs/heads/labmates/g/salvage/1"
    first = open_one(git, home)
    write(first.path, {"solution.py": "half", "new": "n"})
    again = open_one(git, home)
    assert again.salvaged == ref
    assert again.committed is None
    assert text(again) == "print('slow')\n"
    assert not (again.path / "new").exists()
    assert git.show(git.resolve(ref), "solution.py") == b"half"
    write(again.path, {"solution.py": "quarter"})
    open_one(git, home)
    assert git.show(git.resolve(ref), "solution.py") == b"quarter"
    assert git.show(git.resolve(f"{ref}^2"), "solution.py") == b"half"
    assert open_one(git, home).salvaged is None


def test_commits_that_the_attempt_made_itself_are_no_result_but_are_kept(
    git: Git, home: Path
) -> None:
    worktree = open_one(git, home)
    write(worktree.path, {"solution.py": "wip"})
    raw_git(worktree.path, "commit", "-q", "-am", "wip")
    again = open_one(git, home)
    assert again.committed is None
    assert text(again) == "print('slow')\n"
    assert git.refs(again.ref)[again.ref] == again.base
    assert git.show(git.resolve("refs/heads/labmates/g/salvage/1"), "solution.py") == b"wip"


def test_commits_branches_and_locks_of_the_attempt_do_not_hinder_the_commit(
    git: Git, home: Path
) -> None:
    worktree = open_one(git, home)
    write(worktree.path, {"solution.py": "one"})
    raw_git(worktree.path, "commit", "-q", "-am", "wip")
    raw_git(worktree.path, "checkout", "-q", "-b", "agents-own")
    write(worktree.path, {"solution.py": "two"})
    (worktree.admin / "index.lock").write_text("")
    commit = commit_change(worktree, "x")
    assert commit
    assert git.parent_of(commit) == worktree.base
    assert git.show(commit, "solution.py") == b"two"
    assert git.refs(worktree.ref) == {worktree.ref: commit}
    assert open_one(git, home).committed == commit


def test_an_intact_worktree_is_kept_as_it_is_where_asked(git: Git, home: Path) -> None:
    worktree = open_one(git, home)
    write(worktree.path, {"solution.py": "by hand"})
    kept = open_attempt(
        git, home, goal="g", hypothesis="hyp_001", attempt=1, base="HEAD", keep_edits=True
    )
    assert text(kept) == "by hand"
    assert commit_change(kept, "x")


def test_field_case_92_flags_and_excludes_of_the_index_hide_nothing_from_the_commit(
    git: Git, home: Path
) -> None:
    worktree = open_one(git, home)
    raw_git(worktree.path, "update-index", "--skip-worktree", "eval/eval.py")
    raw_git(worktree.path, "update-index", "--assume-unchanged", "README.md")
    info = git.repo / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "exclude").write_text("conftest.py\n")
    write(worktree.path, {"eval/eval.py": "print(99)", "README.md": "x", "conftest.py": "x"})
    assert raw_git(worktree.path, "status", "--porcelain") == ""
    commit = commit_change(worktree, "x")
    assert commit
    changes = changes_between(git, worktree.base, commit)
    report = check_scope(changes, ["solution.py"], ["eval/"])
    assert [v.path for v in report.violations] == ["README.md", "conftest.py", "eval/eval.py"]


def test_replay_puts_the_change_on_a_moved_champion(git: Git, home: Path) -> None:
    first = open_one(git, home)
    write(first.path, {"src/a.py": "a = 2\n"})
    commit = commit_change(first, "mine\n\nwhy")
    assert commit
    moved = commit_files(git, {"solution.py": "print('fast')\n"})
    second = open_one(git, home, 2, base=moved)
    result = replay(git, second, commit)
    assert result
    assert git.parent_of(result) == moved
    assert [c.path for c in changes_between(git, moved, result)] == ["src/a.py"]
    message = raw_git(git.repo, "log", "-1", "--format=%B", result)
    assert message == "mine\n\nwhy\n\nLabmates-Attempt: 2"
    assert open_one(git, home, 2, base=moved).committed == result
    assert replay(git, second, commit)


def test_a_replay_that_conflicts_restores_the_files(git: Git, home: Path) -> None:
    first = open_one(git, home)
    write(first.path, {"solution.py": "mine\n"})
    commit = commit_change(first, "mine")
    assert commit
    moved = commit_files(git, {"solution.py": "theirs\n"})
    second = open_one(git, home, 2, base=moved)
    assert replay(git, second, commit) is None
    assert text(second) == "theirs\n"
    assert raw_git(second.path, "status", "--porcelain") == ""
    assert git.refs(second.ref) == {second.ref: moved}


def test_a_replay_of_what_the_base_has_already_is_a_commit_without_a_change(
    git: Git, home: Path
) -> None:
    first = open_one(git, home)
    write(first.path, {"solution.py": "same\n"})
    commit = commit_change(first, "mine")
    assert commit
    moved = commit_files(git, {"solution.py": "same\n"})
    result = replay(git, open_one(git, home, 2, base=moved), commit)
    assert result
    assert git.tree_of(result) == git.tree_of(moved)


def test_a_nested_repository_shows_as_a_violation(git: Git, home: Path) -> None:
    worktree = open_one(git, home)
    make_repository(worktree.path / "src" / "nested")
    commit = commit_change(worktree, "x")
    assert commit
    report = check_scope(changes_between(git, worktree.base, commit), ["src/"], [])
    assert [(v.path, v.why) for v in report.violations] == [("src/nested", "is a submodule")]


def test_what_git_cannot_store_is_moved_aside_whole(git: Git, home: Path) -> None:
    worktree = open_one(git, home)
    raw_git(worktree.path, "init", "-q", "nested")
    again = open_one(git, home)
    assert text(again) == "print('slow')\n"
    assert (worktree.path.with_name("1.aside-1") / "nested").is_dir()
