"""The main job, whole: four lanes of processes research a tiny repository to its end."""

import hashlib
import time
from pathlib import Path

import pytest

from contracts.events import Decided, EvaluationRecorded, RetryRecorded
from contracts.replay import apply
from contracts.replay_state import GoalState
from roles.goal.context import GoalContext
from roles.lanes.launch import Lanes
from tests.tiny import RunLanes, git, make_goal, make_repository


def snapshot(repository: Path) -> dict[str, str]:
    """Digest everything of the user's repository that must stay as it is."""
    found = {}
    for path in sorted(repository.rglob("*")):
        name = path.relative_to(repository).as_posix()
        ours = name.startswith((".git/objects/", ".git/worktrees/", ".git/refs/heads/labmates/"))
        logs = name.startswith(".git/logs/refs/heads/labmates/")
        if path.is_file() and not ours and not logs and name != ".git/packed-refs":
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    refs = git(repository, "for-each-ref", "--format=%(refname) %(objectname)")
    found["refs"] = "\n".join(x for x in refs.splitlines() if "refs/heads/labmates/" not in x)
    return found


def until_over(running: Lanes, context: GoalContext, limit_s: float = 300) -> None:
    """Stay with the lanes until they end."""
    deadline = time.monotonic() + limit_s
    while running.tend():
        assert time.monotonic() < deadline, context.reader.goal()
        time.sleep(0.05)
    assert running.failed() == []
    assert running.given_up() == []


def replayed(context: GoalContext) -> GoalState:
    """Fold all events of the goal; every one must fit table, guards, roster and fences."""
    context.follower.catch_up()
    state = GoalState(goal_id=context.goal_id)
    events = [context.follower.by_revision[n] for n in sorted(context.follower.by_revision)]
    assert [event.revision for event in events] == list(range(1, len(events) + 1))
    assert [found for event in events for found in apply(state, event)] == []
    return state


@pytest.mark.timeout(400)
def test_four_lanes_reach_every_ending_and_leave_the_repository_as_it_was(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo")
    before = snapshot(repository)
    context = make_goal(repository, "tiny-1")
    until_over(run_lanes(context), context)
    state = replayed(context)
    goal = context.reader.goal()
    endings = {
        event.hypothesis_id: (event.decision.outcome, str(event.decision.reason))
        for event in context.follower.by_revision.values()
        if isinstance(event, Decided)
    }
    titles = {
        f"hyp_{n:04d}": title
        for n, title in enumerate(
            (
                "double",
                "worse",
                "triple",
                "more",
                "wrong",
                "boundary",
                "same",
                "hang",
                "best",
                "crash",
            ),
            start=1,
        )
    }
    assert {titles[str(hyp)]: end for hyp, end in endings.items()} == {
        "double": ("promoted", "holdout_validated"),
        "worse": ("retired", "contradicted"),
        "triple": ("promoted", "holdout_validated"),
        "more": ("promoted", "holdout_validated"),
        "wrong": ("retired", "contradicted"),
        "boundary": ("retired", "contradicted"),
        "same": ("retired", "no_measurable_gain"),
        "hang": ("retired", "retry_exhausted"),
        "best": ("promoted", "holdout_validated"),
        "crash": ("retired", "retry_exhausted"),
    }
    verdicts = [
        str(event.evaluation.verdict)
        for event in context.follower.by_revision.values()
        if isinstance(event, EvaluationRecorded)
    ]
    assert {"regression", "correctness", "boundary", "flat", "unscored", "improved"} <= set(
        verdicts
    )
    retries = [e for e in context.follower.by_revision.values() if isinstance(e, RetryRecorded)]
    assert any(event.retry.stop_reason == "base_conflict" for event in retries)
    assert goal["target_met"] == "1"
    assert git(repository, "show", "labmates/tiny-1/champion:value.txt") == "6\n"
    assert snapshot(repository) == before
    assert list((store_home / "worktrees" / "tiny-1").iterdir()) == []
    assert all(
        item.state in {"promoted", "retired"}
        for item in state.items.values()
        if item.kind == "hypothesis"
    )


@pytest.mark.timeout(400)
def test_three_executors_and_two_evaluators_share_one_goal(
    store_home: Path, server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    del store_home, server_of_home
    repository = make_repository(tmp_path / "repo", parallel=3, attempts=50)
    context = make_goal(repository, "tiny-2")
    lanes = run_lanes(context, "executor=3,evaluator=2,proposer=2,curator=2")
    until_over(lanes, context)
    replayed(context)
    assert git(repository, "show", "labmates/tiny-2/champion:value.txt") == "6\n"
