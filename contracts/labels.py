"""Labels computed from values: a label that a record brings along is never taken on trust.

Pure. The rule is that of the evaluator's comparison: what is asked is held against the low end of
the paired comparison, in which more is better whatever the metric's direction.
"""

from contracts import records
from contracts.contract import Evaluation as EvaluationRules
from contracts.words import Direction, EvalStatus, MetricStatus, Verdict

CONTRADICTING = (
    Verdict.REGRESSION,
    Verdict.CORRECTNESS,
    Verdict.GUARD,
    Verdict.BOUNDARY,
    Verdict.NOVELTY,
)
_UNSCORED_LABELS = (MetricStatus.FAILED, MetricStatus.INCONCLUSIVE)
IDENTICAL = "identical tree"
"""The label of a measurement that is flat without a score: there is nothing to compare."""


def _gains(measured: records.Measurement, rules: EvaluationRules) -> bool:
    difference = measured.difference
    if difference is None or difference.low <= 0 or difference.low < rules.min_delta:
        return False
    if measured.ratio is not None:
        return measured.ratio.low >= 1 + rules.min_gain
    if rules.min_gain == 0:
        return True
    ordered = sorted(measured.samples.champion)
    if not ordered:
        return False
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return difference.low >= rules.min_gain * abs(median)


def metric_status(measured: records.Measurement, rules: EvaluationRules) -> MetricStatus | None:
    """Compute the label of a measurement from its comparison; None if it cannot be compared."""
    if measured.eval_status == EvalStatus.INCONCLUSIVE:
        return MetricStatus.INCONCLUSIVE
    if measured.eval_status != EvalStatus.SCORED:
        return MetricStatus.FAILED
    if measured.difference is None and measured.ratio is None:
        return None
    if _gains(measured, rules):
        return MetricStatus.IMPROVED
    if measured.ratio is not None:
        loses = measured.ratio.high < 1
    else:
        loses = measured.difference is not None and measured.difference.high < 0
    return MetricStatus.REGRESSED if loses else MetricStatus.FLAT


def measurement_problem(  # noqa: PLR0911 - one sentence per problem
    measured: records.Measurement, rules: EvaluationRules, *, compared: bool = True
) -> str | None:
    """Say what is wrong with a measurement's label, value or spread; None if nothing is.

    Args:
        measured: The measurement.
        rules: The contract's rules of evaluation.
        compared: Whether it is one against a champion; a baseline is not.
    """
    if measured.eval_status != EvalStatus.SCORED:
        tie = measured.label == IDENTICAL and measured.value is None
        if tie and measured.primary_metric_status == MetricStatus.FLAT:
            return None
        if measured.primary_metric_status not in _UNSCORED_LABELS:
            return f"a measurement without a score that is not {measured.primary_metric_status}"
        return None
    if measured.value is None or measured.spread is None:
        return "a value with its spread for a scored measurement"
    if not measured.spread.low <= measured.spread.value <= measured.spread.high:
        return "a spread that holds its value"
    if measured.value != measured.spread.value:
        return "a value that is the middle of its spread"
    if rules.bounds and not rules.bounds[0] <= measured.value <= rules.bounds[1]:
        return "a value within the contract's bounds"
    if not compared:
        return None
    status = metric_status(measured, rules)
    if status is None:
        return "a paired comparison with the champion"
    if status != measured.primary_metric_status:
        return f"the label {status} that the values give, not {measured.primary_metric_status}"
    return None


def target_met(measured: records.Measurement | None, rules: EvaluationRules) -> bool:
    """Tell whether a measurement reaches the contract's target, by low end or by value."""
    if rules.target is None:
        return True
    if measured is None or measured.value is None or measured.spread is None:
        return False
    if measured.eval_status != EvalStatus.SCORED:
        return False
    if rules.direction == Direction.MAXIMIZE:
        end = measured.spread.low if rules.target_by == "low_end" else measured.value
        return end >= rules.target
    end = measured.spread.high if rules.target_by == "low_end" else measured.value
    return end <= rules.target


def verdict_problem(  # noqa: PLR0911, PLR0912 - one sentence per verdict
    found: records.Evaluation, evidence: records.Evidence, rules: EvaluationRules
) -> str | None:
    """Say why the values do not bear a verdict; None if they do."""
    measured, verdict = found.measurement, found.verdict
    if not evidence.protected_scope_clean or evidence.scope_violations:
        if verdict != Verdict.BOUNDARY:
            return f"the verdict boundary for an attempt that left its scope, not {verdict}"
        return None
    if problem := measurement_problem(measured, rules):
        return problem
    scored = measured.eval_status == EvalStatus.SCORED
    status = measured.primary_metric_status
    failed = [check.name for check in found.checks if not check.passed]
    if verdict == Verdict.IMPROVED:
        if status != MetricStatus.IMPROVED:
            return f"an improved measurement for the verdict improved; it is {status}"
        if failed:
            return f"the check {failed[0]}, which the verdict improved needs"
    elif verdict == Verdict.FLAT:
        unproven = status == MetricStatus.IMPROVED and failed
        if status != MetricStatus.FLAT and not unproven:
            return f"a flat measurement for the verdict flat; it is {status}"
    elif verdict == Verdict.REGRESSION:
        if status != MetricStatus.REGRESSED:
            return f"a regressed measurement for the verdict regression; it is {status}"
    elif verdict == Verdict.UNSCORED:
        if scored:
            return "a measurement without a score for the verdict unscored"
    elif not found.failure and not failed:
        return f"the name of the failure for the verdict {verdict}"
    return None
