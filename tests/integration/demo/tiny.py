"""A preset that runs whole in seconds, and the demo run on it as a process of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from demo.preset import Preset
from tests.tiny import make_repository

CHANGES: Mapping[str, Mapping[str, str]] = {
    "double": {"value.txt": "2\n"},
    "worse": {"value.txt": "0.5\n"},
    "wrong": {"value.txt": "much\n"},
    "boundary": {"bench.py": "print(99)\n"},
    "same": {"value.txt": "2.01\n"},
    "hang": {"value.txt": "hang\n"},
    "best": {"value.txt": "6\n"},
}

RUN = """
import sys
from pathlib import Path
from contracts.errors import LabmatesError
from demo.commands import run_here
from roles.render import print_error
from tests.integration.demo.tiny import tiny_preset

options = sys.argv[2:]
try:
    code = run_here(
        tiny_preset(Path(sys.argv[1])), "", resume="--resume" in options, as_json="--json" in options
    )
except LabmatesError as error:
    code = print_error(error, as_json="--json" in options)
except KeyboardInterrupt:
    code = 130
sys.exit(code)
"""


def make_preset(folder: Path, changes: Mapping[str, Mapping[str, str]] = CHANGES) -> Preset:
    """Write a preset's folder: `repo/` and `changes/`."""
    repo = make_repository(folder / "repo", changes=changes)
    shutil.rmtree(repo / ".git")
    (repo / "changes").rename(folder / "changes")
    toml = repo / "labmates.toml"
    text = toml.read_text().replace(
        'direction = "maximize"\n', 'direction = "maximize"\nunit = "x"\n'
    )
    toml.write_text(text.replace('"python3 bench.py"', '"python bench.py"'))
    return tiny_preset(folder)


def tiny_preset(folder: Path) -> Preset:
    """Give the preset that `make_preset` wrote."""
    return Preset(
        name="tiny",
        title="a greater number",
        repo_files=folder / "repo",
        contract=folder / "repo" / "labmates.toml",
        queue=folder / "repo" / "hypotheses.jsonl",
        changes=folder / "changes",
        target=5.0,
        published=(),
    )


def start_demo(
    folder: Path, *options: str, env: Mapping[str, str] | None = None
) -> "subprocess.Popen[str]":
    """Start the run on the preset of a folder, its output in pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
        env={**os.environ, **(env or {})},
    )
