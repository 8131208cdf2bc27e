"""Rounds of the knn preset's evaluator, run as the product runs them: as a command in a checkout."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.preset import load_preset

PRESET = load_preset("knn")


@dataclass(frozen=True)
class Round:
    """What one command left: exit code, both outputs, and the result file if there is one."""

    code: int
    stdout: str
    stderr: str
    result: dict[str, Any]


def checkout(folder: Path, solution: str | None = None) -> Path:
    """Copy the preset's files to a new folder, with another solution.py if one is given."""
    shutil.copytree(
        PRESET.repo_files, folder, ignore=shutil.ignore_patterns("__pycache__", "*.pyc")
    )
    if solution is not None:
        (folder / "solution.py").write_text(solution)
    return folder


def change(name: str) -> str:
    """Give the text of a prepared solution."""
    return (PRESET.changes / name / "solution.py").read_text()


def environment(seed: int | str | None, result: Path | None) -> dict[str, str]:
    own = {"PATH": os.environ["PATH"]}
    if seed is not None:
        own["LABMATES_SEED"] = str(seed)
    if result is not None:
        own["LABMATES_RESULT"] = str(result)
    return own


def evaluate(folder: Path, *, split: str = "dev", seed: int | str | None = 7) -> Round:
    """Run one round; the result goes to a file outside the checkout."""
    path = folder.parent / f"result-{os.urandom(6).hex()}.json"
    done = subprocess.run(
        [sys.executable, "evaluate.py", "--split", split],
        cwd=folder,
        env=environment(seed, path),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    result = json.loads(path.read_text()) if path.exists() else {}
    return Round(done.returncode, done.stdout, done.stderr, result)


def rounds(folder: Path, *, most: int = 4) -> Iterator[dict[str, Any]]:
    """Give the results of up to `most` rounds with seeds of their own; each must end well."""
    for seed in range(most):
        done = evaluate(folder, seed=seed)
        assert (done.code, done.stdout, done.stderr) == (0, "", "")
        yield done.result
