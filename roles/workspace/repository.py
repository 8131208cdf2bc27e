"""What the user's repository must be before work starts, and what steers git in it."""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path

from contracts.errors import PreconditionError, UsageError
from roles.workspace.git import Git


def open_repository(path: Path) -> Git:
    """Open the repository whose work tree holds `path`.

    Raises:
        PreconditionError: There is none, it is bare, it has no commit, or git refuses it.
    """
    if not path.is_dir():
        message = f"{shown(path)} is no folder"
        raise PreconditionError(message, hint="name the folder of a git repository")
    probe = Git(path)
    done = probe.run(
        "rev-parse", "--is-bare-repository", "--show-toplevel",
        env={"GIT_CEILING_DIRECTORIES": ""},
    )  # fmt: skip
    lines = os.fsdecode(done.stdout).splitlines()
    stderr = done.stderr.decode(errors="replace")
    if "dubious ownership" in stderr:
        message = f"{shown(path)} belongs to another user, so git refuses it"
        raise PreconditionError(message, hint="run labmates as the owner of the repository")
    if lines[:1] == ["true"]:
        message = f"{shown(path)} is a bare repository; labmates needs one with files"
        raise PreconditionError(message, mend=[["git", "clone", str(path), f"{path.name}-work"]])
    if done.returncode != 0 or len(lines) < 2:
        message = f"{shown(path)} is no git repository"
        raise PreconditionError(message, mend=[["git", "-C", str(path), "init"]])
    git = Git(Path(lines[1]))
    try:
        git.head()
    except UsageError as error:
        message = f"{shown(git.repo)} has no commit yet"
        facts = {"why": "every attempt starts from a commit"}
        mend = [["git", "add", "-A"], ["git", "commit", "-m", "start"]]
        raise PreconditionError(message, facts=facts, mend=mend) from error
    return git


def require_clean(git: Git) -> None:
    """Refuse a repository with changes that are not committed.

    Raises:
        PreconditionError: Naming up to ten of them.
    """
    dirty = git.dirty_files()
    if not dirty:
        return
    lines = [f"{mark} {path}" for mark, path in dirty[:10]]
    if len(dirty) > 10:
        lines.append(f"and {len(dirty) - 10} more")
    message = f"{shown(git.repo)} has changes that are not committed"
    why = "every attempt starts from a commit; these would be missing in it"
    # `commit -a` leaves untracked files out, and the tree would be dirty again.
    commit = [["git", "commit", "-am", "before labmates"]]
    if any(mark.startswith("?") for mark, _ in dirty):
        commit = [["git", "add", "-A"], ["git", "commit", "-m", "before labmates"]]
    raise PreconditionError(
        message,
        facts={"files": "\n".join(lines), "why": why},
        mend=[*commit, ["git", "stash", "-u"]],
    )


def shown(path: Path) -> str:
    """Give a path as a person writes it, with `~` for the home folder."""
    home = Path.home()
    return (
        f"~/{path.relative_to(home)}" if path.is_relative_to(home) and path != home else str(path)
    )


def machinery(git: Git) -> dict[str, str]:
    """Digest what could steer later git calls: config, hooks, info, alternates, replace refs.

    Names are paths from the root of the repository, and names of refs. Compare before and after a
    step; a difference means that somebody touched it. HEAD and the other refs are left out: the
    person commits, fetches and switches branches while lanes run, and nothing here reads them.
    """
    common = git.common_dir()
    roots = {common / name for name in ("config", "config.worktree", "objects/info/alternates")}
    for folder in ("hooks", "info"):
        roots |= {path for path in (common / folder).rglob("*") if not path.is_dir()}
    if git.git_dir is not None:
        roots.add(git.git_dir / "config.worktree")
    # `git gc` of an honest attempt writes this one; nothing reads it but old servers
    roots.discard(common / "info" / "refs")
    found = {
        _inside(path, common): _digest(path) for path in sorted(roots) if os.path.lexists(path)
    }
    return found | git.refs("refs/replace/")


def touched(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[str, ...]:
    """Name what differs between two digests of the machinery, and how."""
    found = []
    for name in sorted({*before, *after}):
        if before.get(name) != after.get(name):
            how = "added" if name not in before else "changed" if name in after else "removed"
            found.append(f"{name}: {how} by the driver")
    return tuple(found)


def _inside(path: Path, common: Path) -> str:
    name = path.relative_to(common).as_posix() if path.is_relative_to(common) else str(path)
    text = f"{common.name}/{name}" if path.is_relative_to(common) else name
    return os.fsencode(text).decode("utf-8", errors="backslashreplace")


def _digest(path: Path) -> str:
    """Digest a file's content, mode, and where it points; what cannot be read has a word."""
    try:
        info = path.lstat()
        link = str(path.readlink()) if path.is_symlink() else ""
        content = path.read_bytes() if path.is_file() else b""
    except OSError as error:
        return f"unreadable: {error.strerror}"
    return hashlib.sha256(
        f"{info.st_mode:o} {link}\n".encode(errors="replace") + content
    ).hexdigest()
