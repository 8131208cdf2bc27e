"""Fresh copies of a commit for evaluation, and what a commit does not show of a folder.

A copy is written from raw objects: no filter, no attribute, no index and no hook has a part in
it, and no file that is not in the commit can come along (bytecode, results, ignored data).
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from contracts.errors import MachineError, UsageError
from roles.workspace.git import Git, TreeEntry
from roles.workspace.objects import Objects, object_id, reading, scope_digest
from roles.workspace.scope import matches, matches_alias, name_fault

_MANY = 1000


def checkout_fresh(
    git: Git,
    commit: str,
    dest: Path,
    protected_from: str,
    protected: Iterable[str],
    *,
    scope_sha256: str | None = None,
) -> Path:
    """Write the commit's files to `dest`, with the protected files of another commit.

    Every path that a protected glob covers (or a name that may be taken for one) comes from
    `protected_from`, or is not there at all. Submodules are empty folders. Every object is
    compared with its id, from the commits down, and each file again after all is written.

    Args:
        git: The repository that has both commits.
        commit: The candidate's.
        dest: Must not exist, or be empty.
        protected_from: The approved base.
        protected: Globs, as in `roles.workspace.scope`.
        scope_sha256: The digest of the protected files that was approved; None: not compared.

    Raises:
        UsageError: The commit holds a link that leaves the tree, or a name that no file may have.
        MachineError: `dest` cannot be written, a file is not what was written, an object is not
            what its id says, or the protected files are not the approved ones.
    """
    globs = tuple(protected)
    try:
        with reading(git) as objects:
            base = objects.tree(protected_from)
            if scope_sha256 is not None and scope_digest(base, globs) != scope_sha256:
                message = f"the protected files of {protected_from[:12]} are not those approved"
                raise MachineError(message, facts={"approved": scope_sha256})
            entries = _merged(objects.tree(commit), base, globs)
            _write_tree(objects, entries, dest, commit[:12])
    except OSError as error:
        message = f"{dest} cannot be written: {error.strerror}"
        raise MachineError(message) from error
    return dest


def _write_tree(objects: Objects, entries: list[TreeEntry], dest: Path, commit: str) -> None:
    dest.mkdir(parents=True, exist_ok=True)
    if any(dest.iterdir()):
        message = f"{dest} is not empty"
        raise UsageError(message)
    for entry in entries:
        if fault := name_fault(entry.path):
            message = f"{entry.path!r} in {commit} {fault}"
            raise UsageError(message)
    for entry in entries:
        place = dest / entry.path
        (place if entry.type == "commit" else place.parent).mkdir(parents=True, exist_ok=True)
    links = [entry for entry in entries if entry.mode == "120000"]
    files = [entry for entry in entries if entry.type == "blob" and entry.mode != "120000"]
    for entry in files:
        content = objects.read(entry.oid, "blob")
        _write(dest / entry.path, content, executable=entry.mode == "100755")
    for entry in links:
        (dest / entry.path).symlink_to(os.fsdecode(objects.read(entry.oid, "blob")))
    root = dest.resolve()
    for entry in links:
        if not Path(os.path.realpath(dest / entry.path)).is_relative_to(root):
            message = f"{entry.path} in {commit} is a link that leaves the tree"
            raise UsageError(message)
    for entry in files:
        if object_id("blob", (dest / entry.path).read_bytes(), like=entry.oid) != entry.oid:
            message = f"{dest / entry.path} is not what was written"
            raise MachineError(message)


def uncommitted(git: Git, folder: Path, commit: str) -> tuple[str, ...]:
    """List files of `folder` that differ from the commit, or are missing on one side, by path.

    Contents decide; index flags and ignore rules do not. At most the first 1000.
    """
    expected = {e.path: e for e in git.list_tree(commit) if e.type == "blob"}
    found = set(expected)
    differing = []
    for path in _walk(folder):
        name = path.relative_to(folder).as_posix()
        found.discard(name)
        entry = expected.get(name)
        if entry is None or not _same(path, entry):
            differing.append(name)
    return tuple(sorted([*differing, *found])[:_MANY])


def _merged(
    candidate: list[TreeEntry], base: list[TreeEntry], protected: tuple[str, ...]
) -> list[TreeEntry]:
    """Take protected entries from the base and all others from the candidate."""
    kept = {entry.path: entry for entry in base if matches(entry.path, protected)}
    folders = {folder for path in kept for folder in _above(path)}
    for entry in candidate:
        in_the_way = entry.path in folders or any(above in kept for above in _above(entry.path))
        if not in_the_way and not matches_alias(entry.path, protected):
            kept[entry.path] = entry
    return [kept[path] for path in sorted(kept)]


def _above(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def _write(path: Path, content: bytes, *, executable: bool) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o755 if executable else 0o644), "wb") as file:
        file.write(content)


def _walk(folder: Path) -> Iterator[Path]:
    """Give files and links below a folder, without following links, without git's own."""
    for root, folders, files in os.walk(folder):
        links = [name for name in folders if (Path(root) / name).is_symlink()]
        folders[:] = [name for name in folders if name not in {*links, ".git"}]
        yield from (Path(root) / name for name in [*files, *links] if name != ".git")


def _same(path: Path, entry: TreeEntry) -> bool:
    if path.is_symlink():
        content = os.fsencode(path.readlink())
        return entry.mode == "120000" and object_id("blob", content, like=entry.oid) == entry.oid
    if not path.is_file() or entry.mode == "120000" or path.stat().st_size != entry.size:
        return False
    is_executable = bool(path.stat().st_mode & 0o100)
    if is_executable != (entry.mode == "100755"):
        return False
    return object_id("blob", path.read_bytes(), like=entry.oid) == entry.oid
