"""Worktrees of attempts: opened again after any crash, committed as one change, closed one by one.

They live in `LABMATES_HOME/worktrees/<goal>/<attempt>`, outside the repository, each on the branch
`labmates/<goal>/<hypothesis>/<attempt>`. What an attempt did there is read from its files alone:
its index, its own commits and where its HEAD points to decide nothing. Only a commit made by
`commit_change` or `replay` counts as the attempt's commit; its last line says so. The claim in the
store decides who may work here; a folder never does.
"""

import fcntl
import os
import re
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from contracts.errors import MachineError, PreconditionError, UsageError
from contracts.ids import HYPOTHESIS_ID_PATTERN, is_goal_id
from roles.workspace.git import Git
from roles.workspace.storing import write_tree

_TRAILER = "Labmates-Attempt"


@dataclass(frozen=True, kw_only=True)
class Worktree:
    """One attempt's worktree.

    Attributes:
        main: The user's repository.
        path: The worktree's root.
        branch: Without `refs/heads/`.
        base: The commit it starts from.
        committed: The attempt's commit, where an earlier half has made it.
        salvaged: The ref that holds edits which an earlier half left uncommitted, or None.
        admin: Its directory below `.git/worktrees`.
    """

    main: Git
    path: Path
    goal: str
    attempt: int
    branch: str
    base: str
    admin: Path
    committed: str | None = None
    salvaged: str | None = None

    @property
    def git(self) -> Git:
        """Git for this worktree, whatever its `.git` file says by now."""
        return Git(self.path, git_dir=self.admin)

    @property
    def ref(self) -> str:
        """The full name of the branch."""
        return f"refs/heads/{self.branch}"


def open_attempt(
    git: Git,
    home: Path,
    *,
    goal: str,
    hypothesis: str,
    attempt: int,
    base: str,
    keep_edits: bool = False,
) -> Worktree:
    """Open the worktree of an attempt on `base`, or repair what an earlier half left.

    Idempotent. Uncommitted edits of an earlier half go to the ref
    `refs/heads/labmates/<goal>/salvage/<attempt>`, then the files are those of the attempt's
    commit, or of `base`. A folder that is not ours is moved aside, never deleted. No other
    worktree is touched.

    Args:
        git: The user's repository.
        home: LABMATES_HOME.
        goal: The goal's id.
        hypothesis: The hypothesis' id.
        attempt: The attempt's number in the goal.
        base: The commit to start from.
        keep_edits: Give an intact worktree back as it is, for a lane that was taken over.

    Raises:
        UsageError: An id is no id, or `base` no commit.
        PreconditionError: A branch of another name stands in the way.
    """
    if not (is_goal_id(goal) and re.fullmatch(HYPOTHESIS_ID_PATTERN, hypothesis) and attempt > 0):
        message = f"{goal}/{hypothesis}/{attempt} names no attempt"
        raise UsageError(message)
    base = git.resolve(base)
    path = home.resolve() / "worktrees" / goal / str(attempt)
    found = Worktree(
        main=git,
        path=path,
        goal=goal,
        attempt=attempt,
        branch=f"labmates/{goal}/{hypothesis}/{attempt}",
        base=base,
        admin=Path(),
    )
    _require_free_name(found)
    committed = _commit_of_attempt(found)
    admin = _admin_dir(git, path)
    salvaged = None
    if admin is not None and _is_intact(path, admin):
        found = replace(found, admin=admin, committed=committed)
        if keep_edits:
            return found
        salvaged = _salvage(found)
    if admin is not None:
        _remove(git, path, admin)
    if path.is_symlink() or path.exists():
        _move_aside(path)
    # made by itself: `worktree add -b` may write the config, and leave a branch where it fails
    _settle_branch(found, committed)
    path.parent.mkdir(parents=True, exist_ok=True)
    reason = f"labmates: attempt {attempt} of {goal}"
    options = ["--lock", "--reason", reason]
    with _one_at_a_time(path):
        git.out("worktree", "add", *options, str(path), found.branch, calm=True)
    admin = _admin_dir(git, path)
    if admin is None:
        message = f"git made no worktree at {path}"
        raise MachineError(message)
    return replace(found, admin=admin, committed=committed, salvaged=salvaged)


def commit_change(worktree: Worktree, message: str) -> str | None:
    """Commit the files as they are on disk as one commit on the base; None where none differs.

    Commits that the attempt made by itself are flattened into it. Safe to call again.

    Raises:
        GitError: Git cannot store the files, as with a nested repository without a commit.
    """
    git = worktree.git
    tree = write_tree(git, worktree.base)
    if tree == git.tree_of(worktree.base):
        return None
    return _record(worktree, tree, message)


def replay(git: Git, worktree: Worktree, commit: str) -> str | None:
    """Put an attempt's commit on the worktree's base; None on a conflict, files restored.

    The result may hold no change at all, where the base has it already.
    """
    own = worktree.git
    own.out("reset", "--hard", "--quiet", worktree.base, calm=True)
    if not own.cherry_pick(commit):
        return None
    message = git.line("show", "--no-patch", "--format=%B", commit)
    plain = "\n".join(x for x in message.splitlines() if not x.startswith(f"{_TRAILER}:"))
    return _record(worktree, own.tree_of(own.head()), plain.strip())


def close(worktree: Worktree) -> None:
    """Remove the worktree and its entry; the branch stays. Safe to call again.

    Edits that no commit of the attempt holds go to its salvage ref first.
    """
    if worktree.path.is_dir() and _is_intact(worktree.path, worktree.admin):
        _salvage(replace(worktree, committed=_commit_of_attempt(worktree)))
    if worktree.path.is_symlink():
        _move_aside(worktree.path)
    admin = _admin_dir(worktree.main, worktree.path)
    if admin is not None:
        _remove(worktree.main, worktree.path, admin)


def _record(worktree: Worktree, tree: str, message: str) -> str:
    git = worktree.git
    text = f"{message.rstrip()}\n\n{_TRAILER}: {worktree.attempt}\n"
    commit = git.commit_tree(tree, worktree.base, text)
    git.update_ref(worktree.ref, commit)
    # for people who look inside; the attempt may have left a lock, so these may fail
    git.run("symbolic-ref", "HEAD", worktree.ref)
    git.run("read-tree", commit, calm=True)
    return commit


def _commit_of_attempt(worktree: Worktree) -> str | None:
    """Give the branch's commit if `_record` made it on this base."""
    git = worktree.main
    tip = git.refs(worktree.ref).get(worktree.ref)
    if tip is None or git.parent_of(tip) != worktree.base:
        return None
    last = git.line("show", "--no-patch", "--format=%B", tip).strip().splitlines()[-1:]
    return tip if last == [f"{_TRAILER}: {worktree.attempt}"] else None


def _settle_branch(worktree: Worktree, committed: str | None) -> None:
    """Make the branch point to the attempt's commit or the base; keep a tip that is neither."""
    git = worktree.main
    tip = git.refs(worktree.ref).get(worktree.ref)
    if tip is not None and tip not in {worktree.base, committed}:
        _keep(worktree, git.tree_of(tip), tip, "commits of an attempt that did not end")
    git.update_ref(worktree.ref, committed or worktree.base)


def _salvage(worktree: Worktree) -> str | None:
    """Keep uncommitted edits in a ref; where git cannot store them, move the folder aside."""
    git = worktree.git
    top = worktree.committed or worktree.base
    try:
        tree = write_tree(git, worktree.base)
    except (MachineError, UsageError):  # GitError is one: what git cannot store stays as files
        _move_aside(worktree.path)
        return None
    if tree in {git.tree_of(top), git.tree_of(worktree.base)}:
        return None
    return _keep(worktree, tree, top, "edits of an attempt that did not end")


def _keep(worktree: Worktree, tree: str, parent: str, why: str) -> str:
    """Commit a tree to the salvage ref, on top of what is salvaged there already."""
    git = worktree.main
    ref = f"refs/heads/labmates/{worktree.goal}/salvage/{worktree.attempt}"
    older = git.refs(ref).get(ref)
    if older is None or git.tree_of(older) != tree:
        extra = ["-p", older] if older else []
        text = f"{why}\n\n{worktree.branch}\n".encode()
        raw = git.out("commit-tree", "-p", parent, *extra, "-F", "-", tree, stdin=text)
        git.update_ref(ref, raw.decode("ascii").strip())
    return ref


def _require_free_name(worktree: Worktree) -> None:
    """Refuse where a ref makes our branch's name impossible, such as a branch `labmates`."""
    parts = worktree.ref.split("/")
    above = {"/".join(parts[:count]) for count in range(3, len(parts))}
    below = f"{worktree.ref}/"
    for name in worktree.main.refs("refs/heads/labmates"):
        if name in above or name.startswith(below):
            short = name.removeprefix("refs/heads/")
            message = f"the branch {short} stands in the way of {worktree.branch}"
            mend = [["git", "branch", "-m", short, short.replace("labmates", "my-labmates", 1)]]
            raise PreconditionError(message, mend=mend)


def _admin_dir(git: Git, path: Path) -> Path | None:
    """Find the entry below `.git/worktrees` that is registered for exactly this path."""
    for entry in (git.common_dir() / "worktrees").glob("*/gitdir"):
        try:
            target = Path(entry.read_text(encoding="utf-8").strip())
        except (OSError, UnicodeDecodeError):
            continue
        if target == path / ".git":
            return entry.parent
    return None


def _is_intact(path: Path, admin: Path) -> bool:
    """Tell whether the folder is the worktree that the entry means, and no stub or link."""
    pointer = path / ".git"
    if path.is_symlink() or pointer.is_symlink() or not pointer.is_file():
        return False
    text = pointer.read_text(encoding="utf-8", errors="replace").strip()
    return text == f"gitdir: {admin}" and (admin / "HEAD").is_file()


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Hold the lock of all our worktrees: git 2.39 reads entries that another add half wrote.

    The kernel ends the lock with its process, so it is never stale.
    """
    folder = path.parent.parent
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _remove(git: Git, path: Path, admin: Path) -> None:
    """Remove one worktree of ours; a folder that is no longer ours is moved aside first."""
    if path.is_symlink() or (path.exists() and not _is_intact(path, admin)):
        _move_aside(path)
    if path.exists():
        remove_tree(path)
    with _one_at_a_time(path):
        git.out("worktree", "remove", "--force", "--force", str(path), calm=True)


def _move_aside(path: Path) -> None:
    number = 1
    while (aside := path.with_name(f"{path.name}.aside-{number}")).is_symlink() or aside.exists():
        number += 1
    path.rename(aside)


def remove_tree(path: Path) -> None:
    """Delete a folder of ours without following links; folders without write permission too.

    Permissions change inside the folder only.
    """
    if path.is_symlink() or not path.is_dir():
        message = f"{path} is no folder of ours"
        raise MachineError(message)
    path.chmod(stat.S_IRWXU)
    for root, folders, _ in os.walk(path):
        for name in folders:
            folder = Path(root) / name
            if not folder.is_symlink():
                folder.chmod(stat.S_IRWXU)
    shutil.rmtree(path)
