"""The published, laxer protocol run on the champion: a number to lay beside others', deciding nothing."""

import contextlib
import json
import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from contracts.errors import LabmatesError
from demo.preset import Preset
from roles.goal.context import GoalContext
from roles.processes.process import base_env, run
from roles.workspace.checkout import checkout_fresh

THEIRS = {"knn": "Arbor with a model: 7.77x dev, 7.22x held-out"}
"""What others published by that protocol, by preset."""

_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Published:
    """The number, or why there is none."""

    value: float | None
    problem: str
    theirs: str


def measure_published(preset: Preset, context: GoalContext, commit: str) -> Published:
    """Run the published protocol in a fresh checkout of a commit; never raises for what fails."""
    theirs = THEIRS.get(preset.name, "")
    scratch = context.home / "scratch" / context.goal_id
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=scratch, prefix="published-"))
    except OSError as error:
        return Published(None, error.strerror or "no folder", theirs)
    try:
        return _measured(preset, context, commit, folder, theirs)
    except LabmatesError as error:
        return Published(None, error.message, theirs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            scratch.rmdir()


def _measured(
    preset: Preset, context: GoalContext, commit: str, folder: Path, theirs: str
) -> Published:
    contract = context.contract
    tree = checkout_fresh(
        context.git, commit, folder / "tree", contract.base_commit, contract.context.protected
    )
    python = contract.environment.python
    argv = [python if word == "python" else word for word in preset.published]
    env = base_env(contract.environment.env, home=folder, tmp=folder)
    done = run(argv, cwd=tree, env=env, timeout_s=_TIMEOUT_S)
    if not done.ok:
        return Published(None, f"it ended by {done.ended_by}", theirs)
    try:
        value = json.loads(done.stdout.strip().splitlines()[-1])["score"]
    except (ValueError, IndexError, KeyError, TypeError):
        return Published(None, "it printed no score", theirs)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return Published(None, "its score is no number", theirs)
    return Published(float(value), "", theirs)
