"""Judge evidence by the contract's numbers: checks, verdict, and what the score stands beside.

The scope of the commit is found again from git and comes first: a commit out of scope is never
run. An identical tree is a tie without a run. Everything else is measured, and the verdict follows
from the numbers alone.
"""

from pathlib import Path

from contracts import records
from contracts.errors import LabmatesError
from contracts.events import (
    AttemptStarted,
    BaselineRecorded,
    Decided,
    EvaluationRecorded,
    EvidenceRecorded,
    HypothesisAdded,
)
from contracts.text import with_interval
from contracts.transitions import GUARD_REWORKS
from contracts.words import (
    Direction,
    EvalStatus,
    FailureKind,
    MetricStatus,
    Split,
    State,
    StopReason,
    Verdict,
)
from roles.goal.context import GoalContext
from roles.measuring.measurement import Bench, Measured
from roles.steps.lane import Lane
from roles.workspace.objects import changes_between
from roles.workspace.scope import ScopeReport, Violation, check_scope, printable

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


def bench_for(lane: Lane, name: str, what: str) -> Bench:
    """Give a bench whose rounds go to the log `name`, and tell the lane of each pair."""
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


def judge(lane: Lane, item: dict[str, str]) -> records.Evaluation:
    """Measure the dev split of the commit in the evidence, unless its scope or tree decides."""
    context, contract = lane.context, lane.context.contract
    commit, goal = item["commit"], context.reader.require_goal()
    champion, champion_rev = goal["champion_commit"], int(goal["champion_rev"])
    scope = boundary(context, item)
    checks = _boundary_checks(scope)
    failure: str | None = None
    stop_reason: StopReason | None = None
    if not scope.clean:
        first = scope.violations[0]
        verdict, failure = Verdict.BOUNDARY, printable(f"{first.path}: {first.why}")
        measured = _unmeasured(commit, "boundary", MetricStatus.FAILED)
    elif context.git.tree_of(commit) == context.git.tree_of(champion):
        verdict, failure = Verdict.FLAT, "the same tree as the champion"
        measured = _unmeasured(commit, "identical tree", MetricStatus.FLAT)
    else:
        bench = bench_for(lane, f"attempt-{item['attempt']}-dev", item["hyp"])
        measured = bench.against(
            commit,
            champion,
            Split.DEV,
            hypothesis_id=goal.get("champion_hyp") or None,
            revision=champion_rev,
        )
        checks += number_checks(lane, measured)
        verdict, failure, stop_reason = _verdict(measured)
        if verdict is Verdict.IMPROVED and contract.evaluation.guard:
            passed, tail = bench.guard(commit)
            checks.append(_check("guard_exit", 0 if passed else 1, 0, passed=passed))
            if not passed:
                verdict, failure = Verdict.GUARD, tail
                stop_reason = _rework(item)
        if verdict is Verdict.IMPROVED and not all(check.passed for check in checks):
            verdict = Verdict.FLAT
            failure = next(check.name for check in checks if not check.passed)
    moved = verdict is Verdict.IMPROVED and int(item["base_rev"]) != champion_rev
    return records.Evaluation(
        attempt=int(item["attempt"]),
        evidence_revision=int(item["evidence_rev"]),
        measurement=measured.measurement,
        checks=tuple(checks),
        comparisons=_comparisons(lane, item, measured.measurement),
        verdict=verdict,
        failure_kind=_FAILURES.get(verdict),
        failure=(failure or "")[:500] or None,
        confirmation="champion_moved" if moved else None,
        retry_reason=_retry_reason(item, failure, stop_reason),
        stop_reason=stop_reason,
    )


def boundary(context: GoalContext, item: dict[str, str]) -> ScopeReport:
    """Find again what the evidence's commit changed, and what of it was not its to change.

    It is compared with the base that the attempt recorded, where that was the champion, and with
    the approved base, from which champions differ in editable files alone. What the executor saw
    around the commit, such as a changed config, cannot be found again and counts as it says.
    """
    contract = context.contract
    evidence = context.follower.event(int(item["evidence_rev"]))
    if not isinstance(evidence, EvidenceRecorded):
        message = f"revision {item['evidence_rev']} is no evidence"
        raise LabmatesError(message)
    globs = contract.context.editable, contract.context.protected
    whole = check_scope(changes_between(context.git, contract.base_commit, item["commit"]), *globs)
    violations = {found.path: found for found in whole.violations}
    changed: tuple[str, ...] = ()
    base = _base_of(context, evidence)
    if base is None:
        violations["base"] = Violation("base", "is not the champion that the attempt names")
    else:
        own = check_scope(changes_between(context.git, base, item["commit"]), *globs)
        changed = own.changed
        violations |= {found.path: found for found in own.violations}
    if not violations and not evidence.evidence.protected_scope_clean:
        said = evidence.evidence.scope_violations or ("evidence: says it is out of scope",)
        pairs = [text.partition(": ") for text in said]
        violations = {path: Violation(path, why or "is out of scope") for path, _, why in pairs}
    found = tuple(violations[path] for path in sorted(violations))
    return ScopeReport(clean=not found, changed=changed, violations=found)


def _base_of(context: GoalContext, evidence: EvidenceRecorded) -> str | None:
    """Give the base that the attempt recorded, if it was the champion of the revision it names."""
    known = context.follower.by_revision
    earlier = [known[revision] for revision in sorted(known) if revision < evidence.revision]
    mine = [event for event in earlier if event.hypothesis_id == evidence.hypothesis_id]
    start = next(
        (event.start for event in reversed(mine) if isinstance(event, AttemptStarted)), None
    )
    if start is None:
        return None
    made = known.get(start.base_revision)
    champion: str | None = None
    if isinstance(made, BaselineRecorded):
        champion = context.contract.base_commit
    elif made is not None and made.to_state is State.PROMOTED:
        decisions = [
            event.decision
            for event in earlier
            if isinstance(event, Decided) and event.hypothesis_id == made.hypothesis_id
        ]
        champion = decisions[-1].commit if decisions else None
    return start.base_commit if start.base_commit == champion else None


def _verdict(measured: Measured) -> tuple[Verdict, str | None, StopReason | None]:
    measurement = measured.measurement
    if measured.failure == "wrong":
        return Verdict.CORRECTNESS, measurement.label, None
    if measured.failure:
        return Verdict.UNSCORED, measurement.label, measured.failure
    verdict = _VERDICTS[measurement.primary_metric_status]
    gain = measurement.ratio or measurement.difference
    text = with_interval(gain.value, gain.low, gain.high) if gain else None
    return verdict, None if verdict is Verdict.IMPROVED else text, None


def _rework(item: dict[str, str]) -> StopReason | None:
    """Give what an improvement that fails the guard waits for, while reworks are left."""
    left = int(item.get("reworks") or 0) < GUARD_REWORKS
    return StopReason.GUARD_REWORK if left else None


def _retry_reason(
    item: dict[str, str], failure: str | None, stop_reason: StopReason | None
) -> str | None:
    if stop_reason is StopReason.GUARD_REWORK:
        number = int(item.get("reworks") or 0) + 1
        return f"guard rework {number} of {GUARD_REWORKS}: {failure}"[:500]
    return failure if stop_reason else None


def _boundary_checks(scope: ScopeReport) -> list[records.Check]:
    return [
        _check("protected_scope_clean", scope.clean, True, passed=scope.clean),
        _check("changed", len(scope.changed), ">= 1", passed=bool(scope.changed)),
    ]


def number_checks(lane: Lane, measured: Measured) -> list[records.Check]:
    """Write each number of a measurement beside what the contract expects of it."""
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
        checks.append(_check("gain_low95", _digits(low), f">= {floor:g}", passed=low >= floor))
    if measurement.difference is not None and (measurement.ratio is None or evaluation.min_delta):
        low = measurement.difference.low
        floor = evaluation.min_delta
        checks.append(_check("delta_low95", _digits(low), f">= {floor:g}", passed=low >= floor))
    if evaluation.max_relative_spread is not None and measurement.spread.value:
        spread = measurement.spread
        width = (spread.high - spread.low) / abs(spread.value)
        limit = evaluation.max_relative_spread
        checks.append(
            _check("relative_spread", _digits(width), f"<= {limit:g}", passed=width <= limit)
        )
    return checks


def _digits(number: float) -> float:
    """Keep six significant digits: enough to compare, few enough to read."""
    return float(f"{number:.6g}")


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


def _comparisons(
    lane: Lane, item: dict[str, str], measured: records.Measurement
) -> tuple[records.Comparison, ...]:
    """Lay the score beside the baseline's, the parent's and the champion's (L5)."""
    if measured.value is None:
        return ()
    follower, goal = lane.context.follower, lane.context.reader.require_goal()
    found: list[records.Comparison] = []

    def add(against: str, value: float | None, hypothesis_id: str | None = None) -> None:
        if value is not None and measured.value is not None:
            ratio = measured.value / value if value else None
            fields = {"against": against, "hypothesis_id": hypothesis_id, "value": value}
            found.append(records.Comparison.model_validate(fields | {"ratio": ratio}))

    baseline = follower.event(int(goal["baseline"]))
    if isinstance(baseline, BaselineRecorded):
        add("baseline", baseline.baseline.dev.value)
    added = follower.event(int(item["added_rev"]))
    parent = added.hypothesis.parent_hypothesis_id if isinstance(added, HypothesisAdded) else None
    if parent:
        scores = [
            event.evaluation.measurement.value
            for event in follower.by_revision.values()
            if isinstance(event, EvaluationRecorded) and event.hypothesis_id == parent
        ]
        add("parent", next((x for x in reversed(scores) if x is not None), None), parent)
    if measured.samples.champion:
        middle = sorted(measured.samples.champion)[len(measured.samples.champion) // 2]
        add("champion", middle, measured.against_hypothesis_id)
    return tuple(found)


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
