"""The git wrapper on real repositories, planted traps included."""

import subprocess
from pathlib import Path

import pytest

from contracts.errors import PreconditionError, UsageError
from roles.workspace.git import Git, GitError
from roles.workspace.objects import changes_between, reading
from roles.workspace.repository import machinery, open_repository, require_clean
from roles.workspace.scope import Change
from roles.workspace.storing import write_tree
from tests.integration.roles.repositories import (
    ENV,
    FILES,
    commit_files,
    make_repository,
    raw_git,
    snapshot,
    write,
)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return make_repository(tmp_path / "repo")


def test_reading_a_commit(git: Git) -> None:
    first = git.head()
    assert first == raw_git(git.repo, "rev-parse", "HEAD")
    assert git.resolve("main") == git.resolve(first[:10]) == first
    assert git.tree_of(first) == raw_git(git.repo, "rev-parse", "HEAD^{tree}")
    assert git.parent_of(first) is None
    assert git.show(first, "eval/eval.py") == b"print(0.5)\n"
    entries = git.list_tree(first)
    assert [entry.path for entry in entries] == sorted(FILES)
    assert {entry.mode for entry in entries} == {"100644"}
    with reading(git) as objects:
        assert [entry._replace(size=-1) for entry in entries] == objects.tree(first)
        blobs = {entry.path: objects.read(entry.oid, "blob").decode() for entry in entries}
    assert blobs == FILES
    assert [len(blobs[entry.path]) for entry in entries] == [entry.size for entry in entries]
    second = commit_files(git, {"new": ""})
    assert git.parent_of(second) == first
    assert git.has_commit(first)
    assert not git.has_commit("0" * 40)
    with pytest.raises(GitError, match="cat-file"):
        git.show(first, "new")


def test_differences_name_status_modes_and_both_sides_of_a_rename(git: Git) -> None:
    old = git.head()
    (git.repo / "README.md").rename(git.repo / "READ ME \u00e9.md")
    (git.repo / "src" / "a.py").chmod(0o755)
    (git.repo / "l").symlink_to("/etc/hosts")
    new = commit_files(git, {"solution.py": "print('fast')\n"}, remove=("eval/eval.py",))
    zero, plain = "000000", "100644"
    assert changes_between(git, old, new) == [
        Change(status="A", path="READ ME \u00e9.md", old_mode=zero),
        Change(status="D", path="README.md", new_mode=zero),
        Change(status="D", path="eval/eval.py", old_mode=plain, new_mode=zero),
        Change(status="A", path="l", old_mode=zero, new_mode="120000"),
        Change(status="M", path="solution.py"),
        Change(status="M", path="src/a.py", old_mode=plain, new_mode="100755"),
    ]
    assert b"+print('fast')" in git.diff_bytes(old, new)
    assert git.diff_stat(old, new) == (6, 3, 3)
    assert changes_between(git, old, old) == []


@pytest.mark.parametrize(
    "name",
    ["--upload-pack=touch p", "-b", "$(touch p)", "`touch p`", "a;touch p", "../../x", "@{-1}",
     "", "a\nb", "nope", "HEAD:README.md"],
)  # fmt: skip
def test_field_case_140_a_name_never_becomes_an_option_or_shell_text(name: str, git: Git) -> None:
    before = snapshot(git.repo)
    with pytest.raises(UsageError):
        git.resolve(name)
    with pytest.raises(UsageError):
        git.update_ref(name, git.head())
    with pytest.raises(UsageError):
        git.update_ref(f"refs/heads/labmates/{name or '.'}/../x", git.head())
    with pytest.raises(UsageError):
        changes_between(git, name, git.head())
    assert snapshot(git.repo) == before
    assert not (git.repo / "p").exists()


def test_a_ref_moves_only_from_where_it_is_expected_and_only_below_ours(git: Git) -> None:
    ref = "refs/heads/labmates/g/champion"
    first = git.head()
    second = commit_files(git, {"new": "x"})
    assert git.update_ref(ref, first, "")
    assert not git.update_ref(ref, second, "")
    assert not git.update_ref(ref, second, second)
    assert git.refs("refs/heads/labmates/g") == {ref: first}
    assert git.update_ref(ref, second, first)
    assert git.refs("refs/heads/labmates") == {ref: second}
    with pytest.raises(UsageError, match="no ref of labmates"):
        git.update_ref("refs/heads/main", first)
    with pytest.raises(GitError):
        git.update_ref("refs/heads/labmates/g/champion/below", first)


def test_a_tree_takes_new_changed_and_deleted_files(git: Git) -> None:
    before = git.head()
    assert write_tree(git, before) == git.tree_of(before)
    write(git.repo, {"new/x": "1", "solution.py": "2", "a.log": "ignored"})
    (git.repo / "README.md").unlink()
    commit = git.commit_tree(write_tree(git, before), before, "change")
    assert [(c.status, c.path) for c in changes_between(git, before, commit)] == [
        ("D", "README.md"), ("A", "new/x"), ("M", "solution.py")
    ]  # fmt: skip
    assert raw_git(git.repo, "log", "-1", "--format=%an <%ae> %cn %s", commit) == (
        "labmates <labmates@localhost> labmates change"
    )


def test_cherry_pick_applies_or_leaves_everything_as_it_was(git: Git) -> None:
    base = git.head()
    change = commit_files(git, {"solution.py": "print('fast')\n"})
    raw_git(git.repo, "reset", "-q", "--hard", base)
    commit_files(git, {"README.md": "other\n"})
    assert git.cherry_pick(change)
    assert git.show(git.head(), "solution.py") == b"print('fast')\n"
    raw_git(git.repo, "reset", "-q", "--hard", base)
    commit_files(git, {"solution.py": "print('else')\n"})
    before = snapshot(git.repo)["solution.py"]
    head = git.head()
    assert not git.cherry_pick(change)
    assert git.head() == head
    assert git.is_clean()
    assert snapshot(git.repo)["solution.py"] == before
    assert not (git.repo / ".git" / "CHERRY_PICK_HEAD").exists()


def test_dirty_files_are_named_with_marks_and_mends(git: Git) -> None:
    assert git.is_clean()
    require_clean(git)
    write(git.repo, {"solution.py": "x", "notes with space.txt": "", "a.log": "ignored"})
    (git.repo / "README.md").unlink()
    expected = [("D", "README.md"), ("M", "solution.py"), ("?", "notes with space.txt")]
    assert git.dirty_files() == expected
    with pytest.raises(PreconditionError, match="has changes that are not committed") as caught:
        require_clean(git)
    assert caught.value.facts["files"].splitlines()[1] == "M solution.py"
    assert ["git", "stash", "-u"] in caught.value.mend
    assert caught.value.exit_code == 5


def test_the_users_own_ignore_file_counts(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    write(home, {".gitconfig": "[core]\n excludesFile = ~/ignored\n", "ignored": ".idea\n"})
    monkeypatch.setenv("HOME", str(home))
    write(git.repo, {".idea": "x"})
    assert git.is_clean()


def test_what_is_no_usable_repository_is_a_precondition_with_a_mend(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="is no folder"):
        open_repository(tmp_path / "gone")
    (tmp_path / "plain").mkdir()
    with pytest.raises(PreconditionError, match="is no git repository") as caught:
        open_repository(tmp_path / "plain")
    assert caught.value.mend[0][-1] == "init"
    raw_git(tmp_path, "init", "-q", "--bare", "bare.git")
    with pytest.raises(PreconditionError, match="is a bare repository"):
        open_repository(tmp_path / "bare.git")
    raw_git(tmp_path, "init", "-q", "empty")
    with pytest.raises(PreconditionError, match="has no commit yet") as caught:
        open_repository(tmp_path / "empty")
    assert caught.value.mend[-1][:2] == ["git", "commit"]


def test_a_repository_is_found_from_below_and_a_linked_worktree_is_one(git: Git) -> None:
    assert open_repository(git.repo / "src").repo == git.repo
    linked = git.repo.parent / "linked"
    raw_git(git.repo, "worktree", "add", "-q", str(linked))
    found = open_repository(linked)
    assert found.repo == linked
    assert found.common_dir() == git.repo / ".git"


def test_field_case_61_a_stub_folder_never_means_its_parent(git: Git) -> None:
    stub = git.repo / "wt" / "T1"
    stub.mkdir(parents=True)
    with pytest.raises(GitError):
        Git(stub).out("status")


def test_field_case_67_git_variables_of_the_caller_reach_no_child(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = make_repository(tmp_path / "canary", {"c": "1"})
    before = snapshot(canary.repo)
    monkeypatch.setenv("GIT_DIR", str(canary.repo / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(canary.repo))
    monkeypatch.setenv("GIT_INDEX_FILE", str(canary.repo / ".git" / "index"))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "core.bare")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "true")
    write(git.repo, {"solution.py": "changed"})
    assert git.dirty_files() == [("M", "solution.py")]
    commit = git.commit_tree(write_tree(git, git.head()), git.head(), "mine")
    assert git.show(commit, "solution.py") == b"changed"
    assert snapshot(canary.repo) == before


def plant(git: Git, marker: Path) -> None:
    """Set every trap that an attempt can set in the shared git directory."""
    trap = git.repo.parent / "evil.sh"
    trap.write_text(f"#!/bin/sh\necho $0 $* >> {marker}\ncat 2>/dev/null\nexit 0\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "diff.external", "core.editor", "diff.x.textconv",
                "filter.x.clean", "filter.x.smudge", "filter.a=b.c.smudge", "filter.x.process",
                "alias.status", "alias.ls-tree", "gpg.program", "core.sshCommand",
                "diff.x.command"):  # fmt: skip
        raw_git(git.repo, "config", key, str(trap))
    raw_git(git.repo, "config", "merge.x.driver", f"{trap} %A")
    raw_git(git.repo, "config", "commit.gpgSign", "true")
    raw_git(git.repo, "config", "filter.x.required", "true")
    (git.repo / ".git" / "info").mkdir(exist_ok=True)
    (git.repo / ".git" / "info" / "attributes").write_text("* filter=x diff=x merge=x\n")
    for name in ("post-checkout", "pre-commit", "post-commit", "reference-transaction",
                 "post-index-change", "post-merge", "commit-msg", "prepare-commit-msg"):  # fmt: skip
        hook = git.repo / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(trap.read_text())
        hook.chmod(0o755)


def test_field_case_71_nothing_planted_runs_in_our_calls(git: Git, tmp_path: Path) -> None:
    base = git.head()
    change = commit_files(git, {"solution.py": "print('fast')\n"})
    other = commit_files(git, {"README.md": "two\n"})
    marker = tmp_path / "ran"
    clean = machinery(git)
    plant(git, marker)
    now = machinery(git)
    touched = {Path(name).name for name in now if now[name] != clean.get(name)}
    assert {"config", "attributes", "post-checkout"} <= touched
    write(git.repo, {"src/a.py": "a = 2\n"})
    assert git.dirty_files() == [("M", "src/a.py")]
    assert write_tree(git, git.head()) != git.tree_of(git.head())
    git.diff_bytes(base, other)
    changes_between(git, base, other)
    git.list_tree(base)
    git.show(base, "solution.py")
    git.out("worktree", "add", "--detach", str(tmp_path / "wt"), base, calm=True)
    inside = Git(tmp_path / "wt")
    assert inside.cherry_pick(change)
    assert inside.is_clean()
    git.update_ref("refs/heads/labmates/g/x", change)
    assert not marker.exists(), marker.read_text()
    subprocess.run(["git", "status"], cwd=git.repo, env=ENV, capture_output=True, check=False)
    assert marker.exists(), "the traps are no traps"


def test_a_planted_merge_driver_makes_a_conflict_and_never_decides(
    git: Git, tmp_path: Path
) -> None:
    base = git.head()
    change = commit_files(git, {"solution.py": "print('fast')\n"})
    raw_git(git.repo, "reset", "-q", "--hard", base)
    commit_files(git, {"solution.py": "print('else')\n"})
    plant(git, tmp_path / "ran")
    assert not git.cherry_pick(change)
    assert not (tmp_path / "ran").exists()


def test_field_case_97_replacements_and_filters_do_not_change_what_a_commit_says(
    git: Git, tmp_path: Path
) -> None:
    commit = git.head()
    before = machinery(git)
    fake = raw_git(git.repo, "hash-object", "-w", "--stdin", stdin="print(99)\n")
    real = raw_git(git.repo, "rev-parse", "HEAD:eval/eval.py")
    raw_git(git.repo, "replace", real, fake)
    assert raw_git(git.repo, "show", "HEAD:eval/eval.py") == "print(99)"
    assert git.show(commit, "eval/eval.py") == b"print(0.5)\n"
    git.out("worktree", "add", "--detach", str(tmp_path / "wt"), commit, calm=True)
    assert (tmp_path / "wt" / "eval" / "eval.py").read_text() == "print(0.5)\n"
    assert set(machinery(git)) - set(before) == {f"refs/replace/{real}"}


def test_field_case_68_a_commit_with_our_ref_survives_collection(git: Git) -> None:
    base = git.head()
    write(git.repo, {"solution.py": "fast"})
    kept = git.commit_tree(write_tree(git, base), base, "kept")
    write(git.repo, {"solution.py": "lost"})
    lost = git.commit_tree(write_tree(git, base), base, "lost")
    git.update_ref("refs/heads/labmates/g/hyp_001/1", kept)
    raw_git(git.repo, "reflog", "expire", "--expire=now", "--all")
    raw_git(git.repo, "gc", "-q", "--prune=now")
    assert git.has_commit(kept)
    assert not git.has_commit(lost)


def test_no_transport_is_allowed(git: Git, tmp_path: Path) -> None:
    with pytest.raises(GitError, match="not allowed"):
        git.out("fetch", str(git.repo), "main")
    with pytest.raises(GitError, match="not allowed"):
        git.out("clone", f"ext::sh -c 'touch {tmp_path}/p'", str(tmp_path / "c"))
    assert not (tmp_path / "p").exists()
