"""Findings: what terminal decisions and peer reviews say together, derived anew on every read.

A reviewer is independent who neither produced what was decided on (proposed it, ran one of its
attempts) nor signed the decision, and is on the roster now. What a review says of itself counts
for nothing. Pure over the replayed goal.
"""

from dataclasses import dataclass

from contracts import events as ev
from contracts.replay_state import GoalState, ItemState
from contracts.words import EndReason, FindingStatus, State


@dataclass(frozen=True, slots=True)
class ReviewView:
    """One review as readers judge it; `why_not` says why it is not independent."""

    revision: int
    reviewer: str
    verdict: str
    reason: str
    evidence_refs: tuple[str, ...]
    independent: bool
    why_not: str
    current: bool


@dataclass(frozen=True, slots=True)
class Finding:
    """What stands about one ended hypothesis."""

    hypothesis_id: str
    decision_revision: int
    outcome: str
    end_reason: str
    status: FindingStatus
    why: str
    reviews: tuple[ReviewView, ...]


def producers(state: GoalState, item: ItemState) -> set[str]:
    """Name who made what was decided on: the proposer, and the executors of its attempts."""
    found = {state.attempts[number].agent_id for number in item.attempts}
    added = state.events.get(item.added_revision)
    return found | ({added.agent_id} if added else set())


def deciders(state: GoalState, item: ItemState) -> set[str]:
    """Name who ended the item: both signers, or the one who moved it."""
    revisions = {item.ended_revision, *item.signatures[-2:]}
    return {state.events[each].agent_id for each in revisions if each in state.events}


def dependence(state: GoalState, item: ItemState, agent_id: str) -> str:
    """Say why an agent's review of an item is not independent; empty if it is."""
    if not state.roster.get(agent_id):
        return "not on the roster"
    if agent_id in producers(state, item):
        return "produced it"
    return "decided it" if agent_id in deciders(state, item) else ""


def reviews_of(state: GoalState, item: ItemState) -> tuple[ReviewView, ...]:
    """Judge the reviews of an item, in order; only the last one of each reviewer is current."""
    found = []
    events = [state.events[revision] for revision in item.reviews]
    last = {event.agent_id: event.revision for event in events}
    for event in events:
        if not isinstance(event, ev.Reviewed):
            continue
        why_not = dependence(state, item, event.agent_id)
        found.append(
            ReviewView(
                revision=event.revision,
                reviewer=event.agent_id,
                verdict=event.review.verdict,
                reason=event.review.reason,
                evidence_refs=event.review.evidence_refs,
                independent=not why_not,
                why_not=why_not,
                current=last[event.agent_id] == event.revision,
            )
        )
    return tuple(found)


def finding_of(state: GoalState, item: ItemState) -> Finding | None:
    """Derive the finding of an item; None before its decision, and for a duplicate."""
    if not item.ended_revision or item.end_reason == EndReason.DUPLICATE:
        return None
    reviews = reviews_of(state, item)
    status, why = _status(item, reviews)
    return Finding(
        hypothesis_id=item.hypothesis_id or "",
        decision_revision=item.ended_revision,
        outcome=item.state,
        end_reason=str(item.end_reason or ""),
        status=status,
        why=why,
        reviews=reviews,
    )


def findings(state: GoalState) -> tuple[Finding, ...]:
    """Derive every finding of a goal, in order of the hypotheses."""
    found = (finding_of(state, item) for item in state.hypothesis_items())
    return tuple(each for each in found if each is not None)


def _status(item: ItemState, reviews: tuple[ReviewView, ...]) -> tuple[FindingStatus, str]:
    tentative = FindingStatus.TENTATIVE
    if item.touched > item.ended_revision:
        return tentative, f"stale: new evidence at revision {item.touched}"
    counted = [each for each in reviews if each.current and each.independent]
    if not counted:
        only_own = any(each.why_not in {"produced it", "decided it"} for each in reviews)
        return tentative, "self review only" if only_own else "no independent review"
    verdicts = {each.verdict for each in counted}
    if verdicts != {"approve"}:
        conflict = len(verdicts) > 1
        return tentative, "review conflict" if conflict else f"reviewers say {verdicts.pop()}"
    if item.state == State.PROMOTED:
        return FindingStatus.CONFIRMED, "promoted, and independently approved"
    if item.end_reason == EndReason.CONTRADICTED:
        return FindingStatus.REFUTED, "contradicted, and independently approved"
    return tentative, f"retired: {item.end_reason}"
