"""A driver that plants things around its worktree, or leaves what git cannot store."""

import json
from pathlib import Path

import pytest

from contracts.events import EvaluationRecorded, EvidenceRecorded, HypothesisAdded, RetryRecorded
from roles.goal.context import GoalContext
from tests.integration.test_whole_run import replayed, until_over
from tests.tiny import BENCH, RunLanes, git, make_goal, make_repository

DRIVER = """
import hashlib, json, os, pathlib, subprocess, zlib

title = json.load(open(os.environ["LABMATES_BRIEF"]))["title"]
value = pathlib.Path("value.txt")

def g(*words):
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=True)
    return done.stdout.strip()

common = pathlib.Path(g("rev-parse", "--git-common-dir"))

def loose(kind, data, oid=""):
    raw = kind.encode() + b" %d\\0" % len(data) + data
    oid = oid or hashlib.sha1(raw).hexdigest()
    place = common / "objects" / oid[:2] / oid[2:]
    place.parent.mkdir(exist_ok=True)
    place.unlink(missing_ok=True)
    place.write_bytes(zlib.compress(raw))
    return oid

value.write_text("2\\n")
if title == "nested":
    subprocess.run(["git", "init", "-q", "lib"], check=True)
elif title == "name":
    pathlib.Path("git~1").mkdir()
    pathlib.Path("git~1/x").write_text("x")
elif title == "bytes":
    open(b"\\xff.txt", "w").close()
elif title == "config":
    g("config", "core.pager", "true")
elif title == "hook":
    (common / "hooks").mkdir(exist_ok=True)
    (common / "hooks" / "pre-commit").write_text("#!/bin/sh\\n")
elif title == "replace":
    g("replace", "HEAD:eval/bench.py", "HEAD:driver.py")
elif title == "exclude":
    (common / "info").mkdir(exist_ok=True)
    (common / "info" / "exclude").write_text("*.py\\n")
elif title == "hidden":
    pathlib.Path("conftest.py").write_text("x = 1\\n")
elif title == "ignored":
    pathlib.Path(".gitignore").write_text("*\\n")
elif title == "subtree":
    evil = pathlib.Path("eval/bench.py").read_text().replace("float(text)", "50 * float(text)")
    value.write_text("1\\n#\\n")
    loose("tree", b"100644 bench.py\\0" + bytes.fromhex(loose("blob", evil.encode())),
          g("rev-parse", "HEAD:eval"))
"""


def goal_of(folder: Path, goal_id: str, *titles: str) -> tuple[Path, GoalContext]:
    """Approve a goal whose driver is the program above; each title is one of its branches."""
    changes = {title: {"value.txt": "2\n"} for title in titles}
    repository = make_repository(folder / "repo", changes=changes, attempts=3 * len(titles))
    contract = repository / "labmates.toml"
    text = contract.read_text().replace("bench.py", "eval/bench.py")
    command = 'driver = "command"\ndriver_command = "python3 driver.py"\nlow_water'
    contract.write_text(text.replace("low_water", command))
    (repository / "eval").mkdir()
    (repository / "bench.py").unlink()
    (repository / "eval" / "bench.py").write_text(BENCH)
    (repository / "driver.py").write_text(DRIVER)
    queue = repository / "hypotheses.jsonl"
    lines = [json.loads(line) for line in queue.read_text().splitlines()]
    for line in lines:
        line["driver"] = "command"
        del line["change"]
    queue.write_text("".join(json.dumps(line) + "\n" for line in lines))
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message", "a driver")
    return repository, make_goal(repository, goal_id)


def ends(context: GoalContext) -> dict[str, tuple[str, str]]:
    """Give by title what became of the last attempt, and why."""
    titles: dict[str | None, str] = {}
    found: dict[str, tuple[str, str]] = {}
    said: dict[str | None, str] = {}
    for _, event in sorted(context.follower.by_revision.items()):
        if isinstance(event, HypothesisAdded):
            titles[event.hypothesis_id] = event.hypothesis.title
        elif isinstance(event, EvidenceRecorded):
            said[event.hypothesis_id] = "; ".join(event.evidence.scope_violations)
        elif isinstance(event, RetryRecorded):
            retry = event.retry
            found[titles[event.hypothesis_id]] = (str(retry.stop_reason), retry.detail)
        elif isinstance(event, EvaluationRecorded):
            why = said[event.hypothesis_id]
            found[titles[event.hypothesis_id]] = (str(event.evaluation.verdict), why)
    return found


@pytest.mark.timeout(400)
def test_what_a_driver_plants_is_its_boundary_and_what_git_cannot_store_ends_the_attempt(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del server_of_home
    titles = (
        "nested",
        "name",
        "bytes",
        "config",
        "hook",
        "replace",
        "exclude",
        "hidden",
        "ignored",
    )
    repository, context = goal_of(tmp_path, "planted-1", *titles)
    until_over(run_lanes(context), context)
    state = replayed(context)
    found = ends(context)
    kinds = {title: kind for title, (kind, _) in found.items()}
    assert kinds == {
        "nested": "driver_error",
        "name": "driver_error",
        **dict.fromkeys(titles[2:], "boundary"),
    }
    assert "lib" in found["nested"][1]
    assert "git~1/x" in found["name"][1]
    assert found["config"][1] == ".git/config: changed by the driver"
    assert found["hook"][1] == ".git/hooks/pre-commit: added by the driver"
    assert found["replace"][1].startswith("refs/replace/")
    assert found["replace"][1].endswith(": added by the driver")
    assert found["exclude"][1].startswith(".git/info/exclude: ")
    assert found["hidden"][1].startswith("conftest.py: ")
    assert found["ignored"][1].startswith(".gitignore: ")
    assert {item.state for item in state.items.values() if item.kind == "hypothesis"} == {"retired"}
    assert not git(repository, "branch", "--list", "labmates/planted-1/champion")


@pytest.mark.timeout(400)
def test_a_rewritten_subtree_of_the_approved_base_measures_nothing(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del server_of_home
    repository, context = goal_of(tmp_path, "planted-2", "subtree")
    subtree = git(repository, "rev-parse", "HEAD:eval").strip()
    until_over(run_lanes(context), context)
    replayed(context)
    kind, why = ends(context)["subtree"]
    assert (kind, subtree in why) == ("driver_error", True), why
    assert context.reader.goal()["champion_commit"] == context.contract.base_commit
