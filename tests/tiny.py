"""A goal that runs whole in seconds: the score is a number in a file, a round takes 50 ms."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Protocol

import psutil

from contracts.store.connect import connect, store_url
from contracts.store.library import ensure_library
from contracts.store.writer import Writer
from roles.goal.context import GoalContext, open_context
from roles.goal.contract_file import read_contract
from roles.goal.goals import create_goal
from roles.lanes.launch import Lanes, lanes_from, register_lanes

BENCH = """
import json, os, sys, time
from pathlib import Path
from typing import Protocol
text = Path("value.txt").read_text().strip()
if text == "hang":
    time.sleep(600)
if text == "crash":
    sys.exit(3)
ok = text.replace(".", "").isdigit()
seed = int(os.environ.get("LABMATES_SEED", "0")) % 7
score = float(text) * (1 + seed / 1000) if ok else None
result = {"pass": ok, "score": score, "label": "" if ok else "0/1 exact"}
Path(os.environ["LABMATES_RESULT"]).write_text(json.dumps(result))
"""

TOML = """
[context]
objective = "a greater number"
editable = ["value.txt"]
protected = ["bench.py"]

[environment]
python = "{python}"
timeout_s = {timeout_s}

[evaluation]
metric = "score"
direction = "maximize"
dev = "python3 bench.py"
holdout = "python3 bench.py"
channel = "file"
seed = "drawn"
target = 5.0
pairs = {pairs}
min_gain = 0.05

[strategy]
stop = "queue_empty"
low_water = 20

[policy]
max_attempts = {attempts}
max_parallel = {parallel}
retries = 1
"""

# title -> the new value; a name of a file besides value.txt means an edit out of scope
CHANGES: Mapping[str, Mapping[str, str]] = {
    "double": {"value.txt": "2\n"},
    "worse": {"value.txt": "0.5\n"},
    "triple": {"value.txt": "3\n"},
    "more": {"value.txt": "4\n"},
    "wrong": {"value.txt": "much\n"},
    "boundary": {"bench.py": "print(99)\n"},
    "same": {"value.txt": "4.01\n"},
    "hang": {"value.txt": "hang\n"},
    "best": {"value.txt": "6\n"},
    "crash": {"value.txt": "crash\n"},
}


def make_repository(
    folder: Path,
    *,
    pairs: int = 2,
    parallel: int = 1,
    attempts: int = 30,
    timeout_s: float = 2.0,
    changes: Mapping[str, Mapping[str, str]] = CHANGES,
    command: str = "",
    guard: str = "",
    attempt_timeout_s: float = 600.0,
) -> Path:
    """Make the repository with its queue and its prepared changes, in one commit.

    With a `command`, every attempt runs it instead of taking its prepared change.
    """
    folder.mkdir(parents=True)
    (folder / "value.txt").write_text("1\n")
    (folder / "bench.py").write_text(BENCH)
    # not `python3` of PATH: a shim there can cost ten times the round
    python = Path(sys.base_prefix, "bin", "python3")
    text = TOML.format(
        pairs=pairs, parallel=parallel, attempts=attempts, timeout_s=timeout_s, python=python
    )
    if command:
        text = text.replace("[strategy]\n", f"[strategy]\ndriver_command = {json.dumps(command)}\n")
    if guard:
        text = text.replace("[strategy]\n", f"guard = {json.dumps(guard)}\n\n[strategy]\n")
    text += f"attempt_timeout_s = {attempt_timeout_s}\n"
    (folder / "labmates.toml").write_text(text)
    lines = []
    for number, (title, files) in enumerate(changes.items(), start=1):
        for name, content in files.items():
            place = folder / "changes" / title / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(content)
        lines.append(
            {
                "hypothesis": f"Set the number as {title} does.",
                "rationale": "a test",
                "confidence": 0.9,
                "expected_delta": "some",
                "priority": number,
                "source": "oracle",
                "feasible": True,
                "blocker": None,
                "codebase_mapping": "value.txt",
                "title": title,
                "mechanism_family": f"family_{number}",
                "driver": "command" if command else "files",
                "change": title,
            }
        )
    (folder / "hypotheses.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "a tiny task")
    return folder


def git(folder: Path, *arguments: str) -> str:
    """Run git with an identity of its own; gives its output."""
    identity = [
        f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    ]
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **dict.fromkeys(identity, "t@t")},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout


def make_goal(repository: Path, goal_id: str) -> GoalContext:
    """Approve the repository's contract as a goal of the environment's store."""
    planned = read_contract(repository, goal_id=goal_id)
    url = store_url()
    client = connect(url)
    ensure_library(client)
    create_goal(Writer(client, goal_id, url=url), planned.contract, "operator:test", repository)
    return open_context(goal_id)


def labmates(*arguments: str, timeout_s: float = 60) -> "subprocess.CompletedProcess[str]":
    """Run the command line as a process of its own."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("labmates")), *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


class RunLanes(Protocol):
    """Starts the lanes of a goal; what is left of them ends with the test."""

    def __call__(self, context: GoalContext, lanes: str = "") -> Lanes:
        """Start one lane of each role, or as many as `lanes` says."""
        ...


@contextmanager
def lanes_of_a_test() -> Iterator[RunLanes]:
    """Give what starts lanes; at the end kill every process of theirs that still lives."""
    started: list[Lanes] = []

    def run(context: GoalContext, lanes: str = "") -> Lanes:
        wanted = lanes_from(lanes)
        register_lanes(context, wanted, "operator:test")
        running = Lanes(context)
        running.start(wanted)
        started.append(running)
        return running

    try:
        yield run
    finally:
        for lanes in started:
            lanes.stopping = True
            for process in lanes.processes():
                if process.poll() is None:
                    family = psutil.Process(process.pid).children(recursive=True)
                    process.kill()
                    process.wait()
                    for child in family:
                        with suppress(psutil.NoSuchProcess):
                            child.kill()
