"""Objects of a repository, each compared with its id: git hashes no tree that it lists or diffs.

An attempt can write below `.git/objects`, also over what is there. So commits, trees and blobs
that decide anything are read raw and hashed here, from the commit's id down to every file.
"""

import hashlib
import os
import stat
import subprocess
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from contracts.canonical import canonical, sha256_hex
from contracts.errors import MachineError
from roles.workspace.git import Git, TreeEntry, full_id
from roles.workspace.scope import Change, matches

_TIMEOUT_S = 300.0
_NONE = "000000"


@dataclass(frozen=True)
class Objects:
    """Reads objects through one `git cat-file --batch`; not safe in threads."""

    process: "subprocess.Popen[bytes]"
    _trees: dict[str, list[tuple[str, str, bytes]]] = field(default_factory=dict)

    def read(self, oid: str, kind: str) -> bytes:
        """Give an object's content.

        Raises:
            MachineError: It is missing, of another kind, or its content has another id.
        """
        stdin, stdout = self.process.stdin, self.process.stdout
        if stdin is None or stdout is None:
            message = "git was started without pipes"
            raise MachineError(message)
        try:
            stdin.write(f"{full_id(oid)}\n".encode("ascii"))
            stdin.flush()
        except OSError as error:
            message = f"the object {oid} cannot be read: git has ended"
            raise MachineError(message) from error
        header = stdout.readline().split()
        if len(header) != 3:
            said = b" ".join(header).decode(errors="replace") or "git has ended"
            message = f"the object {oid} cannot be read: {said}"
            raise MachineError(message)
        content = stdout.read(int(header[2]))
        stdout.read(1)
        found = header[1].decode("ascii")
        if found != kind or object_id(kind, content, like=oid) != oid:
            message = f"the {kind} {oid} holds what its id does not say"
            hint = "something wrote below .git/objects; compare with another clone: git fsck"
            raise MachineError(message, facts={"object": oid}, hint=hint)
        return content

    def tree(self, commit: str) -> list[TreeEntry]:
        """List every file, link and submodule of a commit, by path; sizes are not known (-1).

        Raises:
            MachineError: The commit or a tree below it is not what its id says, or names a path
                twice.
        """
        head = self.read(commit, "commit").split(b"\n", 1)[0].split(b" ")
        if len(head) != 2 or head[0] != b"tree":
            message = f"the commit {commit} names no tree"
            raise MachineError(message)
        found: dict[str, TreeEntry] = {}
        waiting = [(head[1].decode("ascii"), b"")]
        while waiting:
            oid, prefix = waiting.pop()
            names: set[bytes] = set()
            for mode, entry, name in self._entries(oid):
                if name in names:
                    message = f"the tree {oid} names {os.fsdecode(prefix + name)!r} twice"
                    raise MachineError(message)
                names.add(name)
                if _kind(mode) == "tree":
                    waiting.append((entry, prefix + name + b"/"))
                    continue
                path = os.fsdecode(prefix + name)
                found[path] = TreeEntry(mode, _kind(mode), entry, path, -1)
        return [found[path] for path in sorted(found)]

    def _entries(self, oid: str) -> list[tuple[str, str, bytes]]:
        if oid not in self._trees:
            raw = self.read(oid, "tree")
            try:
                self._trees[oid] = _parsed(raw, len(oid) // 2)
            except ValueError as error:
                message = f"the tree {oid} cannot be read: {error}"
                raise MachineError(message) from error
        return self._trees[oid]


@contextmanager
def reading(git: Git) -> Iterator[Objects]:
    """Start one process that reads objects, and end it afterwards, or after five minutes."""
    argv, env = git.command("cat-file", "--batch")
    try:
        process = subprocess.Popen(
            argv,
            cwd=git.repo,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        message = f"git cannot be started: {error.strerror}"
        raise MachineError(message) from error
    timer = threading.Timer(_TIMEOUT_S, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield Objects(process)
    finally:
        timer.cancel()
        process.kill()
        process.communicate()


def object_id(kind: str, content: bytes, *, like: str) -> str:
    """Give the id that git gives the content, in the hash that the id `like` is of."""
    maker = hashlib.sha1(usedforsecurity=False) if len(like) == 40 else hashlib.sha256()
    maker.update(kind.encode("ascii") + b" %d\0" % len(content) + content)
    return maker.hexdigest()


def changes_between(git: Git, old: str, new: str) -> list[Change]:
    """List by path what differs between two commits; a rename is a deletion and an addition.

    Raises:
        MachineError: A commit or tree of them is not what its id says.
    """
    with reading(git) as objects:
        before = {entry.path: entry for entry in objects.tree(old)}
        after = {entry.path: entry for entry in objects.tree(new)}
    found = []
    for path in sorted({*before, *after}):
        was, now = before.get(path), after.get(path)
        if was is None and now is not None:
            found.append(Change(status="A", path=path, old_mode=_NONE, new_mode=now.mode))
        elif now is None and was is not None:
            found.append(Change(status="D", path=path, old_mode=was.mode, new_mode=_NONE))
        elif was and now and (was.mode, was.oid) != (now.mode, now.oid):
            same_type = stat.S_IFMT(int(was.mode, 8)) == stat.S_IFMT(int(now.mode, 8))
            status = "M" if same_type else "T"
            found.append(Change(status=status, path=path, old_mode=was.mode, new_mode=now.mode))
    return found


def scope_digest(tree: Iterable[TreeEntry], protected: tuple[str, ...]) -> str:
    """Digest the protected files of a tree: path and object id of each, by path."""
    rows = [[e.path, e.oid] for e in tree if matches(e.path, protected)]
    return sha256_hex(canonical({"protected": sorted(rows)}))


def _parsed(raw: bytes, width: int) -> list[tuple[str, str, bytes]]:
    """Give mode, id and name of each entry of a raw tree, ids being `width` bytes long."""
    entries, at = [], 0
    while at < len(raw):
        blank = raw.index(b" ", at)
        end = raw.index(b"\0", blank)
        mode = f"{int(raw[at:blank], 8):06o}"
        entries.append((mode, raw[end + 1 : end + 1 + width].hex(), raw[blank + 1 : end]))
        at = end + 1 + width
    return entries


def _kind(mode: str) -> str:
    """Give the type of object that a mode of a tree means."""
    kind = stat.S_IFMT(int(mode, 8))
    return {0o040000: "tree", 0o160000: "commit"}.get(kind, "blob")
