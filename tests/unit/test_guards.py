"""Guards: one check per name of the table, and labels that come from the values."""

import pytest

from contracts import records as rec
from contracts.evidence_checks import EVIDENCE_CHECKS
from contracts.guards import Context, first_missing, verdict_targets
from contracts.labels import measurement_problem, metric_status, target_met, verdict_problem
from contracts.replay_state import GoalState, ItemState
from contracts.transitions import TABLE, find_rule
from contracts.words import (
    Direction,
    EvalStatus,
    MetricStatus,
    Split,
    State,
    Verdict,
)
from tests.property.test_guards_match_store import AT
from tests.scenario import commit_of, contract_for, manifest, spread

RULES = contract_for("g").evaluation


def measured(
    low: float, high: float, value: float = 2.0, more: dict[str, object] | None = None
) -> rec.Measurement:
    """Make a measurement with this interval of the ratio to the champion."""
    ratio = rec.Spread(value=(low + high) / 2, low=low, high=high, n=6, level=0.96)
    difference = rec.Spread(value=low, low=low - 1, high=high - 1, n=6, level=0.96)
    status = MetricStatus.IMPROVED if low >= 1.05 else MetricStatus.FLAT
    values: dict[str, object] = {
        "split": Split.DEV,
        "commit": commit_of("x"),
        "eval_status": EvalStatus.SCORED,
        "primary_metric_status": MetricStatus.REGRESSED if high < 1 else status,
        "value": value,
        "spread": spread(value),
        "ratio": ratio,
        "difference": difference,
    }
    return rec.Measurement.model_validate(values | (more or {}))


def evidence(**more: object) -> rec.Evidence:
    """Make clean evidence."""
    values: dict[str, object] = {
        "attempt": 1,
        "split": Split.DEV,
        "metric": rec.Metric(name="speedup", direction=Direction.MAXIMIZE),
        "primary_metric_status": MetricStatus.INCONCLUSIVE,
        "eval_status": EvalStatus.INCONCLUSIVE,
        "code_ref": commit_of("x"),
        "branch": "b",
        "protected_scope_clean": True,
        "raw_logs_recorded": False,
        "private_artifacts_recorded": False,
        "manifest": manifest("driver"),
    }
    return rec.Evidence.model_validate(values | more)


def evaluation(found: rec.Measurement, verdict: Verdict, *, passed: bool = True) -> rec.Evaluation:
    """Make an evaluation with one check."""
    check = {"name": "answers_exact", "actual": 1, "expected": 1, "pass": passed}
    return rec.Evaluation(
        attempt=1,
        evidence_revision=5,
        measurement=found,
        checks=(rec.Check.model_validate(check),),
        verdict=verdict,
    )


def test_every_evidence_name_of_the_table_has_its_check() -> None:
    assert {name for rule in TABLE for name in rule.evidence} == set(EVIDENCE_CHECKS)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (1.05, 1.2, MetricStatus.IMPROVED),
        (1.0499, 1.2, MetricStatus.FLAT),
        (0.97, 1.04, MetricStatus.FLAT),
        (0.9, 1.0, MetricStatus.FLAT),
        (0.9, 0.9999, MetricStatus.REGRESSED),
    ],
)
def test_a_label_follows_from_the_interval(low: float, high: float, expected: str) -> None:
    assert metric_status(measured(low, high), RULES) == expected


def test_a_gain_below_min_delta_is_flat() -> None:
    rules = RULES.model_copy(update={"min_delta": 0.5})

    assert metric_status(measured(1.2, 1.4), rules) == MetricStatus.FLAT
    assert metric_status(measured(1.6, 1.8), rules) == MetricStatus.IMPROVED


def test_without_a_ratio_the_gain_is_a_share_of_the_champions_median() -> None:
    difference = rec.Spread(value=0.6, low=0.5, high=0.7, n=3, level=0.75)
    bare: dict[str, object] = {"ratio": None, "difference": difference}
    small = measured(1.2, 1.4, 2.0, bare | {"samples": rec.Samples(champion=(8.0, 10.0, 9.0))})
    large = measured(1.2, 1.4, 2.0, bare | {"samples": rec.Samples(champion=(10.0, 12.0, 11.0))})

    assert metric_status(small, RULES) == MetricStatus.IMPROVED
    assert metric_status(large, RULES) == MetricStatus.FLAT


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ({}, None),
        ({"value": None}, "a value with its spread"),
        ({"value": 2.01}, "the middle of its spread"),
        ({"ratio": None, "difference": None}, "a paired comparison"),
        ({"primary_metric_status": MetricStatus.FLAT}, "the label improved"),
        ({"spread": None}, "a value with its spread"),
    ],
)
def test_a_measurement_must_bear_its_label(more: dict[str, object], problem: str | None) -> None:
    found = measurement_problem(measured(1.2, 1.4, 2.0, more), RULES)

    assert found is None if problem is None else problem in (found or "")


def test_a_value_outside_the_contracts_bounds_is_no_score() -> None:
    rules = RULES.model_copy(update={"bounds": (0.0, 1.5)})

    assert measurement_problem(measured(1.2, 1.4), rules) == "a value within the contract's bounds"


def test_an_identical_tree_is_flat_without_a_score() -> None:
    without = {
        "eval_status": EvalStatus.INCONCLUSIVE,
        "primary_metric_status": MetricStatus.FLAT,
        "value": None,
        "spread": None,
        "label": "identical tree",
    }
    tie = measured(0.9, 1.1, 2.0, dict(without))

    assert verdict_problem(evaluation(tie, Verdict.FLAT), evidence(), RULES) is None
    assert verdict_problem(evaluation(tie, Verdict.IMPROVED), evidence(), RULES)


@pytest.mark.parametrize(
    ("low", "high", "verdict", "passed", "bears"),
    [
        (1.2, 1.4, Verdict.IMPROVED, True, True),
        (1.2, 1.4, Verdict.IMPROVED, False, False),
        (0.98, 1.02, Verdict.IMPROVED, True, False),
        (0.98, 1.02, Verdict.FLAT, True, True),
        (1.2, 1.4, Verdict.FLAT, True, False),
        (1.2, 1.4, Verdict.FLAT, False, True),
        (0.5, 0.6, Verdict.FLAT, True, False),
        (0.5, 0.6, Verdict.REGRESSION, True, True),
        (0.98, 1.02, Verdict.REGRESSION, True, False),
        (1.2, 1.4, Verdict.UNSCORED, True, False),
        (1.2, 1.4, Verdict.CORRECTNESS, False, True),
        (1.2, 1.4, Verdict.CORRECTNESS, True, False),
    ],
)
def test_a_verdict_must_be_borne_by_values_and_checks(
    low: float, high: float, verdict: Verdict, *, passed: bool, bears: bool
) -> None:
    found = evaluation(measured(low, high), verdict, passed=passed)

    assert (verdict_problem(found, evidence(), RULES) is None) is bears


def test_an_attempt_that_left_its_scope_is_boundary_and_nothing_else() -> None:
    left = evidence(protected_scope_clean=False, scope_violations=("evaluate.py",))
    found = measured(1.2, 1.4)

    assert verdict_problem(evaluation(found, Verdict.BOUNDARY), left, RULES) is None
    assert verdict_problem(evaluation(found, Verdict.IMPROVED), left, RULES)


@pytest.mark.parametrize(
    ("verdict", "holdout", "targets"),
    [
        (Verdict.IMPROVED, True, {State.SUPPORTED}),
        (Verdict.IMPROVED, False, {State.SUPPORTED, State.PROMOTION_GATE}),
        (Verdict.FLAT, True, {State.RETIRED}),
        (Verdict.UNSCORED, True, {State.NEEDS_RETRY}),
        (Verdict.GUARD, True, {State.CONTRADICTED, State.NEEDS_RETRY}),
        (Verdict.REGRESSION, True, {State.CONTRADICTED}),
        (Verdict.BOUNDARY, True, {State.CONTRADICTED}),
    ],
)
def test_a_verdict_has_its_ways_out(
    verdict: Verdict, targets: set[State], *, holdout: bool
) -> None:
    assert set(verdict_targets(verdict, holdout_required=holdout)) == targets


@pytest.mark.parametrize(
    ("direction", "by", "value", "met"),
    [
        (Direction.MAXIMIZE, "low_end", 7.2, False),
        (Direction.MAXIMIZE, "low_end", 7.5, True),
        (Direction.MAXIMIZE, "value", 7.2, True),
        (Direction.MINIMIZE, "low_end", 6.8, False),
        (Direction.MINIMIZE, "low_end", 6.5, True),
        (Direction.MINIMIZE, "value", 6.8, True),
    ],
)
def test_a_target_is_met_by_the_pessimistic_end_unless_the_contract_says_value(
    direction: Direction, by: str, value: float, *, met: bool
) -> None:
    rules = RULES.model_copy(update={"direction": direction, "target_by": by})

    assert target_met(measured(1.2, 1.4, value), rules) is met
    assert target_met(None, rules) is False
    assert target_met(None, rules.model_copy(update={"target": None})) is True


def test_the_first_thing_missing_is_named_in_the_order_of_the_row() -> None:
    rule = find_rule(State.FRONTIER_SELECTED, State.ATTEMPT_RUNNING, signed=False)
    assert rule is not None
    goal = GoalState("g", contract=contract_for("g"), paused=True)
    item = ItemState("todo_0001", "hypothesis", State.FRONTIER_SELECTED)

    assert first_missing(rule, Context(goal, item, AT)) == "the record attempt_started"
    start = rec.AttemptStart(
        branch="b", base_commit=commit_of("base"), base_revision=12, worktree="", scope_sha256=""
    )
    context = Context(goal, item, AT, records={rule.records[0]: start})
    assert first_missing(rule, context) == "a goal that is not paused"
    goal.paused = False
    assert first_missing(rule, context) == "a reserved attempt and lane"
