"""`research_evidence_graph_v0`: the graph as one document, the same events giving the same bytes."""

from typing import Any

from contracts.canonical import canonical
from contracts.replay_state import GoalState
from projection.fold import fold
from projection.rows import scored_spread
from projection.view import best_accepted, counts_of, improvements, is_better

SCHEMA_VERSION = "research_evidence_graph_v0"
COUNTS = ("hypotheses", "evidence_events", "negative_evidence", "needs_retry")


def document(state: GoalState) -> dict[str, Any]:
    """Make the graph's document of a replayed goal."""
    graph = fold(state)
    counts = counts_of(state)
    evaluation = state.contract.evaluation if state.contract else None
    baseline = state.baseline.dev.value if state.baseline else None
    best_holdout = best_accepted(state) if state.holdout_required else None
    return {
        "schema_version": SCHEMA_VERSION,
        "goal_id": state.goal_id,
        "revision": state.revision,
        "metric": {
            "name": evaluation.metric if evaluation else None,
            "direction": evaluation.direction if evaluation else None,
            "unit": evaluation.unit if evaluation else None,
        },
        "baseline_metric": baseline,
        "best_dev_metric": best_dev(state),
        "best_holdout_metric": best_holdout.spread.value if best_holdout else None,
        "holdout_improved": improvements(state) if state.holdout_required else 0,
        "target_met": state.target_met,
        "champion": state.champion.hypothesis_id if state.champion else None,
        "counts": {name: counts[name] for name in COUNTS},
        "nodes": [node.to_json_dict() for node in graph.nodes],
        "edges": [edge.to_json_dict() for edge in graph.edges],
    }


def best_dev(state: GoalState) -> float | None:
    """Give the best dev value of an attempt with every check passed; not a result by itself."""
    best: float | None = None
    for attempt in state.attempts.values():
        found = attempt.evaluation
        spread = scored_spread(found.measurement) if found else None
        if found is None or spread is None or not all(check.passed for check in found.checks):
            continue
        if is_better(state, spread.value, best):
            best = spread.value
    return best


def to_json(state: GoalState) -> str:
    """Write the graph as canonical JSON, one line."""
    return canonical(document(state))
