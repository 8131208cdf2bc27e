"""How a goal's numbers and endings read: small metrics, rejected items, crashes, pauses."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import redis

from contracts import records as rec
from contracts.replay_state import AttemptState, GoalState
from contracts.store.writer import Held
from contracts.text import inert
from contracts.words import EndReason, StopReason, Verdict
from demo.summary import Ending, summary_document, summary_lines
from projection.attempts import detail, table
from projection.exports import lineage, mermaid
from projection.fold import fold
from projection.reading import replay_goal
from projection.report import markdown
from projection.rows import attempt_row
from projection.verify import verify_snapshot
from projection.view import View, view_of
from roles.cli import run
from tests.scenario import Plan, Scenario, body, manifest

WHY = "not worth the complexity"
Say = Callable[..., str]


@pytest.fixture
def say(
    server_url: str,
    goal_id: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Say:
    """Give what a command prints on the test's own goal."""
    monkeypatch.setenv("LABMATES_STORE_URL", server_url)
    monkeypatch.setenv("LABMATES_GOAL_ID", goal_id)

    def said(*argv: str) -> str:
        assert run(list(argv)) == 0
        return capsys.readouterr().out

    return said


class Rejecting(Scenario):
    """A scenario in which a person rejects every promotion."""

    def reject_all(self) -> "Rejecting":
        """Reject what waits and let the agents go on, until nothing waits."""
        self.play()
        while gates := self.reader.open_gates():
            for gate_id in gates:
                touched = int(self.reader.item(self.reader.gate(gate_id)["todo"])["touched"])
                decision = rec.GateDecision(verdict="rejected", shown="0" * 8, reason=WHY)
                self.writer.decide_gate(
                    operator="operator:ops",
                    gate_id=gate_id,
                    verdict="rejected",
                    touched=touched,
                    body=body(decision=decision),
                )
            self.play()
        return self

    def do_sign(self, held: Held, facts: dict[str, str]) -> None:
        """Sign the retirement of what a person rejected."""
        del facts
        self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)

    def do_cosign(self, held: Held, facts: dict[str, str]) -> None:
        """Give the second signature to it."""
        del facts
        self.sign(held, "retired", "second", EndReason.OPERATOR_REJECTED)


@pytest.fixture
def rejecting(redis_client: redis.Redis, goal_id: str) -> Rejecting:
    """Give a goal whose one good change a person rejected."""
    plans = (Plan("product", "gemm", Verdict.IMPROVED, 2.44),)
    policy: dict[str, object] = {"owner_gate": True}
    found = Rejecting(redis_client, goal_id, plans=plans, policy=policy)
    found.open()
    return found.reject_all()


def ending_of(state: GoalState, view: View) -> Ending:
    return Ending(
        state=state,
        view=view,
        stopped="",
        live=(),
        claims={},
        workspace=Path("/somewhere/knn-1"),
        preset="knn",
        published=None,
        several=False,
    )


def replayed(scenario: Scenario) -> tuple[GoalState, View]:
    found = replay_goal(scenario.reader)
    assert found.violations == ()
    return found.state, view_of(found.state, found.now)


def test_a_rejected_item_reads_so_with_its_reason_on_every_surface(
    rejecting: Rejecting, say: Say, tmp_path: Path
) -> None:
    state, view = replayed(rejecting)
    (row,) = view.attempts
    assert (row.result, row.reason) == ("rejected", WHY)
    assert f"rejected  {WHY}" in say("attempt", "list")
    shown = say("attempt", "show", "1")
    assert shown.splitlines()[0].endswith("product  rejected")
    assert f"reason     {WHY}\n" in shown
    assert f"retired, rejected: {WHY}" in "\n".join(lineage(state))
    assert f"retired, rejected: {WHY}" in mermaid(fold(state))
    say("report", "--out", str(tmp_path / "report"))
    report = (tmp_path / "report" / "report.md").read_text()
    assert f"| rejected | {WHY} |" in report
    assert f"| retired | rejected: {WHY} |" in report
    ending = ending_of(state, view)
    lines = summary_lines(ending)
    assert f"  rejected   1   product ({WHY})" in lines
    assert "  no gain    0" in lines
    assert not any(line.startswith("  not ended") for line in lines)
    assert summary_document(ending)["attempts"][0]["result"] == "rejected"


def test_a_rejected_item_that_was_never_tried_is_no_untried_one(rejecting: Rejecting) -> None:
    state, view = replayed(rejecting)
    (item,) = state.hypothesis_items()
    item.attempts.clear()
    lines = summary_lines(ending_of(state, replace(view, attempts=())))
    assert f"  rejected   1   product ({WHY})" in lines
    assert not any(line.startswith("  not tried") for line in lines)


def test_what_a_measurement_refuted_stays_refuted_evidence_after_a_rejection(
    rejecting: Rejecting,
) -> None:
    state, _ = replayed(rejecting)
    attempt = state.attempts[1]
    assert attempt.evaluation is not None
    attempt.evaluation = attempt.evaluation.model_copy(update={"verdict": Verdict.REGRESSION})
    text = markdown(state, view_of(state, attempt.started_at), _verification(rejecting))
    assert f"attempt 1: regression, then rejected; {WHY}" in text


def _verification(scenario: Scenario):  # type: ignore[no-untyped-def] # noqa: ANN202
    from contracts.store.snapshot import read_snapshot

    return verify_snapshot(read_snapshot(scenario.reader))


# Small numbers ---------------------------------------------------------------------------------


def test_a_small_metric_keeps_its_digits_on_every_surface(
    redis_client: redis.Redis, goal_id: str, say: Say, tmp_path: Path
) -> None:
    plans = (
        Plan("product", "gemm", Verdict.IMPROVED, 0.00244),
        Plan("norms", "gemm", Verdict.FLAT, 0.00245),
    )
    scenario = Scenario(redis_client, goal_id, plans=plans)
    scenario.speeds = dict.fromkeys(scenario.speeds, 0.001)
    scenario.open().play()
    state, view = replayed(scenario)
    say("report", "--out", str(tmp_path / "report"))
    texts = {
        "list": say("attempt", "list"),
        "show": say("attempt", "show", "1"),
        "champion": say("champion", "show"),
        "status": say("status"),
        "lineage": "\n".join(lineage(state)),
        "summary": "\n".join(summary_lines(ending_of(state, view))),
        "report": (tmp_path / "report" / "report.md").read_text(),
    }
    for name, text in texts.items():
        assert "0.00237" in text, name
        assert "0.00x" not in text, name
        assert "[0.00," not in text, name


# Crashes ---------------------------------------------------------------------------------------


def crashed(played: Scenario, **ended: object) -> tuple[GoalState, AttemptState]:
    """Give the played goal with its unscored attempt as a crash that left no number."""
    state, _ = replayed(played)
    attempt = next(
        each
        for each in state.attempts.values()
        if each.evaluation and each.evaluation.verdict == Verdict.UNSCORED
    )
    assert attempt.evaluation is not None
    process = manifest("bench.py").model_copy(
        update={"log_ref": f"attempt-{attempt.number}-dev.log", **ended}
    )
    measured = attempt.evaluation.measurement.model_copy(
        update={"label": "no number", "manifest": process}
    )
    attempt.evaluation = attempt.evaluation.model_copy(
        update={"measurement": measured, "failure": "no number", "stop_reason": StopReason.CRASH}
    )
    attempt.stop_reason = StopReason.CRASH
    return state, attempt


@pytest.mark.parametrize(
    ("ended", "cause", "row"),
    [
        ({"exit_code": 1}, "crash, exit code 1", "exit_code  1"),
        (
            {"exit_code": None, "signal": 11, "ended_by": "signal"},
            "crash, signal 11",
            "exit_code  none, signal 11",
        ),
        (
            {"exit_code": None, "signal": 9, "ended_by": "out_of_memory"},
            "crash, signal 9",
            "exit_code  none, signal 9, ended by out_of_memory",
        ),
    ],
)
def test_a_crash_says_how_it_ended_and_where_its_log_is(
    played: Scenario, ended: Mapping[str, object], cause: str, row: str
) -> None:
    state, attempt = crashed(played, **ended)
    log = f"attempt-{attempt.number}-dev.log"
    assert attempt_row(state, attempt).reason == cause
    view = view_of(state, attempt.started_at)
    assert cause in "\n".join(table(view))
    shown = detail(state, attempt, unit="x")
    assert row in shown
    assert f"log        {log}" in shown
    assert shown[-1] == f"next       labmates attempt show {attempt.number} --log"
    assert f"autotune ({cause}, {log})" in "\n".join(summary_lines(ending_of(state, view)))
    assert f"| {cause}; log {log} |" in markdown(state, view, _verification(played))


def test_a_measurement_that_ended_well_shows_its_exit_code(played: Scenario) -> None:
    state, _ = replayed(played)
    assert "exit_code  0" in detail(state, state.attempts[1], unit="x")


# A pause at the end ----------------------------------------------------------------------------


def test_a_paused_goal_that_is_done_says_so_and_offers_no_resume(own: Scenario, say: Say) -> None:
    own.writer.pause(operator="operator:ops", value=True, note="lunch", body=body(note="lunch"))
    text = say("status")
    assert "Paused         lunch; goal_done, nothing is left to resume\n" in text
    assert inert("labmates resume") not in text


def test_a_paused_goal_that_goes_on_offers_the_resume(
    redis_client: redis.Redis, goal_id: str, say: Say
) -> None:
    scenario = Scenario(redis_client, goal_id).open()
    scenario.writer.pause(operator="operator:ops", value=True, note="lunch", body=body(note="x"))
    assert "Paused         lunch; labmates resume\n" in say("status")
