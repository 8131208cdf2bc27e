"""Presets: a small repository, a contract, and a queue of hypotheses with prepared changes.

They ship inside the package (`demo/presets/<name>/`): `repo/` becomes the git workspace,
`changes/<change>/` holds what the queue's lines name, and stays outside it.
"""

import os
import re
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from contracts.errors import PreconditionError, UsageError

CONTRACT = "labmates.toml"
AUTHOR = "labmates demo"
EMAIL = "demo@labmates.invalid"
DATE = "2026-01-01T00:00:00+0000"


@dataclass(frozen=True, slots=True)
class Preset:
    """A preset as it lies in the package; nothing of it is written to.

    Attributes:
        name: What `--preset` takes.
        title: The objective of its contract, one sentence.
        repo_files: The folder that becomes the workspace.
        contract: Its `labmates.toml`.
        queue: Its `hypotheses.jsonl`.
        changes: The folder of prepared changes; `changes / line["change"]` is one.
        target: The contract's target, in the metric's unit; None if it names none.
        published: The argument list that prints the laxer, published protocol's number, run in a
            checkout with the contract's interpreter for `python`; empty if there is none.
    """

    name: str
    title: str
    repo_files: Path
    contract: Path
    queue: Path
    changes: Path
    target: float | None
    published: tuple[str, ...]


def presets_root() -> Path:
    """Give the folder of all presets."""
    return Path(str(resources.files("demo"))) / "presets"


def preset_names() -> list[str]:
    """List the presets, sorted."""
    return sorted(path.parents[1].name for path in presets_root().glob(f"*/repo/{CONTRACT}"))


def load_preset(name: str) -> Preset:
    """Find a preset; raises UsageError, naming those there are, if there is none of that name."""
    names = preset_names()
    if name not in names:
        msg = f"There is no preset {name!r}."
        raise UsageError(
            msg,
            facts={"presets": ", ".join(names)},
            mend=[["labmates", "demo", "--preset", known] for known in names],
        )
    root = presets_root() / name
    contract = root / "repo" / CONTRACT
    fields = tomllib.loads(contract.read_text(encoding="utf-8"))
    published: tuple[str, ...] = ()
    if (root / "repo" / "published.py").exists():
        published = ("python", "published.py", "--split", "holdout")
    return Preset(
        name=name,
        title=fields["context"]["objective"],
        repo_files=root / "repo",
        contract=contract,
        queue=root / "repo" / fields["strategy"]["queue"],
        changes=root / "changes",
        target=fields["evaluation"].get("target"),
        published=published,
    )


def make_workspace(preset: Preset, dest: Path, *, python: str | None = None) -> str:
    """Make `dest` a new git repository with the preset's files in one commit; returns that commit.

    The commit has a fixed author and date, so the same files give the same commit everywhere. With
    `python`, the contract names that interpreter instead of its own. Raises PreconditionError if
    `dest` is anything but an empty or a missing folder, or git fails; then nothing is left in it.
    """
    if dest.is_symlink() or (dest.exists() and (not dest.is_dir() or any(dest.iterdir()))):
        msg = f"{dest} is not an empty folder."
        raise PreconditionError(msg, tail="Nothing was written.")
    shutil.copytree(
        preset.repo_files,
        dest,
        dirs_exist_ok=True,
        ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
        copy_function=shutil.copyfile,
    )
    if python is not None:
        _name_interpreter(dest / CONTRACT, python)
    try:
        _git(dest, "init", "--quiet", "--template=", "--initial-branch=main")
        _git(dest, "add", "--all", "--force")
        _git(dest, "commit", "--quiet", "--no-verify", "--message", f"The {preset.name} task")
        return _git(dest, "rev-parse", "HEAD")
    except PreconditionError:
        for path in dest.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise


def _name_interpreter(contract: Path, python: str) -> None:
    text = contract.read_text(encoding="utf-8")
    quoted = python.replace("\\", "\\\\").replace('"', '\\"')
    line = f'python = "{quoted}"'
    text, count = re.subn(r"^python = .*$", lambda _: line, text, count=1, flags=re.MULTILINE)
    if count != 1:
        msg = f"{contract} has no line that names its interpreter."
        raise PreconditionError(msg)
    contract.write_text(text, encoding="utf-8")


def _git(folder: Path, *arguments: str) -> str:
    """Run git in a folder, blind to the user's configuration and environment."""
    environment = {
        "PATH": os.environ.get("PATH", os.defpath),
        "LC_ALL": "C.UTF-8",
        "HOME": os.devnull,
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CEILING_DIRECTORIES": str(folder.parent),
        "GIT_AUTHOR_NAME": AUTHOR,
        "GIT_AUTHOR_EMAIL": EMAIL,
        "GIT_AUTHOR_DATE": DATE,
        "GIT_COMMITTER_NAME": AUTHOR,
        "GIT_COMMITTER_EMAIL": EMAIL,
        "GIT_COMMITTER_DATE": DATE,
    }
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
    except FileNotFoundError:
        msg = "git is not installed."
        raise PreconditionError(msg, hint="Install git 2.28 or newer.") from None
    except subprocess.CalledProcessError as error:
        msg = f"git {arguments[0]} failed in {folder}."
        raise PreconditionError(msg, facts={"git says": error.stderr.strip()}) from None
    return done.stdout.strip()
