"""The proposer: turns entries of the source into todo-backed hypotheses, and settles what ended."""

from contracts.canonical import canonical, text_digest
from contracts.errors import RecordsError, RefusedError
from contracts.events import RetryRecorded, TodoAdded
from contracts.records import Hypothesis
from contracts.words import EndReason, State, StopReason, TodoKind
from quota.ranking import rank
from roles.goal.sources import next_entry, read_queue, to_hypothesis
from roles.steps.lane import Lane
from roles.steps.signing import cosign_retirement, sign_retirement


def propose(lane: Lane, item: dict[str, str]) -> None:
    """Carry one claim of the proposer to its end."""
    if item["kind"] == TodoKind.IDEA:
        _take_up(lane)
    elif item["kind"] in {TodoKind.PROPOSE, TodoKind.SUCCESSOR}:
        _propose(lane)
    elif item.get("signed_to") == State.RETIRED and item.get("signed_role") == "evaluator":
        cosign_retirement(lane, item)
    else:
        _settle(lane, item)


def _propose(lane: Lane) -> None:
    """Add the next entry of the queue that is no duplicate; close the source when there is none.

    A successor asks the same source once more; its no is on record as `no_follow_up`.
    """
    context = lane.context
    entries = read_queue(context.git, context.contract)
    cursor = context.reader.require_goal().get("source_cursor", "")
    while (found := next_entry(entries, cursor)) is not None:
        entry, cursor = found
        score, why = rank(priority=entry.priority, confidence=entry.confidence, position=entry.line)
        hypothesis = to_hypothesis(
            entry, queue=context.contract.strategy.queue, rank=score, rank_reason=why
        )
        lane.say("working", f"proposes {hypothesis.title}")
        try:
            context.writer.propose(
                lane.require(),
                body=canonical({"hypothesis": hypothesis.to_json_dict()}),
                text_digest=text_digest(entry.hypothesis),
                rank=score,
                rank_reason=why,
                title=hypothesis.title,
                family=hypothesis.mechanism_family,
                cursor=cursor,
            )
        except RefusedError as error:
            if error.reason != "duplicate":
                raise
            continue  # the queue repeats itself; the hypothesis that is there stands
        lane.drop()
        return
    context.writer.close_source(lane.require(), cursor=cursor)
    lane.drop()


def _take_up(lane: Lane) -> None:
    """Turn a person's idea into a hypothesis, in the person's words."""
    context = lane.context
    found = next(
        (
            event
            for event in context.follower.by_revision.values()
            if isinstance(event, TodoAdded) and event.todo_id == lane.require().todo_id
        ),
        None,
    )
    if found is None or found.idea is None:
        message = f"the records hold no text of {lane.require().todo_id}"
        raise RecordsError(message)
    idea, score = found.idea, 0.0
    hypothesis = Hypothesis(
        title=idea.title,
        hypothesis=found.text,
        mechanism_family=idea.mechanism_family,
        source="person",
        source_refs=(lane.require().todo_id,),
        no_grounding_reason=f"an idea of {found.agent_id}, which names no public reference",
        frontier_rank=score,
        rank_reason="a person asked for it",
        driver=idea.driver,
        change_ref=idea.change_ref,
    )
    lane.say("working", f"proposes {hypothesis.title}, {found.agent_id}'s idea")
    context.writer.propose(
        lane.require(),
        body=canonical({"hypothesis": hypothesis.to_json_dict()}),
        text_digest=text_digest(found.text),
        rank=score,
        rank_reason=hypothesis.rank_reason,
        title=hypothesis.title,
        family=hypothesis.mechanism_family,
        cursor="",
    )
    lane.drop()


def _settle(lane: Lane, item: dict[str, str]) -> None:
    """Retire what was contradicted, exhausted, refused, or can get no attempt any more."""
    state = State(item["state"])
    if item.get("doomed") == "1":
        reason, why = EndReason.OPERATOR_REJECTED, "the operator refused it"
    elif state is State.CONTRADICTED:
        reason, why = EndReason.CONTRADICTED, "its evidence speaks against it"
    elif state is State.NEEDS_RETRY and _unchanged_twice(lane, item):
        reason, why = EndReason.NO_FOLLOW_UP, "two attempts came to no change"
    elif state is State.NEEDS_RETRY and int(item.get("retries") or 0) > _retries(lane):
        reason, why = EndReason.RETRY_EXHAUSTED, f"{item['retries']} attempts without a score"
    else:
        reason, why = EndReason.NO_FOLLOW_UP, "the goal takes no attempts any more"
    if state is State.HYPOTHESIS_PROPOSED and not item.get("attempt"):
        note = canonical({"end_reason": str(reason), "note": why})
        lane.context.writer.advance(lane.require(), State.RETIRED, note=note, reason=str(reason))
        lane.drop()
        return
    sign_retirement(lane, item, reason, why)


def _unchanged_twice(lane: Lane, item: dict[str, str]) -> bool:
    """Tell whether the last retry packets of the item are two without a change."""
    stops = [
        event.retry.stop_reason
        for event in lane.context.follower.by_revision.values()
        if isinstance(event, RetryRecorded) and event.hypothesis_id == item.get("hyp")
    ]
    unchanged = {StopReason.NO_CHANGE, StopReason.HOOK_BLOCKED}
    return sum(stop in unchanged for stop in stops) > 1 and stops[-1] in unchanged


def _retries(lane: Lane) -> int:
    return lane.context.contract.policy.retries
