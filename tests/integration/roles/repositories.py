"""Real repositories for tests, and a snapshot of everything in one."""

import os
import stat
import subprocess
from pathlib import Path

from roles.workspace.git import Git

ENV = {
    "PATH": os.environ["PATH"],
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "user",
    "GIT_AUTHOR_EMAIL": "user@example.org",
    "GIT_COMMITTER_NAME": "user",
    "GIT_COMMITTER_EMAIL": "user@example.org",
}
FILES = {
    "solution.py": "print('slow')\n",
    "eval/eval.py": "print(0.5)\n",
    "src/a.py": "a = 1\n",
    "README.md": "hello\n",
    ".gitignore": "*.log\n",
}


def raw_git(cwd: Path, *args: str, stdin: str | None = None) -> str:
    """Call git as a user or an agent would, with nothing turned off."""
    done = subprocess.run(
        ["git", *args], cwd=cwd, env=ENV, input=stdin, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def make_repository(path: Path, files: dict[str, str] | None = None) -> Git:
    path.mkdir(parents=True)
    raw_git(path, "init", "-q", "-b", "main")
    write(path, FILES if files is None else files)
    raw_git(path, "add", "-A")
    raw_git(path, "commit", "-q", "-m", "start")
    return Git(path)


def commit_files(git: Git, files: dict[str, str], *, remove: tuple[str, ...] = ()) -> str:
    """Commit files on top of HEAD in the user's repository, and give the commit."""
    write(git.repo, files)
    for name in remove:
        (git.repo / name).unlink()
    raw_git(git.repo, "add", "-A")
    raw_git(git.repo, "commit", "-q", "-m", "more")
    return git.head()


def snapshot(repo: Path) -> dict[str, tuple[int, bytes]]:
    """Give mode and content of everything, without what labmates may add to `.git`.

    That is: objects, our worktrees' entries, and what belongs to refs/heads/labmates.
    """
    allowed = ("objects", "worktrees", "refs/heads/labmates", "logs/refs/heads/labmates")
    found = {}
    for path in sorted(repo.rglob("*")):
        name = path.relative_to(repo).as_posix()
        inside = name.removeprefix(".git/")
        if name != inside and any(inside == a or inside.startswith(f"{a}/") for a in allowed):
            continue
        info = path.lstat()
        content = b""
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif stat.S_ISREG(info.st_mode):
            content = path.read_bytes()
        found[name] = (info.st_mode, content)
    return found
