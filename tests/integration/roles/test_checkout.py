"""Fresh checkouts: exactly the commit's files, with the protected ones of the approved base."""

import importlib.util
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from contracts.errors import MachineError, UsageError
from roles.workspace.checkout import checkout_fresh, uncommitted
from roles.workspace.git import Git
from roles.workspace.objects import changes_between, object_id, scope_digest
from tests.integration.roles.repositories import (
    FILES,
    commit_files,
    make_repository,
    raw_git,
    write,
)


@pytest.fixture
def git(tmp_path: Path) -> Git:
    return make_repository(tmp_path / "repo")


def names(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )


def commit_entries(git: Git, *entries: tuple[str, str, str]) -> str:
    """Make a commit of (mode, path, content) that no work tree could hold."""
    lines = []
    for mode, path, content in entries:
        oid = raw_git(git.repo, "hash-object", "-w", "--stdin", stdin=content)
        lines.append(f"{mode} {oid}\t{path}\n")
    index = git.repo.parent / "private-index"
    index.unlink(missing_ok=True)
    env = {"PATH": os.environ["PATH"], "GIT_INDEX_FILE": str(index)}
    text = "".join(lines).encode()
    update = ["git", "update-index", "--add", "--index-info"]
    subprocess.run(update, cwd=git.repo, env=env, input=text, check=True)
    done = subprocess.run(
        ["git", "write-tree"], cwd=git.repo, env=env, capture_output=True, check=True
    )
    return git.commit_tree(done.stdout.decode().strip(), git.head(), "made")


def rewrite(git: Git, oid: str, scratch: Path) -> None:
    """Write another object of the same kind over a loose one, under its old id."""
    kind = raw_git(git.repo, "cat-file", "-t", oid)
    other = make_repository(scratch / "other", {**FILES, "eval/eval.py": "print(99)\n"})
    names = {"commit": "HEAD", "blob": "HEAD:eval/eval.py"}
    is_root = raw_git(git.repo, "ls-tree", "--name-only", oid).count("\n") if kind == "tree" else 0
    tree = "HEAD^{tree}" if is_root else "HEAD:eval"
    wanted = raw_git(other.repo, "rev-parse", names.get(kind, tree))
    header = raw_git(other.repo, "cat-file", "-s", wanted).encode()
    content = other.out("cat-file", kind, wanted)
    place = git.repo / ".git" / "objects" / oid[:2] / oid[2:]
    place.unlink()
    place.write_bytes(zlib.compress(kind.encode() + b" " + header + b"\0" + content))


def test_a_checkout_holds_the_commits_files_and_nothing_else(git: Git, tmp_path: Path) -> None:
    (git.repo / "run.sh").write_text("#!/bin/sh\n")
    (git.repo / "run.sh").chmod(0o755)
    (git.repo / "inner").symlink_to("src/a.py")
    commit = commit_files(git, {"caf\u00e9 x": "\x00bytes", "empty": ""})
    write(git.repo, {"untracked": "u", "run.log": "ignored", "solution.py": "uncommitted"})
    dest = checkout_fresh(git, commit, tmp_path / "out", commit, [])
    assert names(dest) == sorted([*FILES, "run.sh", "inner", "caf\u00e9 x", "empty"])
    assert (dest / "solution.py").read_text() == "print('slow')\n"
    assert (dest / "inner").readlink() == Path("src/a.py")
    assert os.access(dest / "run.sh", os.X_OK)
    assert not os.access(dest / "solution.py", os.X_OK)
    assert not (dest / ".git").exists()
    assert uncommitted(git, dest, commit) == ()


def test_protected_files_come_from_the_base_and_new_ones_vanish(git: Git, tmp_path: Path) -> None:
    base = git.head()
    candidate = commit_files(
        git,
        {"eval/eval.py": "print(99)", "eval/extra.py": "x", "Eval/eval.py": "x", "src/b.py": "b"},
    )
    dest = checkout_fresh(git, candidate, tmp_path / "out", base, ["eval/**"])
    assert names(dest) == sorted([*FILES, "src/b.py"])
    assert (dest / "eval/eval.py").read_text() == "print(0.5)\n"


def test_deleted_and_renamed_protected_files_are_back(git: Git, tmp_path: Path) -> None:
    base = git.head()
    candidate = commit_files(git, {"src/moved.py": "print(0.5)\n"}, remove=("eval/eval.py",))
    dest = checkout_fresh(git, candidate, tmp_path / "out", base, ["eval"])
    assert (dest / "eval/eval.py").read_text() == "print(0.5)\n"
    assert (dest / "src/moved.py").exists()


@pytest.mark.parametrize("mode", ["100644", "120000"])
def test_a_file_or_link_in_place_of_a_protected_folder_gives_way(
    mode: str, git: Git, tmp_path: Path
) -> None:
    base = git.head()
    candidate = commit_entries(git, (mode, "eval", "src"), ("100644", "src/eval.py", "print(99)"))
    dest = checkout_fresh(git, candidate, tmp_path / "out", base, ["eval/**"])
    assert (dest / "eval/eval.py").read_text() == "print(0.5)\n"
    assert not (dest / "eval").is_symlink()


def test_a_folder_in_place_of_a_protected_file_gives_way(git: Git, tmp_path: Path) -> None:
    base = git.head()
    candidate = commit_entries(git, ("100644", "solution.py/__main__.py", "print(99)"))
    dest = checkout_fresh(git, candidate, tmp_path / "out", base, ["*.py"])
    assert (dest / "solution.py").read_text() == "print('slow')\n"


@pytest.mark.parametrize(
    "links",
    [
        {"src/l": "/etc/hosts"},
        {"src/l": "../../outside"},
        {"src/l": "/tmp/new-and-dangling"},
        {"p/q/d": "../..", "x/y/z/l": "../../../p/q/d/.."},
        {"a": "src", "l": "a/../../x"},
        {"l": ".."},
    ],
)
def test_field_case_146_a_link_that_leaves_the_tree_is_refused(
    links: dict[str, str], git: Git, tmp_path: Path
) -> None:
    entries = [("120000", path, target) for path, target in links.items()]
    candidate = commit_entries(git, ("100644", "src/a.py", "a"), *entries)
    with pytest.raises(UsageError, match="is a link that leaves the tree"):
        checkout_fresh(git, candidate, tmp_path / "out", git.head(), ["eval/**"])


@pytest.mark.parametrize("target", ["l", "../src/nothing", "a.py"])
def test_loops_and_dangling_links_inside_the_tree_are_written_as_they_are(
    target: str, git: Git, tmp_path: Path
) -> None:
    candidate = commit_entries(git, ("100644", "src/a.py", "a"), ("120000", "src/l", target))
    dest = checkout_fresh(git, candidate, tmp_path / "out", git.head(), [])
    assert os.readlink(dest / "src/l") == target  # noqa: PTH115 - Path would tidy the text


@pytest.mark.parametrize("bad", ["..", ".git", ".GIT"])
def test_a_tree_with_names_that_no_file_may_have_is_refused(
    bad: str, git: Git, tmp_path: Path
) -> None:
    inner = raw_git(git.repo, "hash-object", "-w", "--stdin", stdin="x")
    tree = raw_git(git.repo, "mktree", stdin=f"100644 blob {inner}\tfile\n")
    outer = raw_git(git.repo, "mktree", stdin=f"040000 tree {tree}\t{bad}\n")
    commit = git.commit_tree(outer, git.head(), "bad")
    with pytest.raises(UsageError, match="file"):
        checkout_fresh(git, commit, tmp_path / "out", git.head(), [])
    assert not (tmp_path / "file").exists()
    assert names(tmp_path / "out") == []


def test_a_folder_that_is_not_empty_is_refused(git: Git, tmp_path: Path) -> None:
    write(tmp_path / "out", {"result.json": "planted"})
    with pytest.raises(UsageError, match="is not empty"):
        checkout_fresh(git, git.head(), tmp_path / "out", git.head(), [])


def test_a_place_that_cannot_be_written_is_the_machines_failure(git: Git, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot be written"):
        checkout_fresh(git, git.head(), tmp_path / "file" / "out", git.head(), [])


def test_a_submodule_is_an_empty_folder(git: Git, tmp_path: Path) -> None:
    index = f"160000 commit {git.head()}\tsub\n"
    tree = raw_git(git.repo, "mktree", stdin=index)
    commit = git.commit_tree(tree, git.head(), "sub")
    dest = checkout_fresh(git, commit, tmp_path / "out", commit, [])
    assert list((dest / "sub").iterdir()) == []


def test_field_case_97_filters_and_replacements_do_not_reach_a_checkout(
    git: Git, tmp_path: Path
) -> None:
    commit = git.head()
    fake = raw_git(git.repo, "hash-object", "-w", "--stdin", stdin="print(99)\n")
    raw_git(git.repo, "replace", raw_git(git.repo, "rev-parse", "HEAD:eval/eval.py"), fake)
    raw_git(git.repo, "config", "filter.x.smudge", "sed s/0.5/99/")
    raw_git(git.repo, "config", "core.autocrlf", "true")
    write(git.repo / ".git", {"info/attributes": "*.py filter=x ident eol=crlf\n"})
    dest = checkout_fresh(git, commit, tmp_path / "out", commit, [])
    assert (dest / "eval/eval.py").read_bytes() == b"print(0.5)\n"
    raw_git(git.repo, "worktree", "add", "-q", str(tmp_path / "user"), commit)
    planted = (tmp_path / "user" / "eval" / "eval.py").read_bytes()
    assert planted != b"print(0.5)\n", "the traps are no traps"


def test_field_case_98_planted_bytecode_does_not_come_along(git: Git, tmp_path: Path) -> None:
    base = commit_files(git, {".gitignore": "__pycache__/\n", "score.py": "value = 0.5\n"})
    cached = Path(importlib.util.cache_from_source(str(git.repo / "score.py")))
    evil = tmp_path / "evil.py"
    evil.write_text("value = 99\n")
    script = (
        "import py_compile, sys; py_compile.compile(sys.argv[1], sys.argv[2], "
        "invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)"
    )
    subprocess.run([sys.executable, "-c", script, str(evil), str(cached)], check=True)

    def value(folder: Path) -> str:
        done = subprocess.run(
            [sys.executable, "-c", "import score; print(score.value)"],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout.strip()

    assert raw_git(git.repo, "status", "--porcelain") == ""
    assert value(git.repo) == "99", "the trap is no trap"
    assert value(checkout_fresh(git, base, tmp_path / "out", base, [])) == "0.5"


def test_field_case_92_what_git_hides_is_listed(git: Git) -> None:
    (git.repo / "l").symlink_to("src")
    commit = commit_files(git, {"mode": "m"})
    assert uncommitted(git, git.repo, commit) == ()
    raw_git(git.repo, "update-index", "--skip-worktree", "eval/eval.py")
    raw_git(git.repo, "update-index", "--assume-unchanged", "README.md")
    write(git.repo, {"eval/eval.py": "print(9.9)"})
    write(git.repo, {"README.md": "HELLO\n", "run.log": "x", "sub/conftest.py": "x"})
    (git.repo / "src/a.py").unlink()
    (git.repo / "mode").chmod(0o755)
    (git.repo / "l").unlink()
    (git.repo / "l").symlink_to("eval")
    assert uncommitted(git, git.repo, commit) == (
        "README.md", "eval/eval.py", "l", "mode", "run.log", "src/a.py", "sub/conftest.py"
    )  # fmt: skip


def test_an_objects_id_is_gits(git: Git) -> None:
    oid = raw_git(git.repo, "rev-parse", "HEAD:solution.py")
    assert object_id("blob", FILES["solution.py"].encode(), like=oid) == oid
    assert len(object_id("blob", b"", like="0" * 64)) == 64


@pytest.mark.parametrize("kind", ["commit", "tree", "subtree", "blob"])
def test_an_object_of_the_base_that_was_rewritten_under_its_id_is_named(
    kind: str, git: Git, tmp_path: Path
) -> None:
    base = git.head()
    candidate = commit_files(git, {"solution.py": "print('fast')\n"})
    name = {"commit": base, "tree": f"{base}^{{tree}}", "subtree": f"{base}:eval"}
    oid = raw_git(git.repo, "rev-parse", name.get(kind, f"{base}:eval/eval.py"))
    rewrite(git, oid, tmp_path)
    with pytest.raises(MachineError, match=oid) as caught:
        checkout_fresh(git, candidate, tmp_path / "out", base, ["eval/**"])
    assert caught.value.facts["object"] == oid
    if kind != "blob":
        with pytest.raises(MachineError, match=oid):
            changes_between(git, base, candidate)


def test_a_repository_with_longer_ids_is_verified_too(tmp_path: Path) -> None:
    raw_git(tmp_path, "init", "-q", "--object-format=sha256", "repo")
    git = Git(tmp_path / "repo")
    base = commit_files(git, FILES)
    assert len(base) == 64
    dest = checkout_fresh(git, base, tmp_path / "out", base, ["eval/**"])
    assert (dest / "eval" / "eval.py").read_text() == FILES["eval/eval.py"]
    oid = raw_git(git.repo, "rev-parse", f"{base}:eval")
    rewrite(git, oid, tmp_path)
    with pytest.raises(MachineError, match=oid):
        checkout_fresh(git, base, tmp_path / "again", base, ["eval/**"])


def test_protected_files_that_are_not_those_approved_are_refused(git: Git, tmp_path: Path) -> None:
    base = git.head()
    digest = scope_digest(git.list_tree(base), ("eval/**",))
    checkout_fresh(git, base, tmp_path / "out", base, ["eval/**"], scope_sha256=digest)
    other = commit_files(git, {"eval/eval.py": "print(99)\n"})
    with pytest.raises(MachineError, match="are not those approved"):
        checkout_fresh(git, base, tmp_path / "new", other, ["eval/**"], scope_sha256=digest)
