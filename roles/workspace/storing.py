"""From the files of a work tree to a tree of git, whatever its index and its ignore files say.

Ignore rules are those of the base commit's `.gitignore` files alone: `info/exclude`, the config's
`core.excludesFile` and an ignore file that an attempt wrote hide nothing.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from roles.workspace.git import Git, GitError
from roles.workspace.objects import reading
from roles.workspace.scope import name_fault

_RULES = ".gitignore"


def write_tree(git: Git, base: str) -> str:
    """Store all files of the work tree as a tree, and give its id.

    The index is a fresh one of `base`, so flags that hide edits (skip-worktree,
    assume-unchanged) hide nothing. New files that the base's ignore rules name stay out.

    Raises:
        GitError: Git cannot store a file, such as a nested repository without a commit.
    """
    with _private_index() as env:
        git.out("read-tree", git.resolve(base), env=env)
        git.out("add", "--update", "--", ".", env=env, calm=True)
        raw = git.out("ls-files", "--others", "-z", env=env, calm=True)
        new = [name for name in raw.split(b"\0") if name]
        hidden = _ignored(git, base, new) if new else set()
        names = [name.rstrip(b"/") for name in new if name not in hidden]
        stdin = b"".join(name + b"\0" for name in names)
        git.out("update-index", "--add", "-z", "--stdin", stdin=stdin, env=env, calm=True)
        # a name of git's own is left out with a warning and the exit code 0
        stored = set(git.out("ls-files", "-z", env=env).split(b"\0"))
        if lost := [os.fsdecode(name) for name in names if name not in stored]:
            raise GitError(["update-index", "--add"], 0, f"git cannot store {lost[0]}")
        return git.line("write-tree", env=env, calm=True)


def _ignored(git: Git, base: str, names: list[bytes]) -> set[bytes]:
    """Give those of the names that the base's ignore files name, asked in a folder of their own."""
    with tempfile.TemporaryDirectory(prefix="labmates-ignore-") as folder:
        place = Path(folder)
        with reading(git) as objects:
            rules = [entry for entry in objects.tree(base) if _is_rules(entry.path, entry.mode)]
            for entry in rules:
                (place / entry.path).parent.mkdir(parents=True, exist_ok=True)
                (place / entry.path).write_bytes(objects.read(entry.oid, "blob"))
        if not rules:
            return set()
        alone = Git(place)
        alone.out("init", "--quiet", "--template=")
        # a nested repository is listed as `name/`; a name inside it tells whether it is ignored
        asked = {(name + b"0" if name.endswith(b"/") else name): name for name in names}
        options = ["-c", "core.excludesFile=/dev/null"]
        done = alone.run(
            *options, "check-ignore", "--no-index", "-z", "--stdin", stdin=b"\0".join(asked) + b"\0"
        )
        return {asked[name] for name in done.stdout.split(b"\0") if name in asked}


def _is_rules(path: str, mode: str) -> bool:
    is_file = mode.startswith("100")
    return is_file and PurePosixPath(path).name == _RULES and not name_fault(path)


@contextmanager
def _private_index() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="labmates-index-") as folder:
        yield {"GIT_INDEX_FILE": os.path.join(folder, "index")}  # noqa: PTH118 - text for git
