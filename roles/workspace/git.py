"""Git, called so that nothing planted in the repository runs or misleads us.

An attempt shares config, hooks and objects with the user's repository, so whatever an attempt
writes there must not act in our calls: hooks and monitors are off, filters and merge drivers are
replaced, `GIT_*` of our own environment never reaches git, replace objects and grafts are off,
no transport is allowed, and only full object ids are passed on a command line. One exception
stays: attributes of line ends (`text`, `eol`) work as the repository says.
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from contracts.errors import MachineError, UsageError
from roles.processes.process import call

OWN_REFS = "refs/heads/labmates/"
NO_OID = ""

_OID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.attributesFile=/dev/null",
    "core.sparseCheckout=false",
    "core.fileMode=true",
    "core.symlinks=true",
    "core.ignoreCase=false",
    "core.quotePath=false",
    "core.untrackedCache=false",
    "commit.gpgSign=false",
    "log.showSignature=false",
    "rerere.enabled=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "submodule.recurse=false",
    "advice.detachedHead=false",
)
_PREFIX = ["git", "--no-pager", *(part for item in _CONFIG for part in ("-c", item))]
_ENV = {
    "LC_ALL": "C.UTF-8",
    "TERM": "dumb",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_GRAFT_FILE": "/dev/null",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_EDITOR": "true",
    "GIT_AUTHOR_NAME": "labmates",
    "GIT_AUTHOR_EMAIL": "labmates@localhost",
    "GIT_COMMITTER_NAME": "labmates",
    "GIT_COMMITTER_EMAIL": "labmates@localhost",
}
_TAIL_CHARS = 2000


class GitError(MachineError):
    """Git failed at something that should work; `command` and the end of its stderr say what."""

    code: ClassVar[str] = "git"

    def __init__(self, command: Sequence[str], returncode: int, stderr: str) -> None:
        self.command = list(command)
        self.returncode = returncode
        self.stderr = stderr
        lines = stderr.strip().splitlines() or ["(no output)"]
        super().__init__(
            f"git {command[0]} failed: {lines[-1]}",
            facts={"command": "git " + " ".join(command), "stderr": stderr[-_TAIL_CHARS:].strip()},
        )


class TreeEntry(NamedTuple):
    """One entry of a commit's tree; `size` is -1 for what is no blob."""

    mode: str
    type: str
    oid: str
    path: str
    size: int


@dataclass(frozen=True)
class Git:
    """One work tree and its repository. Every call is a process of its own; safe in threads.

    Attributes:
        repo: The root of the work tree.
        git_dir: Its git directory; named for our worktrees, whose `.git` file an attempt may
            have changed. None: the one of `repo`, never one of a parent folder.
    """

    repo: Path
    git_dir: Path | None = None

    def run(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        calm: bool = False,
        timeout_s: float = 300.0,
    ) -> subprocess.CompletedProcess[bytes]:
        """Call git, whatever its exit code.

        With `calm`, the filters and merge drivers that the repository's config names are
        replaced; every call that reads or writes files of the work tree needs it.
        """
        argv, full = self.command(*args, calm=calm)
        full |= dict(env or {})
        return call(argv, cwd=self.repo, env=full, stdin=stdin, timeout_s=timeout_s)

    def command(self, *args: str, calm: bool = False) -> tuple[list[str], dict[str, str]]:
        """Give the whole command line of a call, and its environment."""
        env = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
        env |= _ENV | {"GIT_CEILING_DIRECTORIES": str(self.repo.resolve().parent)}
        if calm:
            env |= self._calm_drivers()
        place = [] if self.git_dir is None else [f"--git-dir={self.git_dir}", "--work-tree=."]
        return [*_PREFIX, *place, *args], env

    def out(
        self,
        *args: str,
        stdin: bytes = b"",
        env: Mapping[str, str] | None = None,
        calm: bool = False,
    ) -> bytes:
        """Call git and give its stdout.

        Raises:
            GitError: The exit code is not 0.
        """
        done = self.run(*args, stdin=stdin, env=env, calm=calm)
        if done.returncode != 0:
            raise GitError(args, done.returncode, done.stderr.decode(errors="replace"))
        return done.stdout

    def line(self, *args: str, env: Mapping[str, str] | None = None, calm: bool = False) -> str:
        """Call git and give its stdout as text without the last line end."""
        return os.fsdecode(self.out(*args, env=env, calm=calm)).rstrip("\n")

    def common_dir(self) -> Path:
        """Give the directory that all worktrees of the repository share."""
        return (self.repo / self.line("rev-parse", "--git-common-dir")).resolve()

    def head(self) -> str:
        """Give the commit that is checked out."""
        return self.resolve("HEAD")

    def resolve(self, rev: str) -> str:
        """Give the full id of the commit that `rev` names.

        Raises:
            UsageError: It names none.
        """
        if rev and rev.isprintable() and not rev.startswith("-"):
            done = self.run(
                "rev-parse", "--verify", "--quiet", "--end-of-options", f"{rev}^{{commit}}"
            )
            oid = done.stdout.decode("ascii", errors="replace").strip()
            if done.returncode == 0 and _OID.fullmatch(oid):
                return oid
        message = f"{rev!r} names no commit of {self.repo}"
        raise UsageError(message)

    def has_commit(self, commit: str) -> bool:
        """Tell whether the commit object is there."""
        return self.run("cat-file", "-e", f"{full_id(commit)}^{{commit}}").returncode == 0

    def tree_of(self, commit: str) -> str:
        """Give the id of the commit's tree."""
        return self.line("rev-parse", "--verify", f"{full_id(commit)}^{{tree}}")

    def parent_of(self, commit: str) -> str | None:
        """Give the commit's first parent, or None for a root."""
        found = self.line("rev-list", "--parents", "-n", "1", full_id(commit), "--").split()
        return found[1] if len(found) > 1 else None

    def dirty_files(self) -> list[tuple[str, str]]:
        """List what a commit of HEAD would miss: (mark, path), mark `?` for a new file.

        The user's own ignore file counts, since their `git status` must agree.
        """
        raw = self.out(
            *self._user_ignores(),
            "status", "--porcelain=v1", "-z", "--untracked-files=normal", "--no-renames",
            calm=True,
        )  # fmt: skip
        found = []
        for item in raw.split(b"\0"):
            if item:
                text = os.fsdecode(item)
                found.append((text[:2].strip()[:1], text[3:]))
        return found

    def is_clean(self) -> bool:
        """Tell whether HEAD holds all there is."""
        return not self.dirty_files()

    def show(self, commit: str, path: str) -> bytes:
        """Give the content of a file of a commit.

        Raises:
            GitError: There is no such file.
        """
        return self.out("cat-file", "blob", f"{full_id(commit)}:{path}")

    def list_tree(self, commit: str) -> list[TreeEntry]:
        """List every file, link and submodule of a commit's tree, by path."""
        found = []
        raw = self.out("ls-tree", "-r", "-l", "-z", "--full-tree", full_id(commit))
        for item in filter(None, raw.split(b"\0")):
            meta, path = item.split(b"\t", 1)
            mode, kind, oid, size = meta.decode("ascii").split()
            number = -1 if size == "-" else int(size)
            found.append(TreeEntry(mode, kind, oid, os.fsdecode(path), number))
        return found

    def diff_bytes(self, old: str, new: str) -> bytes:
        """Give the difference of two commits as a patch that `git apply` takes, binaries too."""
        return self.out(
            "diff-tree", *_PATCH, "--binary", "--full-index", full_id(old), full_id(new)
        )

    def diff_stat(self, old: str, new: str) -> tuple[int, int, int]:
        """Count files, added lines and removed lines; a binary file counts no lines."""
        raw = self.out(
            "diff-tree", "-r", "-z", "--numstat", "--no-renames", full_id(old), full_id(new)
        )
        rows = [part.split(b"\t", 2) for part in raw.split(b"\0") if part]
        added = sum(int(row[0]) for row in rows if row[0] != b"-")
        return len(rows), added, sum(int(row[1]) for row in rows if row[1] != b"-")

    def refs(self, prefix: str) -> dict[str, str]:
        """Give ref names below `prefix` with what they point to."""
        text = self.line("for-each-ref", "--format=%(refname) %(objectname)", "--", prefix)
        pairs = [line.split(" ", 1) for line in text.splitlines()]
        return {name: oid for name, oid in pairs}  # noqa: C416 - dict() loses the types

    def update_ref(self, ref: str, new: str, old: str | None = None) -> bool:
        """Move one of our refs to `new`, if it is at `old` (None: anywhere; "": nowhere yet).

        Returns:
            False if it is elsewhere; nothing was moved then.

        Raises:
            UsageError: The ref is not one of ours.
        """
        if not ref.startswith(OWN_REFS) or self.run("check-ref-format", ref).returncode != 0:
            message = f"{ref!r} is no ref of labmates"
            raise UsageError(message)
        zero = "0" * len(full_id(new))
        expected = [] if old is None else [full_id(old) if old else zero]
        done = self.run("update-ref", "--no-deref", ref, new, *expected)
        if done.returncode == 0:
            return True
        text = done.stderr.decode(errors="replace")
        if old is not None and self.refs(ref).get(ref, NO_OID) != old:
            return False
        raise GitError(["update-ref", ref, new, *expected], done.returncode, text)

    def commit_tree(self, tree: str, parent: str, message: str) -> str:
        """Make a commit object; no ref moves."""
        args = ["commit-tree", "-p", full_id(parent), "-F", "-", full_id(tree)]
        return self.out(*args, stdin=message.encode()).decode("ascii").strip()

    def cherry_pick(self, commit: str) -> bool:
        """Apply a commit on HEAD; False on a conflict, with the work tree as it was before.

        The work tree must be clean, since it is reset on a conflict.
        """
        before = self.head()
        args = ["--allow-empty", "--keep-redundant-commits", "--no-gpg-sign", full_id(commit)]
        done = self.run("cherry-pick", *args, calm=True)
        if done.returncode == 0:
            return True
        if not self.out("ls-files", "--unmerged"):
            self._reset(before)
            text = done.stderr.decode(errors="replace")
            raise GitError(["cherry-pick", commit], done.returncode, text)
        self._reset(before)
        return False

    def _reset(self, commit: str) -> None:
        self.run("cherry-pick", "--quit")
        self.out("reset", "--hard", "--quiet", commit, calm=True)
        self.out("clean", "-ffdq", calm=True)

    def _calm_drivers(self) -> dict[str, str]:
        """Override each filter and merge driver of the config: filters pass, drivers conflict."""
        raw = self.run(
            "config", "--name-only", "-z", "--get-regexp", r"^(filter|merge)\..*\."
        ).stdout
        sections = {os.fsdecode(name).rsplit(".", 1)[0] for name in raw.split(b"\0") if name}
        pairs = []
        for section in sorted(sections):
            if section.startswith("filter."):
                keys = ("clean", "smudge", "process")
                pairs += [(f"{section}.{key}", "") for key in keys]
                pairs.append((f"{section}.required", "false"))
            else:
                pairs.append((f"{section}.driver", "false"))
        env = {"GIT_CONFIG_COUNT": str(len(pairs))}
        for number, (key, value) in enumerate(pairs):
            env |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
        return env

    def _user_ignores(self) -> list[str]:
        """Give the user's own global ignore file as an option, where one is set."""
        env = {"GIT_CONFIG_GLOBAL": str(Path.home() / ".gitconfig")}
        done = self.run("config", "--global", "--type=path", "core.excludesFile", env=env)
        path = os.fsdecode(done.stdout).strip()
        return ["-c", f"core.excludesFile={path}"] if done.returncode == 0 and path else []


_PATCH = ("-r", "-p", "-M", "--no-ext-diff", "--no-textconv", "--no-color")


def full_id(text: str) -> str:
    """Give the text back where it is a full object id.

    Raises:
        UsageError: It is not.
    """
    if not _OID.fullmatch(text):
        message = f"{text!r} is no full object id"
        raise UsageError(message)
    return text
