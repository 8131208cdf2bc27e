"""What the doctor does to worktrees and the champion's branch: settled ones only, one by one."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from contracts.words import State
from roles.workspace.worktree import Worktree, open_attempt
from tests.integration.roles.test_doctor import Doctor, doctor  # noqa: F401 - a fixture
from tests.support import wait_until
from tests.tiny import RunLanes, git, make_goal, make_repository
from tests.unit.cli.program import run

PROMOTED, ATTEMPT_RUNNING = State.PROMOTED, State.ATTEMPT_RUNNING
EDIT = """
import json, os, pathlib, time
title = json.loads(pathlib.Path(os.environ["LABMATES_BRIEF"]).read_text())["title"]
pathlib.Path("value.txt").write_text("2\\n")
if title == "long":
    time.sleep(600)
"""


@pytest.mark.timeout(200)
def test_field_case_56_only_worktrees_that_nobody_needs_are_removed_and_their_edits_kept(
    server_of_home: str,
    run_lanes: RunLanes,
    tmp_path: Path,
    doctor: Doctor,  # noqa: F811 - the fixture
) -> None:
    del server_of_home
    edit = tmp_path / "edit.py"
    edit.write_text(EDIT)
    python = shlex.quote(str(Path(sys.base_prefix, "bin", "python3")))
    repository = make_repository(
        tmp_path / "repo",
        changes={"double": {"value.txt": "2\n"}, "long": {"value.txt": "2\n"}},
        command=f"{python} {shlex.quote(str(edit))}",
    )
    context = make_goal(repository, "worktrees")
    lanes = run_lanes(context)

    def state(todo: str) -> str:
        assert lanes.tend()
        return context.reader.item(todo).get("state", "")

    wait_until(
        lambda: (state("todo_0001"), state("todo_0002")) == (PROMOTED, ATTEMPT_RUNNING),
        description="one is promoted while the other runs",
        timeout_s=60,
    )
    running = int(context.reader.item("todo_0002")["attempt"])

    def reopened() -> Worktree:  # as if its removal had been cut off
        return open_attempt(
            context.git,
            context.home,
            goal=context.goal_id,
            hypothesis="hyp_0001",
            attempt=1,
            base=git(repository, "rev-parse", "HEAD").strip(),
        )

    settled = reopened()
    (settled.path / "value.txt").write_text("an edit that nobody committed\n")
    root = context.home / "worktrees" / context.goal_id
    assert {each.name for each in root.iterdir()} == {"1", str(running)}

    with subprocess.Popen([sys.executable, "-c", "input()"], cwd=settled.path, stdin=-1) as worker:
        assert doctor("--fix")[1]["worktrees"]["outcome"] == "ok"
        worker.communicate(b"\n")
    assert {each.name for each in root.iterdir()} == {"1", str(running)}

    code, checks = doctor()
    assert (code, checks["worktrees"]["says"]) == (1, "of settled attempts: 1")
    assert (settled.path / "value.txt").exists()
    doctor("--fix")
    assert {each.name for each in root.iterdir()} == {str(running)}
    salvaged = f"labmates/{context.goal_id}/salvage/1:value.txt"
    assert git(repository, "show", salvaged) == "an edit that nobody committed\n"

    branch = f"refs/heads/labmates/{context.goal_id}/champion"
    champion = git(repository, "rev-parse", branch)
    git(repository, "update-ref", branch, "HEAD")
    assert doctor()[1]["champion branch"]["outcome"] == "found"
    doctor("--fix")
    assert git(repository, "rev-parse", branch) == champion

    run("down", "--goal-id", context.goal_id)
    assert not (root.exists() and list(root.iterdir()))
    run("goal", "remove", context.goal_id, "--no-archive")
    assert not root.exists()
    assert git(repository, "rev-parse", branch) == champion
    assert git(repository, "worktree", "list").count("\n") == 1
