"""The evaluator: measures, judges by the contract's numbers, and signs what the records bear out.

Each claim is one step, by the state of the item: measure the baseline, evaluate evidence, classify
what was evaluated, ask the held-out split, sign. Nothing an executor or a candidate says is used
as a number; the scope of the commit is found again from git.
"""

import json

import structlog

from contracts import records
from contracts.canonical import canonical
from contracts.errors import LabmatesError, MachineError, RefusedError
from contracts.events import EvaluationRecorded, HoldoutRecorded
from contracts.words import (
    EndReason,
    EvalStatus,
    EventType,
    MetricStatus,
    Split,
    State,
    StopReason,
    TodoKind,
    Verdict,
)
from roles.measuring.rounds import StoppedError
from roles.steps import outbox
from roles.steps.judging import bench_for, judge, number_checks, target_met
from roles.steps.lane import Lane, said
from roles.steps.signing import cosign_retirement, sign_promotion, sign_retirement

log = structlog.get_logger()

FAILURE_PAUSE_S = 2.0
"""Seconds before an evaluation that the machine failed is given back; four times more each time."""


def evaluate(lane: Lane, item: dict[str, str]) -> None:
    """Carry one claim of the evaluator to its end.

    A failure of the machine gives the claim back and is counted; it is never the candidate's.
    """
    try:
        _step(lane, item)
    except StoppedError as error:
        reason = "step_overdue" if lane.overdue else "stopped"
        lane.context.writer.release(lane.require(), reason, detail=said(error))
        lane.drop()
    except MachineError as error:
        log.warning("evaluation_failed", error=error.message, facts=error.facts)
        lane.say("waiting", f"could not measure: {error.message}")
        # a machine that is busy gets time before the next try, and a third failure asks a person
        lane.pause(FAILURE_PAUSE_S * 4 ** int(item.get("lapses") or 0))
        lane.context.writer.release(lane.require(), "evaluation_failed", detail=said(error))
        lane.drop()


def _step(lane: Lane, item: dict[str, str]) -> None:
    if item["kind"] == TodoKind.BASELINE:
        _measure_baseline(lane, item)
        return
    state = State(item["state"])
    if item.get("signed_to") == State.RETIRED and item.get("signed_role") == "proposer":
        cosign_retirement(lane, item)
    elif state is State.EVIDENCE_RECORDED:
        _evaluate_evidence(lane, item)
    elif state is State.EVALUATED:
        _classify(lane, item, _evaluation(lane, item))
    elif state is State.SUPPORTED:
        _ask_holdout(lane, item)
    elif state is State.PROMOTION_GATE:
        _sign(lane, item)
    else:
        message = f"an evaluator has nothing to do in {state}"
        raise LabmatesError(message)


def _measure_baseline(lane: Lane, item: dict[str, str]) -> None:
    """Iteration 0: both splits of the approved base."""
    finished = outbox.waiting(lane, item, EventType.BASELINE_RECORDED)
    if finished is None:
        contract = lane.context.contract
        lane.say("working", "the baseline on both splits")
        bench = bench_for(lane, "baseline", "baseline")
        dev = bench.alone(contract.base_commit, Split.DEV).measurement
        holdout = None
        if contract.evaluation.holdout:
            holdout = bench.alone(contract.base_commit, Split.HOLDOUT).measurement
        baseline = records.Baseline(dev=dev, holdout=holdout)
        finished = outbox.finish(
            lane,
            EventType.BASELINE_RECORDED,
            canonical({"baseline": baseline.to_json_dict()}),
            facts={"commit": contract.base_commit},
            about={"state": item["state"]},
            result=f"baseline {dev.value}",
        )
    outbox.deliver(lane, finished)
    lane.drop()


def _evaluation(lane: Lane, item: dict[str, str]) -> records.Evaluation:
    event = lane.context.follower.event(int(item["evaluation_rev"]))
    if not isinstance(event, EvaluationRecorded):
        message = f"revision {item['evaluation_rev']} is no evaluation"
        raise LabmatesError(message)
    return event.evaluation


# Dev ------------------------------------------------------------------------------------------


def _evaluate_evidence(lane: Lane, item: dict[str, str]) -> None:
    finished = outbox.waiting(lane, item, EventType.EVALUATION_RECORDED)
    if finished is None:
        evaluation = judge(lane, item)
        finished = outbox.finish(
            lane,
            EventType.EVALUATION_RECORDED,
            canonical({"evaluation": evaluation.to_json_dict()}),
            to=State.EVALUATED,
            facts={"confirmation": evaluation.confirmation or ""},
            about={"state": item["state"], "evidence_rev": item["evidence_rev"]},
            result=f"evaluation of attempt {evaluation.attempt}: {evaluation.verdict}, "
            f"{evaluation.measurement.value}",
        )
    answer = outbox.deliver(lane, finished)
    lane.moved(answer["version"])
    fresh = lane.context.reader.item(lane.require().todo_id)
    _classify(lane, fresh, _evaluation(lane, fresh))


def _classify(lane: Lane, item: dict[str, str], evaluation: records.Evaluation) -> None:
    """Take the one way out of `evaluated` that the verdict has."""
    context, held = lane.context, lane.require()
    verdict = evaluation.verdict
    if item.get("doomed") == "1":
        sign_retirement(lane, item, EndReason.OPERATOR_REJECTED, "the operator refused it")
        return
    if verdict is Verdict.IMPROVED:
        moved = item.get("base_rev") != context.reader.require_goal()["champion_rev"]
        if context.contract.evaluation.holdout or evaluation.confirmation or moved:
            context.writer.advance(held, State.SUPPORTED)
        else:
            met = "1" if target_met(lane, evaluation.measurement) else "0"
            context.writer.advance(held, State.PROMOTION_GATE, target_met=met)
    elif verdict is Verdict.FLAT:
        why = evaluation.failure or "no gain was proven"
        sign_retirement(lane, item, EndReason.NO_MEASURABLE_GAIN, why)
        return
    elif verdict is Verdict.UNSCORED or evaluation.stop_reason is StopReason.GUARD_REWORK:
        context.writer.advance(held, State.NEEDS_RETRY, reason=str(evaluation.stop_reason or ""))
    else:
        context.writer.advance(held, State.CONTRADICTED, reason=str(verdict))
    lane.drop()


# Held-out --------------------------------------------------------------------------------------


def _ask_holdout(lane: Lane, item: dict[str, str]) -> None:
    context, contract = lane.context, lane.context.contract
    goal = context.reader.require_goal()
    if item.get("doomed") == "1":
        sign_retirement(lane, item, EndReason.OPERATOR_REJECTED, "the operator refused it")
        return
    if item.get("base_rev") != goal["champion_rev"]:
        if item.get("wants_confirm"):  # and no attempt can come any more, or it would not be here
            sign_retirement(lane, item, EndReason.NO_FOLLOW_UP, "no attempt is left to confirm it")
            return
        context.writer.release(lane.require(), "stale_base")
        lane.drop()
        return
    if item.get("holdout_rev"):
        event = context.follower.event(int(item["holdout_rev"]))
        if isinstance(event, HoldoutRecorded) and event.holdout.measurement is not None:
            _conclude_holdout(lane, event.holdout, recorded=True)
            return
    if not contract.evaluation.holdout:
        message = "the contract has no held-out split"
        raise LabmatesError(message)
    finished = outbox.waiting(lane, item, EventType.HOLDOUT_RECORDED)
    if finished is not None:  # the question was counted, and its answer is here
        _conclude_holdout(
            lane,
            records.Holdout.model_validate(json.loads(finished.body)["holdout"]),
            recorded=False,
        )
        return
    question = int(goal.get("holdouts") or 0) + 1
    asked = records.Holdout(attempt=int(item["attempt"]), status="asked", question=question)
    try:
        context.writer.record(
            lane.require(),
            EventType.HOLDOUT_RECORDED,
            canonical({"holdout": asked.to_json_dict()}),
            status="asked",
        )
    except RefusedError as error:
        if error.reason != "holdout_used_up":
            raise
        sign_retirement(lane, item, EndReason.NO_FOLLOW_UP, "no held-out question is left")
        return
    bench = bench_for(lane, f"attempt-{item['attempt']}-holdout", item["hyp"])
    measured = bench.against(
        item["commit"],
        goal["champion_commit"],
        Split.HOLDOUT,
        hypothesis_id=goal.get("champion_hyp") or None,
        revision=int(goal["champion_rev"]),
    )
    answer = records.Holdout(
        attempt=int(item["attempt"]),
        status="measured",
        question=question,
        measurement=measured.measurement,
        checks=tuple(number_checks(lane, measured)),
        target_met=target_met(lane, measured.measurement),
    )
    _conclude_holdout(lane, answer, recorded=False)


def _conclude_holdout(lane: Lane, holdout: records.Holdout, *, recorded: bool) -> None:
    """Go to the promotion gate with what passed; sign the retirement of what did not."""
    context, measurement = lane.context, holdout.measurement
    improved = (
        measurement is not None
        and measurement.primary_metric_status is MetricStatus.IMPROVED
        and all(check.passed for check in holdout.checks)
    )
    if improved and recorded:
        context.writer.advance(
            lane.require(),
            State.PROMOTION_GATE,
            holdout_pass="1",  # noqa: S106 - no password
            target_met="1" if holdout.target_met else "0",
        )
        lane.drop()
        return
    if not recorded:
        item = context.reader.item(lane.require().todo_id)
        finished = outbox.waiting(lane, item, EventType.HOLDOUT_RECORDED) or _finish_holdout(
            lane, item, holdout, improved=improved
        )
        outbox.deliver(lane, finished)
        if improved:
            lane.drop()
            return
    failed = measurement is None or measurement.eval_status is not EvalStatus.SCORED
    regressed = measurement is not None and (
        measurement.primary_metric_status is MetricStatus.REGRESSED
    )
    reason = EndReason.CONTRADICTED if failed or regressed else EndReason.NO_MEASURABLE_GAIN
    label = (measurement.label if measurement else None) or "no gain on held-out data"
    fresh = context.reader.item(lane.require().todo_id)
    sign_retirement(lane, fresh, reason, f"held-out: {label}")


def _finish_holdout(
    lane: Lane, item: dict[str, str], holdout: records.Holdout, *, improved: bool
) -> outbox.Finished:
    goal = lane.context.reader.require_goal()
    value = holdout.measurement.value if holdout.measurement else None
    passed = {"holdout_pass": "1", "target_met": "1" if holdout.target_met else "0"}
    return outbox.finish(
        lane,
        EventType.HOLDOUT_RECORDED,
        canonical({"holdout": holdout.to_json_dict()}),
        to=State.PROMOTION_GATE if improved else "",
        facts=passed if improved else {"status": "measured", "holdout_pass": "0"},
        about={
            "state": item["state"],
            "attempt": item["attempt"],
            "goal.champion_rev": goal["champion_rev"],
        },
        result=f"held-out answer {holdout.question} of attempt {holdout.attempt}: {value}",
    )


def _sign(lane: Lane, item: dict[str, str]) -> None:
    goal = lane.context.reader.require_goal()
    if item.get("doomed") == "1":
        sign_retirement(lane, item, EndReason.OPERATOR_REJECTED, "the operator refused it")
    elif item.get("base_rev") != goal["champion_rev"]:
        lane.context.writer.advance(lane.require(), State.SUPPORTED, reason="champion_moved")
        lane.drop()
    else:
        sign_promotion(lane, item)
