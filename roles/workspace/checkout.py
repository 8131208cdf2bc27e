"""Fresh copies of a commit for evaluation, and what a commit does not show of a folder.

A copy is written from raw objects: no filter, no attribute, no index and no hook has a part in
it, and no file that is not in the commit can come along (bytecode, results, ignored data).
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from contracts.errors import MachineError, UsageError
from roles.workspace.git import Git, TreeEntry
from roles.workspace.scope import matches, matches_alias, name_fault

_BATCH_BYTES = 32 * 1024 * 1024
_MANY = 1000


def checkout_fresh(
    git: Git, commit: str, dest: Path, protected_from: str, protected: Iterable[str]
) -> Path:
    """Write the commit's files to `dest`, with the protected files of another commit.

    Every path that a protected glob covers (or a name that may be taken for one) comes from
    `protected_from`, or is not there at all. Submodules are empty folders. Each file is read
    again after all is written, and compared with its object id.

    Args:
        git: The repository that has both commits.
        commit: The candidate's.
        dest: Must not exist, or be empty.
        protected_from: The approved base.
        protected: Globs, as in `roles.workspace.scope`.

    Raises:
        UsageError: The commit holds a link that leaves the tree, or a name that no file may have.
        MachineError: `dest` cannot be written, or a file is not what was written.
    """
    try:
        _write_tree(git, commit, dest, protected_from, tuple(protected))
    except OSError as error:
        message = f"{dest} cannot be written: {error.strerror}"
        raise MachineError(message) from error
    return dest


def _write_tree(
    git: Git, commit: str, dest: Path, protected_from: str, protected: tuple[str, ...]
) -> None:
    dest.mkdir(parents=True, exist_ok=True)
    if any(dest.iterdir()):
        message = f"{dest} is not empty"
        raise UsageError(message)
    entries = _merged(git.list_tree(commit), git.list_tree(protected_from), protected)
    for entry in entries:
        if fault := name_fault(entry.path):
            message = f"{entry.path!r} in {commit[:12]} {fault}"
            raise UsageError(message)
    for entry in entries:
        place = dest / entry.path
        (place if entry.type == "commit" else place.parent).mkdir(parents=True, exist_ok=True)
    links = [entry for entry in entries if entry.mode == "120000"]
    files = [entry for entry in entries if entry.type == "blob" and entry.mode != "120000"]
    for entry, content in _contents(git, files):
        _write(dest / entry.path, content, executable=entry.mode == "100755")
    for entry, content in _contents(git, links):
        (dest / entry.path).symlink_to(os.fsdecode(content))
    root = dest.resolve()
    for entry in links:
        if not Path(os.path.realpath(dest / entry.path)).is_relative_to(root):
            message = f"{entry.path} in {commit[:12]} is a link that leaves the tree"
            raise UsageError(message)
    for entry in files:
        if blob_id((dest / entry.path).read_bytes(), like=entry.oid) != entry.oid:
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


def blob_id(content: bytes, *, like: str) -> str:
    """Give the id that git gives the content, in the hash that the id `like` is of."""
    maker = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
    maker.update(b"blob %d\0" % len(content) + content)
    return maker.hexdigest()


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


def _contents(git: Git, entries: list[TreeEntry]) -> Iterator[tuple[TreeEntry, bytes]]:
    """Give entries with their contents, some 32 MiB at a time."""
    batch: list[TreeEntry] = []
    size = 0
    for entry in [*entries, None]:
        if batch and (entry is None or size + entry.size > _BATCH_BYTES):
            blobs = git.read_blobs([item.oid for item in batch])
            yield from ((item, blob) for item, (_, blob) in zip(batch, blobs, strict=True))
            batch, size = [], 0
        if entry is not None:
            batch.append(entry)
            size += entry.size


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
        return entry.mode == "120000" and blob_id(content, like=entry.oid) == entry.oid
    if not path.is_file() or entry.mode == "120000" or path.stat().st_size != entry.size:
        return False
    is_executable = bool(path.stat().st_mode & 0o100)
    if is_executable != (entry.mode == "100755"):
        return False
    return blob_id(path.read_bytes(), like=entry.oid) == entry.oid
