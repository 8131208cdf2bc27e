"""Git's object ids in plain Python: which commit a workspace would have, without making one.

The dry run starts no process and writes no file, and a contract's hash needs its base commit. The
same files with the same author and date give the same ids everywhere; a test compares with git.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime

from demo.preset import AUTHOR, CONTRACT, DATE, EMAIL, Preset
from roles.workspace.git import TreeEntry


def workspace_files(preset: Preset, *, python: str) -> dict[str, bytes]:
    """Give the files of the workspace that `make_workspace` would make, by path."""
    found = {}
    for path in sorted(preset.repo_files.rglob("*")):
        name = path.relative_to(preset.repo_files)
        if path.is_file() and "__pycache__" not in name.parts and path.suffix != ".pyc":
            found[name.as_posix()] = path.read_bytes()
    quoted = python.replace("\\", "\\\\").replace('"', '\\"')
    text = found[CONTRACT].decode("utf-8")
    line = f'python = "{quoted}"'
    text = re.sub(r"^python = .*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    return found | {CONTRACT: text.encode("utf-8")}


def object_id(kind: str, content: bytes) -> bytes:
    """Give an object's id, 20 bytes."""
    header = f"{kind} {len(content)}\0".encode()
    return hashlib.sha1(header + content, usedforsecurity=False).digest()


def tree_entries(files: Mapping[str, bytes]) -> list[TreeEntry]:
    """List the files as the entries of a commit's tree, by path."""
    return [
        TreeEntry("100644", "blob", object_id("blob", content).hex(), path, len(content))
        for path, content in sorted(files.items())
    ]


def tree_id(files: Mapping[str, bytes]) -> bytes:
    """Give the id of the tree that holds these files."""
    rows: dict[str, tuple[str, bytes]] = {}
    folders: dict[str, dict[str, bytes]] = {}
    for path, content in files.items():
        folder, slash, rest = path.partition("/")
        if slash:
            folders.setdefault(folder, {})[rest] = content
        else:
            rows[path] = ("100644", object_id("blob", content))
    for folder, inside in folders.items():
        rows[f"{folder}/"] = ("40000", tree_id(inside))  # git sorts a folder as if it ended in /
    content = b"".join(
        f"{mode} {name.removesuffix('/')}\0".encode() + oid
        for name, (mode, oid) in sorted(rows.items(), key=lambda row: row[0].encode())
    )
    return object_id("tree", content)


def commit_id(preset: Preset, files: Mapping[str, bytes]) -> str:
    """Give the commit that `make_workspace` would make of these files."""
    seconds = int(datetime.strptime(DATE, "%Y-%m-%dT%H:%M:%S%z").timestamp())
    who = f"{AUTHOR} <{EMAIL}> {seconds} +0000"
    text = f"tree {tree_id(files).hex()}\nauthor {who}\ncommitter {who}\n\nThe {preset.name} task\n"
    return object_id("commit", text.encode()).hex()
