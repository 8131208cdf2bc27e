"""The evidence graph of a real goal: the same events, the same bytes; closed words; true counts."""

import json
from collections import Counter

import pytest

from contracts.errors import UsageError
from contracts.replay_state import GoalState
from projection.exports import lineage, mermaid
from projection.fold import EDGE_KINDS, NODE_KINDS, fold
from projection.graph import document, to_json
from projection.reading import replay_goal
from projection.view import build_view, improvements
from tests.scenario import Scenario


@pytest.fixture
def state(played: Scenario) -> GoalState:
    """Give the replayed goal."""
    return replay_goal(played.reader).state


def test_the_same_events_give_the_same_bytes(played: Scenario) -> None:
    first, second = replay_goal(played.reader).state, replay_goal(played.reader).state

    assert to_json(first) == to_json(second)
    assert to_json(first).encode() == to_json(first).encode("ascii", "strict")


def test_every_node_and_edge_is_of_a_known_kind_and_no_edge_hangs(state: GoalState) -> None:
    graph = fold(state)
    ids = {node.id for node in graph.nodes}

    assert {node.kind for node in graph.nodes} <= set(NODE_KINDS)
    assert {edge.kind for edge in graph.edges} <= set(EDGE_KINDS)
    assert len(ids) == len(graph.nodes)
    assert all({edge.source, edge.target} <= ids for edge in graph.edges)


def test_the_document_counts_what_happened(state: GoalState) -> None:
    found = document(state)

    assert found["schema_version"] == "research_evidence_graph_v0"
    assert found["counts"] == {
        "hypotheses": 8,
        "evidence_events": 12,
        "negative_evidence": 3,
        "needs_retry": 0,
    }
    assert found["best_dev_metric"] == pytest.approx(14.82)
    assert found["best_holdout_metric"] == pytest.approx(14.82 * 0.97)
    assert found["baseline_metric"] == 1.0
    assert found["holdout_improved"] == 3
    kinds = Counter(node["kind"] for node in found["nodes"])
    assert (kinds["hypothesis"], kinds["attempt"], kinds["decision"]) == (8, 10, 8)
    ends = Counter(edge["kind"] for edge in found["edges"])
    assert (ends["promotes"], ends["retires"], ends["tests"]) == (3, 5, 10)


def test_improvement_counts_against_the_best_accepted_so_far(state: GoalState) -> None:
    """Held-out 4.3, 2.0, 3.0 is one improvement (records.md)."""
    kept = [champion.attempt for champion in state.champions if champion.attempt]
    for number, value in zip(kept, (4.3, 2.0, 3.0), strict=True):
        holdout = state.attempts[number].holdout
        assert holdout is not None
        assert holdout.measurement is not None
        assert holdout.measurement.spread is not None
        spread = holdout.measurement.spread.model_copy(update={"value": value})
        measured = holdout.measurement.model_copy(update={"value": value, "spread": spread})
        state.attempts[number].holdout = holdout.model_copy(update={"measurement": measured})

    assert improvements(state) == 1
    assert document(state)["best_holdout_metric"] == 4.3


def test_the_graph_at_a_revision_is_that_of_then(played: Scenario) -> None:
    whole = replay_goal(played.reader).state
    middle = whole.champions[1].revision

    then = document(replay_goal(played.reader, at=middle).state)

    assert then["revision"] == middle
    assert then["champion"] == "hyp_0001"
    assert all(node["revision"] <= middle for node in then["nodes"])
    with pytest.raises(UsageError, match="no revision 9999"):
        replay_goal(played.reader, at=9999)


def test_view_and_graph_give_the_same_counts(played: Scenario, state: GoalState) -> None:
    view, found = build_view(played.reader), document(state)

    assert view.revision == found["revision"]
    assert {name: view.counts[name] for name in found["counts"]} == found["counts"]
    assert view.best is not None
    assert view.best.spread.value == found["best_holdout_metric"]


def test_rows_say_what_became_of_each_attempt(played: Scenario) -> None:
    rows = {row.number: row for row in build_view(played.reader).attempts}
    results = {(row.title, row.result) for row in rows.values()}

    assert results == {
        ("product", "kept"),
        ("select", "measured again"),
        ("select", "kept"),
        ("loop", "refuted, slower"),
        ("projection", "refuted, wrong"),
        ("warm-up", "refuted, boundary"),
        ("norms", "no gain"),
        ("autotune", "timeout, 1 left"),
        ("autotune", "timeout, retired"),
        ("block minima", "kept"),
    }
    again = next(row for row in rows.values() if row.replay_of)
    assert rows[again.replay_of or 0].title == "select"
    assert all(row.dev is None for row in rows.values() if "timeout" in row.result)


def test_mermaid_names_each_hypothesis_and_quotes_what_is_unsafe(state: GoalState) -> None:
    item = state.items["todo_0001"]
    assert item.hypothesis is not None
    evil = 'a "] --> n0 %% <script>'
    item.hypothesis = item.hypothesis.model_copy(update={"title": evil})

    text = mermaid(fold(state))

    assert text.startswith("flowchart LR\n")
    assert 'a #quot;] --#gt; n0 %% #lt;script#gt;"' in text
    assert all(f"hyp_{number:04d}: " in text for number in range(1, 9))


def test_the_lineage_fits_eighty_columns_of_ascii(state: GoalState) -> None:
    lines = lineage(state)

    assert all(len(line) <= 80 and line.isascii() for line in lines)
    assert sum("hyp_" in line for line in lines) == 8


def test_json_has_no_number_that_is_none(state: GoalState) -> None:
    def refuse(text: str) -> None:
        message = f"{text} is no JSON number"
        raise AssertionError(message)

    json.loads(to_json(state), parse_constant=refuse)
