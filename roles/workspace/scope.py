"""Decide which files an attempt may change. Pure: no file is opened, no process is run.

Globs, as contracts write them, match whole paths from the root of the repository, with case:

    src/solution.py   that file
    src/              everything below src, the same as src/**
    *.py              Python files in the root, since * and ? never match a slash
    src/**/*.py       Python files below src, at any depth, src itself included
    **                everything
    [ab].txt, [!a]    one character of a set

A glob without a wildcard also covers what stands below it, so `eval` protects `eval/run.py`.
"""

import os
import re
import shlex
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath

LINK_MODES = {"120000": "is a symbolic link", "160000": "is a submodule"}
AUTO_LOADED = frozenset(
    {
        "conftest.py",
        "sitecustomize.py",
        "usercustomize.py",
        "pytest.ini",
        "tox.ini",
        ".gitattributes",
        ".gitmodules",
    }
)
_AUTO_SUFFIX = ".pth"
_WILD = frozenset("*?[")


@dataclass(frozen=True, kw_only=True)
class Change:
    """One difference between two commits.

    Attributes:
        status: A added, M modified, D deleted, R renamed, C copied, T type changed.
        path: Where it is now (for D: where it was).
        old_path: Where it was, for R and C.
        old_mode: Six octal digits, `000000` for none.
        new_mode: The same.
    """

    status: str
    path: str
    old_path: str | None = None
    old_mode: str = "100644"
    new_mode: str = "100644"


@dataclass(frozen=True)
class Violation:
    """One path that an attempt should not have changed, and why."""

    path: str
    why: str


@dataclass(frozen=True)
class ScopeReport:
    """What an attempt changed, and what of it was not its to change; both sorted by path."""

    clean: bool
    changed: tuple[str, ...]
    violations: tuple[Violation, ...]


def check_scope(
    changes: Iterable[Change],
    editable: Iterable[str],
    protected: Iterable[str],
    always_protected: Iterable[str] = (),
) -> ScopeReport:
    """Compare changes with the contract's globs; protected wins over editable.

    Everything that is not editable is out of scope. A name that some file system or reader takes
    for a protected one (other case, other Unicode form) counts as protected.
    """
    editable = tuple(editable)
    guarded = tuple(protected) + tuple(always_protected)
    changed: set[str] = set()
    violations: dict[str, str] = {}
    for change in changes:
        for path, is_old in _sides(change):
            changed.add(path)
            why = _why_not(path, editable, guarded)
            if not why and not is_old:
                why = _why_not_mode(change)
            if why:
                violations.setdefault(path, why)
    found = tuple(Violation(path, violations[path]) for path in sorted(violations))
    return ScopeReport(clean=not found, changed=tuple(sorted(changed)), violations=found)


def matches(path: str, globs: Iterable[str]) -> bool:
    """Tell whether one of the globs covers the path."""
    return any(_compiled(glob).fullmatch(path) for glob in globs)


def matches_alias(path: str, globs: Iterable[str]) -> bool:
    """Tell whether one of the globs covers the path, or a name that may be taken for it."""
    folded = fold(path)
    return any(_compiled(fold(glob)).fullmatch(folded) for glob in globs)


def fold(path: str) -> str:
    """Give the form in which names that a file system may hold equal are equal."""
    plain = unicodedata.normalize("NFKC", path)
    visible = "".join(c for c in plain if unicodedata.category(c) != "Cf")
    return unicodedata.normalize("NFKC", visible.casefold())


def name_fault(path: str) -> str:
    """Say why no file of a commit may have this name at all, or "" where it may."""
    parts = path.split("/")
    if path.startswith("/") or any(part in {"", ".", ".."} for part in parts):
        return "is no path inside the repository"
    if any(fold(part).rstrip(" .") in {".git", "git~1"} for part in parts):
        return "is a name of git's own"
    if any("\udc80" <= char <= "\udcff" for char in path):
        return "is a name that is not UTF-8"
    if any(unicodedata.category(char) == "Cc" for char in path):
        return "is a name with control characters"
    return ""


def printable(path: str) -> str:
    """Give a path as text that a record can hold: names of files may be no UTF-8."""
    return os.fsencode(path).decode("utf-8", errors="backslashreplace")


def command_files(command: str, tree_paths: Iterable[str]) -> set[str]:
    """Give the files of the tree that a command names: as words, options' values, or modules.

    A folder that is named stands for the files below it. Text that is no shell words names
    whatever stands between blanks.
    """
    paths = set(tree_paths)
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    found: set[str] = set()
    for number, word in enumerate(words):
        names = {part for part in re.split(r"[=:,;|&()<>\s]+", word) if part} | {word}
        if number and words[number - 1] == "-m":
            module = word.replace(".", "/")
            names |= {f"{module}.py", f"{module}/__main__.py", f"{module}/__init__.py"}
        for name in names:
            plain = str(PurePosixPath(name))
            if plain in paths:
                found.add(plain)
            elif plain not in {".", "/", ".."}:
                found |= {path for path in paths if path.startswith(f"{plain}/")}
    return found


def _sides(change: Change) -> list[tuple[str, bool]]:
    sides = [(change.path, change.status == "D")]
    if change.status == "R" and change.old_path is not None:
        sides.append((change.old_path, True))
    return sides


def _why_not(path: str, editable: tuple[str, ...], guarded: tuple[str, ...]) -> str:
    """Say why the path may not change, or "" where it may."""
    if why := name_fault(path):
        return why
    if matches(path, guarded):
        return "is protected"
    if matches_alias(path, guarded):
        return "may be taken for a protected file"
    if matches(path, editable):
        return ""
    name = PurePosixPath(fold(path)).name
    if name in AUTO_LOADED or name.endswith(_AUTO_SUFFIX):
        return "is loaded without being named, and is not editable"
    return "is not editable"


def _why_not_mode(change: Change) -> str:
    if why := LINK_MODES.get(change.new_mode):
        return why
    was_file = change.old_mode.startswith("100") and change.new_mode.startswith("100")
    if was_file and change.status != "A" and change.old_mode != change.new_mode:
        return f"changes its mode from {change.old_mode} to {change.new_mode}"
    return ""


@lru_cache(maxsize=1024)
def _compiled(glob: str) -> re.Pattern[str]:
    text = glob.removeprefix("./").removeprefix("/")
    if text.endswith("/"):
        text += "**"
    out, at = [], 0
    while at < len(text):
        if text.startswith("**/", at) and (at == 0 or text[at - 1] == "/"):
            out.append("(?:.+/)?")
            at += 3
        elif text.startswith("**", at):
            out.append(".*")
            at += 2
        elif text[at] == "*":
            out.append("[^/]*")
            at += 1
        elif text[at] == "?":
            out.append("[^/]")
            at += 1
        elif text[at] == "[" and (end := text.find("]", at + 2)) > 0:
            body = text[at + 1 : end].replace("\\", r"\\").replace("[", r"\[").replace("^", r"\^")
            not_body = body.startswith("!")
            out.append(f"(?!/)[{'^' if not_body else ''}{body[not_body:]}]")
            at = end + 1
        else:
            out.append(re.escape(text[at]))
            at += 1
    if not _WILD & set(text):
        out.append("(?:/.*)?")
    return re.compile("".join(out), re.DOTALL)
