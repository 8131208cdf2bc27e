"""Replay of moves and records: `lua/40_work` in Python, with its checks."""

from datetime import datetime

from contracts import events as ev
from contracts.canonical import text_digest
from contracts.events import AnyEvent
from contracts.guards import Context, first_missing, holdout_problem, verdict_targets
from contracts.labels import measurement_problem
from contracts.models import Record
from contracts.replay_items import (
    SOURCES,
    check_held,
    end_item,
    fail,
    free,
    held_item,
    item_of,
    leave_lane,
    move,
    recovered,
    require,
    shut,
    touch,
    unsign,
)
from contracts.replay_state import CLOSED, OPEN, AttemptState, Champion, GoalState, ItemState
from contracts.transitions import GUARD_REWORKS, Rule, find_rule
from contracts.words import Action, EventType, Split, State, StopReason, TodoKind, Writer

STEP_RECORDS = frozenset(
    {
        EventType.ATTEMPT_STARTED,
        EventType.EVIDENCE_RECORDED,
        EventType.RETRY_RECORDED,
        EventType.EVALUATION_RECORDED,
        EventType.HOLDOUT_RECORDED,
    }
)

# Moves -------------------------------------------------------------------------------------------


def payload_of(event: AnyEvent) -> Record | None:  # noqa: PLR0911 - one per record
    """Give the record that an event carries."""
    match event:
        case ev.HypothesisAdded():
            return event.hypothesis
        case ev.AttemptStarted():
            return event.start
        case ev.EvidenceRecorded():
            return event.evidence
        case ev.RetryRecorded():
            return event.retry
        case ev.EvaluationRecorded():
            return event.evaluation
        case ev.HoldoutRecorded():
            return event.holdout
        case ev.Decided():
            return event.decision
        case _:
            return None


def context(state: GoalState, item: ItemState, at: datetime) -> Context:
    """Make the guards' context: the records right before this event, of the same item."""
    found: dict[EventType, Record] = {}
    for each in state.pending:
        payload = payload_of(each)
        if payload is not None and each.todo_id == item.todo_id:
            found[EventType(each.type)] = payload
    return Context(goal=state, item=item, at=at, records=found)


def _check_row(state: GoalState, item: ItemState, event: AnyEvent, writer: Writer) -> Rule:
    source, target = item.state, event.to_state
    known = source in set(State) and target is not None
    rule = find_rule(State(source), target, signed=False) if known and target else None
    if rule is None or writer not in rule.writers:
        fail(f"no row {source} -> {target} for {writer} in the table")
    found = context(state, item, event.at)
    if isinstance(event, ev.Transitioned):
        found = Context(
            goal=state,
            item=item,
            at=event.at,
            records=found.records,
            end_reason=event.end_reason,
            duplicate_of=event.duplicate_of,
            note=event.note,
        )
    missing = first_missing(rule, found)
    require(missing is None, f"{source} -> {target} lacks {missing}")
    return rule


def transitioned(state: GoalState, event: ev.Transitioned) -> None:
    """Take `transitioned`: one role moves the item it holds."""
    item = held_item(state, event)
    source, target = item.state, event.to_state
    gated = item.gates and (source, target) not in {
        (State.ATTEMPT_RUNNING, State.EVIDENCE_RECORDED),
        (State.ATTEMPT_RUNNING, State.NEEDS_RETRY),
    }
    require(not gated, f"{item.todo_id} waits for {item.gates and item.gates[0]}")
    _check_row(state, item, event, Writer(str(event.role)))
    alone = all(isinstance(each, ev.HoldoutRecorded) for each in state.pending)
    if state.pending and not (alone and event.record_revision is None):
        last = state.pending[-1].revision
        require(event.record_revision == last, f"it rests on {event.record_revision}, not {last}")
    if source == State.EVALUATED:
        _check_outcome(state, item, target)
    start = next((each for each in state.pending if isinstance(each, ev.AttemptStarted)), None)
    move(item, event)
    recovered(item)
    attempt = state.attempt_of(item)
    if start is not None and target == State.ATTEMPT_RUNNING:
        _begin(state, item, start)
        attempt = state.attempt_of(item)
    if target == State.NEEDS_RETRY:
        _count_retry(state, item, attempt, event)
    elif target == State.SUPPORTED:
        item.retries = 0
        if source == State.PROMOTION_GATE:
            unsign(item)
            item.wants_confirm, item.owner_accepted = "champion_moved", False
    if attempt is not None:
        _mark(attempt, event)
    state.pending.clear()
    if target in {State.ATTEMPT_RUNNING, State.EVALUATED}:
        return
    if target != State.EVIDENCE_RECORDED or item.gates:
        leave_lane(state, item)
    if target == State.RETIRED:
        end_item(state, item, event, event.end_reason)
    free(state, item)


def _count_retry(
    state: GoalState, item: ItemState, attempt: AttemptState | None, event: ev.Transitioned
) -> None:
    """Count a rework of the guard, or an attempt without a score; the second unchanged is the last."""
    found = attempt.evaluation or attempt.retry if attempt else None
    said = found.stop_reason if found else None
    given = event.reason or None
    require(given in {None, said}, f"the reason {said} of its record, not {given}")
    if attempt is not None and attempt.evaluation is not None and given == StopReason.GUARD_REWORK:
        require(item.reworks < GUARD_REWORKS, f"{GUARD_REWORKS} reworks were made")
        item.reworks += 1
        return
    item.retries += 1
    if given in {StopReason.NO_CHANGE, StopReason.HOOK_BLOCKED}:
        if item.unchanged and state.contract is not None:
            item.retries = max(item.retries, state.contract.policy.retries + 1)
        item.unchanged = True


def _mark(attempt: AttemptState, event: ev.Transitioned) -> None:
    attempt.outcome = str(event.to_state)
    ends = event.to_state in {State.EVIDENCE_RECORDED, State.NEEDS_RETRY}
    if ends and attempt.ended_at is None:
        attempt.ended_at = event.at
    if event.to_state == State.NEEDS_RETRY and attempt.evaluation is not None:
        attempt.stop_reason = attempt.evaluation.stop_reason or attempt.stop_reason


def _check_outcome(state: GoalState, item: ItemState, target: State | None) -> None:
    attempt = state.attempt_of(item)
    evaluation = attempt.evaluation if attempt else None
    if evaluation is None or target is None:
        fail("there is no evaluation to classify")
    allowed = verdict_targets(evaluation.verdict, holdout_required=state.holdout_required)
    require(target in allowed, f"the verdict {evaluation.verdict} does not lead to {target}")


def _begin(state: GoalState, item: ItemState, event: ev.AttemptStarted) -> None:
    number = item.next_attempt or 0
    item.reserved, item.in_lane = False, True
    state.attempts_reserved -= 1
    state.attempts_used += 1
    if event.start.confirmation == "noise":
        item.confirmations += 1
    item.attempt, item.next_attempt = number, None
    item.attempts.append(number)
    item.base_revision = event.start.base_revision
    item.selected_from = item.wants_confirm = item.commit = ""
    item.evidence_revision = item.evaluation_revision = item.holdout_revision = 0
    item.owner_accepted = False
    touch(item, event.revision)
    state.attempts[number] = AttemptState(
        number=number,
        todo_id=item.todo_id,
        hypothesis_id=item.hypothesis_id or "",
        agent_id=event.agent_id,
        start=event.start,
        started_revision=event.revision,
        started_at=event.at,
    )


def selected(state: GoalState, event: ev.Selected) -> None:
    """Take `selected`: the claim's own move onto the frontier."""
    item = held_item(state, event)
    require(item.action == Action.SELECT, "the claim is not one to select")
    _check_row(state, item, event, Writer.QUOTA)
    before = item.state
    move(item, event)
    item.selected_from = before


# Records -----------------------------------------------------------------------------------------


def hypothesis_added(state: GoalState, event: ev.HypothesisAdded) -> None:
    """Take `hypothesis_added`: a new item, out of the source or out of negative evidence."""
    parent = state.items.get(state.claims.get(event.agent_id, ""))
    if parent is None:
        fail(f"{event.agent_id} holds no claim to propose under")
    check_held(parent, event)
    source = State.CONTRACT_READY if parent.kind in SOURCES else State(parent.state)
    require(event.from_state == source, f"the claim proposes out of {source}")
    rule = find_rule(source, State.HYPOTHESIS_PROPOSED, signed=False)
    if rule is None or Writer.PROPOSER not in rule.writers:
        fail(f"nobody proposes out of {source}")
    records = {EventType.HYPOTHESIS_ADDED: event.hypothesis}
    missing = first_missing(rule, Context(goal=state, item=parent, at=event.at, records=records))
    require(missing is None, f"{source} -> hypothesis_proposed lacks {missing}")
    require(event.version == 1 and event.to_state == State.HYPOTHESIS_PROPOSED, "version 1")
    digest = text_digest(event.hypothesis.hypothesis)
    equal = state.texts.get(digest)
    require(equal in {None, parent.todo_id}, f"the same text as {equal}")
    if parent.kind == TodoKind.IDEA:
        same = digest == text_digest(parent.text)
        require(same and event.hypothesis.source == "person", "the text of the idea, a person's")
    todo_id, hypothesis_id = event.todo_id or "", event.hypothesis_id or ""
    state.texts[digest] = hypothesis_id
    require(todo_id and todo_id not in state.items, "a new todo id")
    require(hypothesis_id and hypothesis_id not in state.hypotheses, "a new hypothesis id")
    state.items[todo_id] = ItemState(
        todo_id,
        TodoKind.HYPOTHESIS,
        State.HYPOTHESIS_PROPOSED,
        hypothesis_id=hypothesis_id,
        hypothesis=event.hypothesis,
        added_revision=event.revision,
        touched=event.revision,
        last_moved=event.at,
    )
    state.hypotheses[hypothesis_id] = todo_id
    state.families.setdefault(event.hypothesis.mechanism_family, []).append(hypothesis_id)
    state.live += 1
    if parent.kind in SOURCES:
        recovered(parent)
        _used(state, parent)
        free(state, parent)


def _used(state: GoalState, parent: ItemState) -> None:
    """Close a todo that gave its hypothesis; a successor that did opens the source again."""
    if parent.kind == TodoKind.PROPOSE:
        return
    shut(state, parent)
    parent.version += 1
    if parent.kind == TodoKind.SUCCESSOR:
        state.source_open = True
        source = state.items.get("todo_propose")
        if source is not None and source.state == CLOSED:
            source.state = OPEN
            source.version += 1


def attempt_started(state: GoalState, event: ev.AttemptStarted) -> None:
    """Take `attempt_started`; it takes effect with the transition behind it."""
    item = held_item(state, event)
    require(item.next_attempt is not None, "no attempt is reserved")
    require(event.attempt_number == item.next_attempt, f"attempt {item.next_attempt} is due")
    state.pending.append(event)


def _attempt(state: GoalState, item: ItemState, event: AnyEvent, where: State) -> AttemptState:
    attempt = state.attempt_of(item)
    if attempt is None or event.attempt_number != attempt.number:
        fail(f"the item is at attempt {item.attempt}")
    require(item.state == where, f"{item.todo_id} is {item.state}, not {where}")
    return attempt


def evidence_recorded(state: GoalState, event: ev.EvidenceRecorded) -> None:
    """Take `evidence_recorded` of a running attempt."""
    item = held_item(state, event)
    attempt = _attempt(state, item, event, State.ATTEMPT_RUNNING)
    attempt.evidence, attempt.evidence_revision = event.evidence, event.revision
    item.evidence_revision, item.commit = event.revision, event.evidence.code_ref
    touch(item, event.revision)
    state.pending.append(event)


def retry_recorded(state: GoalState, event: ev.RetryRecorded) -> None:
    """Take `retry_recorded` of a running attempt."""
    item = held_item(state, event)
    attempt = _attempt(state, item, event, State.ATTEMPT_RUNNING)
    attempt.retry, attempt.retry_revision = event.retry, event.revision
    attempt.stop_reason = event.retry.stop_reason
    touch(item, event.revision)
    state.pending.append(event)


def evaluation_recorded(state: GoalState, event: ev.EvaluationRecorded) -> None:
    """Take `evaluation_recorded`; what it says is checked with the transition behind it."""
    item = held_item(state, event)
    attempt = _attempt(state, item, event, State.EVIDENCE_RECORDED)
    cost = attempt.evidence.cost_usd if attempt.evidence else 0.0
    require(attempt.cost_usd >= cost - 1e-6, f"the cost of {cost} USD was not settled")
    attempt.evaluation, attempt.evaluation_revision = event.evaluation, event.revision
    item.evaluation_revision = event.revision
    item.wants_confirm = event.evaluation.confirmation or ""
    touch(item, event.revision)
    state.pending.append(event)


def holdout_recorded(state: GoalState, event: ev.HoldoutRecorded) -> None:
    """Take `holdout_recorded`: a question that is counted, or its answer."""
    item = held_item(state, event)
    attempt = _attempt(state, item, event, State.SUPPORTED)
    require(not item.gates, f"{item.todo_id} waits for {item.gates and item.gates[0]}")
    limit = state.contract.holdout_limit if state.contract else 0
    if event.holdout.status == "asked":
        require(state.holdouts < limit, f"all {limit} held-out questions were asked")
        state.holdouts += 1
        item.holdouts += 1
        return
    require(item.holdouts > 0, "a held-out question is counted before it is answered")
    problem = holdout_problem(context(state, item, event.at), event.holdout)
    require(problem is None, f"the held-out record lacks {problem}")
    attempt.holdout, attempt.holdout_revision = event.holdout, event.revision
    item.holdout_revision = event.revision
    touch(item, event.revision)
    state.pending.append(event)


def baseline_recorded(state: GoalState, event: ev.BaselineRecorded) -> None:
    """Take `baseline_recorded`: the approved base is the first champion."""
    item = held_item(state, event)
    contract = state.contract
    require(item.kind == TodoKind.BASELINE and not item.terminal, "the baseline todo, open")
    if contract is None:
        fail("there is no contract")
    for split, found in ((Split.DEV, event.baseline.dev), (Split.HOLDOUT, event.baseline.holdout)):
        if found is None:
            require(split == Split.HOLDOUT and not state.holdout_required, f"no {split} baseline")
            continue
        require(found.split == split, f"the {split} split")
        require(found.commit == contract.base_commit, "a measurement of the approved base")
        problem = measurement_problem(found, contract.evaluation, compared=False)
        require(problem is None, f"the baseline lacks {problem}")
    state.baseline, state.baseline_revision = event.baseline, event.revision
    state.champions.append(Champion(event.revision, contract.base_commit))
    item.state = CLOSED
    item.version += 1
    free(state, item)


def spent(state: GoalState, event: ev.Spent) -> None:
    """Take `spent`: the cost of an attempt, once."""
    item = item_of(state, event)
    number = event.attempt_number
    require(number is not None and number in item.attempts, "an attempt of this item")
    require(item.spent_attempt != number, "the attempt's cost is settled already")
    require(event.spend.attempt == number, f"the cost of attempt {event.spend.attempt}")
    item.spent_attempt = number
    state.cost_micro_usd += round(event.spend.cost_usd * 1_000_000)
    if number is not None:
        state.attempts[number].cost_usd += event.spend.cost_usd
