"""Reading git, and nothing else: the diff of a change, in the goal's repository.

The repository's path is written beside the goal by `approve` and the demo. No hook, external diff
or filter of the repository is run, and no lock is taken.
"""

import json
import os
import subprocess
from pathlib import Path

from contracts.errors import MachineError, PreconditionError
from contracts.store.home import labmates_home

_QUIET = (
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.quotePath=true",
    "-c",
    "gc.auto=0",
)
TIMEOUT_S = 60.0


def goal_folder(goal_id: str) -> Path:
    """Give the goal's folder on this machine."""
    return labmates_home() / "goals" / goal_id


def repository_of(goal_id: str) -> Path:
    """Give the goal's repository.

    Raises:
        PreconditionError: This machine does not know it, or it is gone.
    """
    path = goal_folder(goal_id) / "goal.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        repository = Path(found["repository"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"this machine does not know the repository of the goal {goal_id}"
        raise PreconditionError(
            message,
            facts={"looked in": str(path)},
            hint="Diffs can be shown on the machine where the goal was approved.",
        ) from error
    if not repository.is_dir():
        message = f"the repository of the goal {goal_id} is gone: {repository}"
        raise PreconditionError(message, facts={"named in": str(path)})
    return repository


def read_git(repository: Path, *args: str) -> str:
    """Run one reading git command and give its output, undecodable bytes replaced.

    Raises:
        PreconditionError: There is no git, or it does not know the commit.
        MachineError: Git does not end within `TIMEOUT_S`.
    """
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    clean |= {
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_OPTIONAL_LOCKS": "0",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_TERMINAL_PROMPT": "0",
        "LC_ALL": "C.UTF-8",
    }
    argv = ["git", *_QUIET, "-C", str(repository), *args]
    try:
        done = subprocess.run(
            argv,
            env=clean,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except FileNotFoundError as error:
        message = "git is not installed"
        raise PreconditionError(message, mend=[["apt-get", "install", "-y", "git"]]) from error
    except subprocess.TimeoutExpired as error:
        message = f"git gave no answer within {TIMEOUT_S:g} s"
        raise MachineError(message, facts={"command": " ".join(argv)}) from error
    if done.returncode:
        message = f"git cannot show this from {repository}"
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        facts = {"command": " ".join(args), "git says": tail[0] if tail else "nothing"}
        raise PreconditionError(message, facts=facts)
    return done.stdout.decode(errors="replace")


def diff(repository: Path, base: str, commit: str, *, stat: bool = False) -> str:
    """Give the change from one commit to another as a diff, or as its summary.

    Raises:
        PreconditionError: The repository lacks one of the commits.
    """
    shape = ["--stat=80"] if stat else ["--patch"]
    options = ["--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", *shape]
    return read_git(repository, "diff", *options, base, commit, "--")
