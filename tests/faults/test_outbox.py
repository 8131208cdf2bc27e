"""Finished results outlive their worker and an outage: delivered once, and nothing runs again."""

import hashlib
import json
import os
import signal
from pathlib import Path

import pytest

from contracts.events import RetryRecorded, StaleResultRejected
from contracts.store.connect import connect
from roles.drivers.base import Brief, DriverOutcome
from roles.goal.context import GoalContext
from roles.lanes.ending import live_lanes
from tests.integration.test_whole_run import replayed, until_over
from tests.steps import KilledError, killed_before_delivery, lane_of, step
from tests.support import wait_until
from tests.tiny import CHANGES, RunLanes, git, make_goal, make_repository


def files_of(context: GoalContext, below: str = "") -> list[Path]:
    return sorted((context.folder / "outbox" / below).glob("*.json"))


def ran(context: GoalContext) -> dict[str, str]:
    """Digest the logs of everything that ever ran; a run that is repeated changes them."""
    logs = sorted((context.folder / "logs").glob("*.log"))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in logs}


def lead_to(context: GoalContext, wanted: str) -> None:
    """Let other steps run until the wanted one is next."""
    evaluator, executor = lane_of(context, "evaluator-1"), lane_of(context, "executor-1")
    proposer = lane_of(context, "proposer-1")
    if wanted == "baseline":
        return
    step(evaluator)
    step(proposer)
    if wanted in {"evidence", "retry"}:
        return
    step(executor)
    if wanted == "evaluation":
        return
    assert step(evaluator) == "supported"


@pytest.mark.parametrize(
    "case",
    [
        ("evidence", "executor-1", "double", "evidence_recorded"),
        ("retry", "executor-1", "nothing", "needs_retry"),
        ("evaluation", "evaluator-1", "double", "supported"),
        ("holdout", "evaluator-1", "double", "promotion_gate"),
        ("failed_holdout", "evaluator-1", "overfit", "supported"),
    ],
    ids=lambda case: case[0],
)
def test_research_case_32_a_killed_worker_s_result_is_delivered_by_its_next_life_and_once(
    server_of_home: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    case: tuple[str, str, str, str],
) -> None:
    del server_of_home
    assert_delivered_by_next_life(tmp_path, monkeypatch, case)


def test_research_case_33_the_baseline_that_was_paid_for_is_adopted_not_measured_again(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    case = ("baseline", "evaluator-1", "double", "closed")
    assert_delivered_by_next_life(tmp_path, monkeypatch, case)


def assert_delivered_by_next_life(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: tuple[str, str, str, str]
) -> None:
    kind, agent, title, then = case
    changes = {"nothing": {"value.txt": "1\n"}, "overfit": {"value.txt": "1.5\n"}, **CHANGES}
    repository = make_repository(tmp_path / "repo", changes={title: changes[title]})
    if title == "overfit":  # better on dev, the same on held-out data
        overfit(repository)
    context = make_goal(repository, "kept")
    lead_to(context, kind.removeprefix("failed_"))
    killed_before_delivery(lane_of(context, agent, "1"), monkeypatch)
    [place] = files_of(context)
    assert json.loads(place.read_text())["agent_id"] == agent
    before = ran(context)
    questions = context.reader.goal().get("holdouts", "0")
    assert step(lane_of(context, agent, "2")) == then
    assert ran(context) == before
    assert context.reader.goal().get("holdouts", "0") == questions
    assert files_of(context) == files_of(context, "refused") == []
    replayed(context)


class Interrupted:
    """A driver that dies with its worker, its edits not yet committed."""

    @staticmethod
    def run(brief: Brief) -> DriverOutcome:
        """Edit and die."""
        (brief.worktree / "value.txt").write_text("1300 lines\n")
        raise KilledError


def test_research_case_36_edits_of_a_worker_that_died_are_kept_in_a_ref(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo", changes={"double": CHANGES["double"]})
    context = make_goal(repository, "edits")
    lead_to(context, "evidence")
    with monkeypatch.context() as patch:
        patch.setattr("roles.steps.executing.get_driver", lambda _name: Interrupted)
        with pytest.raises(KilledError):
            step(lane_of(context, "executor-1", "1"))
    assert step(lane_of(context, "executor-1", "2")) == "evidence_recorded"
    assert git(repository, "show", "labmates/edits/salvage/1:value.txt") == "1300 lines\n"
    assert git(repository, "show", "labmates/edits/hyp_0001/1:value.txt") == "2\n"


def overfit(repository: Path) -> None:
    """Make held-out rounds score the same whatever the candidate does."""
    bench = repository / "bench.py"
    toml = repository / "labmates.toml"
    bench.write_text(
        bench.read_text().replace(
            "score = float(text)", 'score = float("1" if sys.argv[1:] else text)'
        )
    )
    toml.write_text(
        toml.read_text().replace(
            'holdout = "python3 bench.py"', 'holdout = "python3 bench.py same"'
        )
    )
    git(repository, "commit", "--quiet", "--all", "--message", "a held-out split of its own")


def test_a_result_that_was_delivered_without_an_answer_is_not_called_late(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    repository = make_repository(tmp_path / "repo", changes={"double": CHANGES["double"]})
    context = make_goal(repository, "answered")
    lead_to(context, "evidence")
    killed_before_delivery(lane_of(context, "executor-1", "1"), monkeypatch)
    [place] = files_of(context)
    text = place.read_text()
    assert step(lane_of(context, "executor-1", "2")) == "evidence_recorded"
    place.write_text(text)  # as it is when the worker died before it heard the answer
    step(lane_of(context, "executor-1", "3"))
    assert files_of(context) == files_of(context, "refused") == []
    events = replayed(context).events.values()
    assert not any(isinstance(event, StaleResultRejected) for event in events)


def test_a_result_that_came_too_late_is_on_record_and_set_aside(
    server_of_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del server_of_home
    monkeypatch.setenv("LABMATES_LEASE_S", "0.3")
    repository = make_repository(tmp_path / "repo", changes={"double": CHANGES["double"]})
    context = make_goal(repository, "late")
    lead_to(context, "evidence")
    killed_before_delivery(lane_of(context, "executor-1", "1"), monkeypatch)
    [place] = files_of(context)
    fence = json.loads(place.read_text())["fence"]
    other = lane_of(context, "executor-2")
    wait_until(lambda: step(other) == "evidence_recorded", description="another one finishes")
    step(lane_of(context, "executor-1", "2"))
    step(lane_of(context, "executor-1", "3"))
    assert files_of(context) == []
    assert files_of(context, "refused")
    late = [e for e in replayed(context).events.values() if isinstance(e, StaleResultRejected)]
    assert [event.fence for event in late] == [fence]
    assert late[0].result.startswith("evidence of attempt 1, commit ")
    assert len(late[0].result_sha256) == 64


@pytest.mark.timeout(200)
def test_evidence_that_a_full_store_refused_is_delivered_after_a_kill_without_another_run(
    server_of_home: str, run_lanes: RunLanes, tmp_path: Path
) -> None:
    count, go = tmp_path / "count", tmp_path / "go"
    command = (
        f"sh -c 'echo x >> {count}; while [ ! -e {go} ]; do sleep 0.02; done; echo 2 > value.txt'"
    )
    repository = make_repository(
        tmp_path / "repo", changes={"double": CHANGES["double"]}, command=command
    )
    context = make_goal(repository, "full")
    running = run_lanes(context)
    wait_until(count.exists, description="the attempt runs", timeout_s=60)
    client = connect(server_of_home)
    client.config_set("maxmemory", "1")
    go.touch()
    wait_until(lambda: files_of(context), description="the evidence is on disk", timeout_s=30)
    os.kill(live_lanes(context)["executor-1"][0], signal.SIGKILL)
    client.config_set("maxmemory", "0")
    until_over(running, context)
    assert count.read_text() == "x\n"
    state = replayed(context)
    assert [str(attempt.outcome) for attempt in state.attempts.values()] == ["promoted"]
    assert not any(isinstance(event, RetryRecorded) for event in state.events.values())
    assert files_of(context) == files_of(context, "refused") == []
    evidence = state.attempts[1].evidence
    assert evidence is not None  # a resumed attempt would say that git made it
    assert evidence.manifest.argv[0] == "sh"
