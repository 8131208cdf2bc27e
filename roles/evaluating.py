"""The evaluator: measures, judges by the contract's numbers, and signs what the records bear out.

Each claim is one step, by the state of the item: measure the baseline, evaluate evidence, classify
what was evaluated, ask the held-out split, sign. Nothing an executor or a candidate says is used
as a number; the scope of the commit is found again from git.
"""

from pathlib import Path

from contracts import records
from contracts.canonical import canonical
from contracts.errors import LabmatesError, MachineError, RefusedError
from contracts.events import EvaluationRecorded, HoldoutRecorded
from contracts.words import (
    Direction,
    EndReason,
    EvalStatus,
    EventType,
    FailureKind,
    MetricStatus,
    Split,
    State,
    StopReason,
    TodoKind,
    Verdict,
)
from roles.lane import Lane
from roles.measurement import Bench, Measured, StoppedError
from roles.scope import ScopeReport, check_scope
from roles.signing import cosign_retirement, sign_promotion, sign_retirement

_VERDICTS = {
    MetricStatus.IMPROVED: Verdict.IMPROVED,
    MetricStatus.FLAT: Verdict.FLAT,
    MetricStatus.REGRESSED: Verdict.REGRESSION,
}
_FAILURES = {
    Verdict.REGRESSION: FailureKind.MECHANISM_CONTRADICTED,
    Verdict.CORRECTNESS: FailureKind.MECHANISM_CONTRADICTED,
    Verdict.GUARD: FailureKind.GUARDRAIL_OR_PROTECTED_BOUNDARY,
    Verdict.BOUNDARY: FailureKind.GUARDRAIL_OR_PROTECTED_BOUNDARY,
    Verdict.NOVELTY: FailureKind.NOVELTY,
}


def evaluate(lane: Lane, item: dict[str, str]) -> None:
    """Carry one claim of the evaluator to its end.

    A failure of the machine gives the claim back and is counted; it is never the candidate's.
    """
    try:
        _step(lane, item)
    except StoppedError:
        lane.context.writer.release(lane.require(), "stopped")
        lane.drop()
    except MachineError as error:
        lane.say("waiting", f"could not measure: {error.message}")
        lane.context.writer.release(lane.require(), "evaluation_failed")
        lane.drop()


def _step(lane: Lane, item: dict[str, str]) -> None:
    if item["kind"] == TodoKind.BASELINE:
        _measure_baseline(lane)
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


def _bench(lane: Lane, name: str, what: str) -> Bench:
    context = lane.context
    logs = context.folder / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    return Bench(
        contract=context.contract,
        git=context.git,
        scratch=context.home / "scratch" / context.goal_id / lane.agent_id,
        log_path=Path(logs / f"{name}.log"),
        stop=lambda: lane.stop.now or lane.lost,
        tell=lambda text: lane.say("working", f"{what}: {text}"),
    )


def _measure_baseline(lane: Lane) -> None:
    """Iteration 0: both splits of the approved base."""
    contract = lane.context.contract
    lane.say("working", "the baseline on both splits")
    bench = _bench(lane, "baseline", "baseline")
    dev = bench.alone(contract.base_commit, Split.DEV).measurement
    holdout = None
    if contract.evaluation.holdout:
        holdout = bench.alone(contract.base_commit, Split.HOLDOUT).measurement
    baseline = records.Baseline(dev=dev, holdout=holdout)
    body = canonical({"baseline": baseline.to_json_dict()})
    lane.context.writer.record(
        lane.require(), EventType.BASELINE_RECORDED, body, commit=contract.base_commit
    )
    lane.drop()


def _evaluation(lane: Lane, item: dict[str, str]) -> records.Evaluation:
    event = lane.context.follower.event(int(item["evaluation_rev"]))
    if not isinstance(event, EvaluationRecorded):
        message = f"revision {item['evaluation_rev']} is no evaluation"
        raise LabmatesError(message)
    return event.evaluation


# Dev ------------------------------------------------------------------------------------------


def _evaluate_evidence(lane: Lane, item: dict[str, str]) -> None:
    context = lane.context
    evaluation = _judge(lane, item)
    answer = context.writer.advance(
        lane.require(),
        State.EVALUATED,
        records=[
            (EventType.EVALUATION_RECORDED, canonical({"evaluation": evaluation.to_json_dict()}))
        ],
        confirmation=evaluation.confirmation or "",
    )
    lane.moved(answer["version"])
    _classify(lane, context.reader.item(lane.require().todo_id), evaluation)


def _judge(lane: Lane, item: dict[str, str]) -> records.Evaluation:
    """Measure the dev split of the commit in the evidence, unless its scope or tree decides."""
    context, contract = lane.context, lane.context.contract
    commit, goal = item["commit"], context.reader.require_goal()
    champion, champion_rev = goal["champion_commit"], int(goal["champion_rev"])
    scope = check_scope(
        context.git.diff_names(item["base_commit"], commit),
        contract.context.editable,
        contract.context.protected,
    )
    checks = _boundary_checks(scope)
    failure: str | None = None
    stop_reason: StopReason | None = None
    if not scope.clean:
        first = scope.violations[0]
        verdict, failure = Verdict.BOUNDARY, f"{first.path}: {first.why}"
        measured = _unmeasured(commit, "boundary", MetricStatus.FAILED)
    elif context.git.tree_of(commit) == context.git.tree_of(champion):
        verdict, failure = Verdict.FLAT, "the same tree as the champion"
        measured = _unmeasured(commit, "identical tree", MetricStatus.FLAT)
    else:
        bench = _bench(lane, f"attempt-{item['attempt']}-dev", item["hyp"])
        measured = bench.against(
            commit,
            champion,
            Split.DEV,
            hypothesis_id=goal.get("champion_hyp") or None,
            revision=champion_rev,
        )
        checks += _number_checks(lane, measured)
        verdict, failure, stop_reason = _verdict(measured)
        if verdict is Verdict.IMPROVED and contract.evaluation.guard:
            passed, tail = bench.guard(commit)
            checks.append(_check("guard_exit", 0 if passed else 1, 0, passed=passed))
            if not passed:
                verdict, failure = Verdict.GUARD, tail
        if verdict is Verdict.IMPROVED and not all(check.passed for check in checks):
            verdict = Verdict.FLAT
            failure = next(check.name for check in checks if not check.passed)
    moved = verdict is Verdict.IMPROVED and int(item["base_rev"]) != champion_rev
    return records.Evaluation(
        attempt=int(item["attempt"]),
        evidence_revision=int(item["evidence_rev"]),
        measurement=measured.measurement,
        checks=tuple(checks),
        verdict=verdict,
        failure_kind=_FAILURES.get(verdict),
        failure=(failure or "")[:500] or None,
        confirmation="champion_moved" if moved else None,
        retry_reason=failure if verdict is Verdict.UNSCORED else None,
        stop_reason=stop_reason,
    )


def _verdict(measured: Measured) -> tuple[Verdict, str | None, StopReason | None]:
    measurement = measured.measurement
    if measured.failure == "wrong":
        return Verdict.CORRECTNESS, measurement.label, None
    if measured.failure:
        return Verdict.UNSCORED, measurement.label, measured.failure
    verdict = _VERDICTS[measurement.primary_metric_status]
    gain = measurement.ratio or measurement.difference
    text = f"{gain.value:.2f} [{gain.low:.2f}, {gain.high:.2f}]" if gain else None
    return verdict, None if verdict is Verdict.IMPROVED else text, None


def _boundary_checks(scope: ScopeReport) -> list[records.Check]:
    return [
        _check("protected_scope_clean", scope.clean, True, passed=scope.clean),
        _check("changed", len(scope.changed), ">= 1", passed=bool(scope.changed)),
    ]


def _number_checks(lane: Lane, measured: Measured) -> list[records.Check]:
    evaluation = lane.context.contract.evaluation
    measurement = measured.measurement
    scored = measurement.eval_status is EvalStatus.SCORED
    checks = [_check("scored", measurement.label or "scored", "scored", passed=scored)]
    if not scored or measurement.spread is None:
        return checks
    pairs = len(measurement.samples.candidate)
    checks.append(
        _check("pairs", pairs, f">= {evaluation.pairs}", passed=pairs >= evaluation.pairs)
    )
    if measurement.ratio is not None:
        floor = round(1 + evaluation.min_gain, 6)
        low = measurement.ratio.low
        checks.append(_check("gain_low95", round(low, 4), f">= {floor:g}", passed=low >= floor))
    if measurement.difference is not None and (measurement.ratio is None or evaluation.min_delta):
        low = measurement.difference.low
        floor = evaluation.min_delta
        checks.append(_check("delta_low95", round(low, 6), f">= {floor:g}", passed=low >= floor))
    if evaluation.max_relative_spread is not None and measurement.spread.value:
        spread = measurement.spread
        width = (spread.high - spread.low) / abs(spread.value)
        limit = evaluation.max_relative_spread
        checks.append(
            _check("relative_spread", round(width, 4), f"<= {limit:g}", passed=width <= limit)
        )
    return checks


def _check(name: str, actual: object, expected: object, *, passed: bool) -> records.Check:
    return records.Check.model_validate(
        {"name": name, "actual": actual, "expected": expected, "pass": passed}
    )


def _unmeasured(commit: str, label: str, status: MetricStatus) -> Measured:
    scored = EvalStatus.GUARDRAIL_FAILED if label == "boundary" else EvalStatus.INCONCLUSIVE
    return Measured(
        records.Measurement(
            split=Split.DEV,
            commit=commit,
            eval_status=scored,
            primary_metric_status=status,
            label=label,
        )
    )


def _classify(lane: Lane, item: dict[str, str], evaluation: records.Evaluation) -> None:
    """Take the one way out of `evaluated` that the verdict has."""
    context, held = lane.context, lane.require()
    verdict = evaluation.verdict
    if item.get("doomed") == "1":
        sign_retirement(lane, item, EndReason.OPERATOR_REJECTED, "the operator refused it")
        return
    if verdict is Verdict.IMPROVED:
        if context.contract.evaluation.holdout or evaluation.confirmation:
            context.writer.advance(held, State.SUPPORTED)
        else:
            met = "1" if target_met(lane, evaluation.measurement) else "0"
            context.writer.advance(held, State.PROMOTION_GATE, target_met=met)
    elif verdict is Verdict.FLAT:
        why = evaluation.failure or "no gain was proven"
        sign_retirement(lane, item, EndReason.NO_MEASURABLE_GAIN, why)
        return
    elif verdict is Verdict.UNSCORED:
        context.writer.advance(held, State.NEEDS_RETRY, reason=str(evaluation.stop_reason or ""))
    else:
        context.writer.advance(held, State.CONTRADICTED, reason=str(verdict))
    lane.drop()


# Held-out --------------------------------------------------------------------------------------


def target_met(lane: Lane, measurement: records.Measurement) -> bool:
    """Tell whether a measurement reaches the contract's target, by its low end or its value."""
    evaluation = lane.context.contract.evaluation
    if evaluation.target is None:
        return True
    if measurement.spread is None or measurement.value is None:
        return False
    maximize = evaluation.direction is Direction.MAXIMIZE
    worst = measurement.spread.low if maximize else measurement.spread.high
    number = measurement.value if evaluation.target_by == "value" else worst
    return number >= evaluation.target if maximize else number <= evaluation.target


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
            _conclude_holdout(lane, item, event.holdout, recorded=True)
            return
    if not contract.evaluation.holdout:
        message = "the contract has no held-out split"
        raise LabmatesError(message)
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
    bench = _bench(lane, f"attempt-{item['attempt']}-holdout", item["hyp"])
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
        checks=tuple(_number_checks(lane, measured)),
        target_met=target_met(lane, measured.measurement),
    )
    _conclude_holdout(lane, item, answer, recorded=False)


def _conclude_holdout(
    lane: Lane, item: dict[str, str], holdout: records.Holdout, *, recorded: bool
) -> None:
    """Go to the promotion gate with what passed; sign the retirement of what did not."""
    context, measurement = lane.context, holdout.measurement
    improved = (
        measurement is not None
        and measurement.primary_metric_status is MetricStatus.IMPROVED
        and all(check.passed for check in holdout.checks)
    )
    body = canonical({"holdout": holdout.to_json_dict()})
    if improved:
        written = [] if recorded else [(EventType.HOLDOUT_RECORDED, body)]
        context.writer.advance(
            lane.require(),
            State.PROMOTION_GATE,
            records=[(str(kind), text) for kind, text in written],
            holdout_pass="1",  # noqa: S106 - no password
            target_met="1" if holdout.target_met else "0",
        )
        lane.drop()
        return
    if not recorded:
        context.writer.record(
            lane.require(),
            EventType.HOLDOUT_RECORDED,
            body,
            status="measured",
            holdout_pass="0",  # noqa: S106
        )
    failed = measurement is None or measurement.eval_status is not EvalStatus.SCORED
    regressed = measurement is not None and (
        measurement.primary_metric_status is MetricStatus.REGRESSED
    )
    reason = EndReason.CONTRADICTED if failed or regressed else EndReason.NO_MEASURABLE_GAIN
    label = (measurement.label if measurement else None) or "no gain on held-out data"
    fresh = context.reader.item(lane.require().todo_id)
    sign_retirement(lane, fresh, reason, f"held-out: {label}")


def _sign(lane: Lane, item: dict[str, str]) -> None:
    goal = lane.context.reader.require_goal()
    if item.get("doomed") == "1":
        sign_retirement(lane, item, EndReason.OPERATOR_REJECTED, "the operator refused it")
    elif item.get("base_rev") != goal["champion_rev"]:
        lane.context.writer.advance(lane.require(), State.SUPPORTED, reason="champion_moved")
        lane.drop()
    else:
        sign_promotion(lane, item)
