"""The evidence graph: nodes and typed edges, folded from a replayed goal. Pure.

Node ids are those of the records where there is one (`hyp_0001`, `todo_0001`, `gate_0001`), else
the kind with its number or revision (`attempt:3`, `evidence:41`). Edges read from left to right:
`attempt:3 tests hyp_0002`, `decision:60 promotes hyp_0001`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from contracts import events as ev
from contracts import records
from contracts.findings import finding_of, reviews_of
from contracts.replay_state import AttemptState, GoalState, ItemState
from contracts.words import STATUS_OF_STATE, Split, State
from projection.rows import ending

NODE_KINDS = (
    "contract",
    "hypothesis",
    "todo",
    "attempt",
    "evidence",
    "evaluation",
    "gate",
    "decision",
    "review",
    "artifact",
)
EDGE_KINDS = (
    "proposes",
    "refines",
    "tests",
    "measures",
    "evaluates",
    "blocks",
    "promotes",
    "retires",
    "supersedes",
    "grounds",
    "cites_negative",
    "reviews",
)


@dataclass(frozen=True, slots=True)
class Node:
    """One node; `revision` is that of the event it comes from."""

    id: str
    kind: str
    revision: int
    label: str
    data: dict[str, Any] = field(default_factory=dict)

    def to_json_dict(self) -> dict[str, Any]:
        """Give the node as documents write it."""
        known = {name: value for name, value in self.data.items() if value is not None}
        return {
            "id": self.id,
            "kind": self.kind,
            "revision": self.revision,
            "label": self.label,
            **known,
        }


@dataclass(frozen=True, slots=True)
class Edge:
    """One edge."""

    kind: str
    source: str
    target: str

    def to_json_dict(self) -> dict[str, Any]:
        """Give the edge as documents write it."""
        return {"kind": self.kind, "source": self.source, "target": self.target}


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in order of revision and id, edges in order of source, kind and target."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def fold(state: GoalState) -> Graph:
    """Fold a replayed goal into its graph: the same events give the same graph."""
    nodes: dict[str, Node] = {}
    edges: set[Edge] = set()
    for part in _parts(state):
        if isinstance(part, Node):
            nodes.setdefault(part.id, part)
        else:
            edges.add(part)
    whole = [edge for edge in edges if edge.source in nodes and edge.target in nodes]
    return Graph(
        tuple(sorted(nodes.values(), key=lambda node: (node.revision, node.id))),
        tuple(sorted(whole, key=lambda edge: (edge.source, edge.kind, edge.target))),
    )


def contract_id(state: GoalState) -> str:
    """Name the contract's node."""
    return f"contract:{state.contract_hash[:8]}"


def _parts(state: GoalState) -> Iterator[Node | Edge]:
    if state.contract is not None:
        yield Node(
            contract_id(state),
            "contract",
            2,
            state.contract.context.objective,
            {"contract_hash": state.contract_hash, "base_commit": state.contract.base_commit},
        )
    if state.baseline is not None:
        for split, found in (("dev", state.baseline.dev), ("holdout", state.baseline.holdout)):
            if found is not None:
                yield _measured(
                    f"evidence:{state.baseline_revision}:{split}", state.baseline_revision, found
                )
                yield Edge(
                    "measures",
                    f"evidence:{state.baseline_revision}:{split}",
                    contract_id(state),
                )
    for item in state.hypothesis_items():
        yield from _hypothesis(state, item)
    for attempt in state.attempts.values():
        yield from _attempt(state, attempt)
    for gate in state.gates.values():
        verdict = gate.decision.verdict if gate.decision else "open"
        yield Node(
            gate.gate_id,
            "gate",
            gate.opened_revision,
            gate.gate.question,
            {
                "gate_kind": gate.kind,
                "verdict": verdict,
                "reason": (gate.decision.reason or None) if gate.decision else None,
            },
        )
        yield Edge("blocks", gate.gate_id, gate.todo_id)
    yield from _endings(state)


def _hypothesis(state: GoalState, item: ItemState) -> Iterator[Node | Edge]:
    found, hypothesis_id = item.hypothesis, item.hypothesis_id or ""
    if found is None:
        return
    yield Node(
        hypothesis_id,
        "hypothesis",
        item.added_revision,
        found.title,
        {
            "state": item.state,
            "status": STATUS_OF_STATE[State(item.state)],
            "mechanism_family": found.mechanism_family,
            "source": found.source,
            "end_reason": item.end_reason,
            "rank": found.frontier_rank,
        },
    )
    yield Node(
        item.todo_id,
        "todo",
        item.added_revision,
        item.todo_id,
        {"version": item.version, "claimed_by": item.claimed_by or None},
    )
    yield Edge("proposes", contract_id(state), hypothesis_id)
    yield Edge("proposes", item.todo_id, hypothesis_id)
    if found.parent_hypothesis_id:
        yield Edge("refines", hypothesis_id, found.parent_hypothesis_id)
    for cited in found.cites_negative:
        yield Edge("cites_negative", hypothesis_id, cited)
    for ref in found.grounding_refs:
        yield Node(f"artifact:{ref}", "artifact", item.added_revision, ref)
        yield Edge("grounds", f"artifact:{ref}", hypothesis_id)


def _measured(name: str, revision: int, found: records.Measurement, **more: object) -> Node:
    spread = found.spread
    return Node(
        name,
        "evidence",
        revision,
        found.label or str(found.primary_metric_status),
        {
            "split": found.split,
            "commit": found.commit,
            "value": found.value,
            "low": spread.low if spread else None,
            "high": spread.high if spread else None,
            "primary_metric_status": found.primary_metric_status,
            "eval_status": found.eval_status,
            "against": found.ratio.value if found.ratio else None,
            **more,
        },
    )


def _attempt(state: GoalState, attempt: AttemptState) -> Iterator[Node | Edge]:
    name = f"attempt:{attempt.number}"
    yield Node(
        name,
        "attempt",
        attempt.started_revision,
        f"attempt {attempt.number}",
        {
            "agent_id": attempt.agent_id,
            "branch": attempt.start.branch,
            "base_commit": attempt.start.base_commit,
            "outcome": attempt.outcome,
            "stop_reason": attempt.stop_reason,
            "cost_usd": round(attempt.cost_usd, 6) or None,
        },
    )
    yield Edge("tests", name, attempt.hypothesis_id)
    if attempt.start.replay_of:
        for other in state.attempts.values():
            if other.evidence and other.evidence.code_ref == attempt.start.replay_of:
                yield Edge("supersedes", name, f"attempt:{other.number}")
    if attempt.evidence is not None:
        made = attempt.evidence
        evidence = f"evidence:{attempt.evidence_revision}"
        yield Node(
            evidence,
            "evidence",
            attempt.evidence_revision,
            made.code_ref[:7],
            {
                "split": Split.DEV,
                "commit": made.code_ref,
                "changed_files": list(made.changed_files),
                "protected_scope_clean": made.protected_scope_clean,
                "scope_violations": list(made.scope_violations) or None,
            },
        )
        yield Edge("measures", evidence, name)
        artifact = f"artifact:{made.code_ref}"
        yield Node(artifact, "artifact", attempt.evidence_revision, made.branch)
        yield Edge("grounds", artifact, evidence)
    if attempt.evaluation is not None:
        evaluation, found = f"evaluation:{attempt.evaluation_revision}", attempt.evaluation
        inner = _measured(evaluation, attempt.evaluation_revision, found.measurement)
        failed = [check.name for check in found.checks if not check.passed]
        yield Node(
            evaluation,
            "evaluation",
            attempt.evaluation_revision,
            str(found.verdict),
            {
                **inner.data,
                "verdict": found.verdict,
                "failure": found.failure,
                "failure_kind": found.failure_kind,
                "checks_failed": failed or None,
            },
        )
        yield Edge("evaluates", evaluation, f"evidence:{attempt.evidence_revision}")
    if attempt.holdout is not None and attempt.holdout.measurement is not None:
        held = f"evidence:{attempt.holdout_revision}"
        yield _measured(held, attempt.holdout_revision, attempt.holdout.measurement)
        yield Edge("measures", held, name)


def _endings(state: GoalState) -> Iterator[Node | Edge]:
    champions = [each for each in state.champions if each.hypothesis_id]
    for item in state.hypothesis_items():
        hypothesis_id = item.hypothesis_id or ""
        if not item.ended_revision:
            continue
        name = f"decision:{item.ended_revision}"
        signers = [
            event.agent_id
            for event in (state.events[revision] for revision in item.signatures[-2:])
            if isinstance(event, ev.Signed) and not event.signature.disagrees
        ]
        yield Node(
            name,
            "decision",
            item.ended_revision,
            f"{item.state}, {ending(state, item)}",
            {
                "outcome": item.state,
                "reason": item.end_reason,
                "commit": item.commit or None,
                "signers": signers or None,
                "finding": found.status if (found := finding_of(state, item)) else None,
                "finding_why": found.why if found else None,
            },
        )
        promoted = item.state == State.PROMOTED
        yield Edge("promotes" if promoted else "retires", name, hypothesis_id)
        for each in reviews_of(state, item):
            review = f"review:{each.revision}"
            data = {
                "reviewer": each.reviewer,
                "independent": each.independent,
                "why_not": each.why_not or None,
                "current": each.current,
                "reason": each.reason,
            }
            yield Node(review, "review", each.revision, each.verdict, data)
            yield Edge("reviews", review, name)
    for before, after in pairwise(champions):
        yield Edge("supersedes", f"decision:{after.revision}", f"decision:{before.revision}")
