"""Replay: fold a goal's events, in order of revision, into `GoalState`, and check each of them.

Theory of operation. `apply` first checks the envelope (order, stream, writer, roster), then hands
the event to the one function of its type, which checks everything it needs before it changes
anything; what breaks a rule raises `BrokenRuleError`, becomes a `Violation`, and is not applied. The
functions mirror the store's (`lua/20_items.lua` to `50_operator.lua`), so an honest store's events
replay without a violation, and a writer who made up an event (and its digest) is caught by table,
roster, fences and values. Pure apart from changing the state it is given; no I/O.

Deliberately not here: the digest chain (`contracts.chain`), rank order, and the lengths of leases:
renewals are no events, so a lease is known only to last at least as long as its claim said.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from contracts import replay_items, replay_peers, replay_signatures, replay_work
from contracts.events import (
    AgentRegistered,
    AnyEvent,
    Approved,
    ContractProposed,
    GateDecided,
    GateOpened,
    GoalCreated,
    HoldoutRecorded,
    Paused,
    Resumed,
    TodoAdded,
)
from contracts.replay_items import (
    BrokenRuleError,
    fail,
    item_of,
    recovered,
    refile,
    require,
    touch,
)
from contracts.replay_state import (
    OPEN,
    GateState,
    GoalState,
    ItemState,
    Violation,
)
from contracts.words import (
    STREAM_EVENTS,
    EventType,
    GateKind,
    Role,
    State,
    Stream,
    TodoKind,
    Writer,
)

_BY_QUOTA = frozenset(
    {
        EventType.CLAIMED,
        EventType.SELECTED,
        EventType.RELEASED,
        EventType.LEASE_EXPIRED,
        EventType.STALE_RESULT_REJECTED,
        EventType.SPENT,
    }
)
_BIRTH = frozenset({EventType.GOAL_CREATED, EventType.CONTRACT_PROPOSED})


def _writers(event: AnyEvent) -> set[Writer]:
    kind = EventType(event.type)
    if kind in _BY_QUOTA:
        return {Writer.QUOTA}
    if event.stream == Stream.OPERATOR or kind in _BIRTH:
        return {Writer.OPERATOR}
    if kind == EventType.GATE_OPENED:
        asks = event.stream in {Stream.CURATOR, Stream.EVALUATOR}
        return {Writer.QUOTA, Writer(event.stream)} if asks else {Writer.QUOTA}
    return {Writer(event.stream)}


def _check_envelope(state: GoalState, event: AnyEvent) -> None:
    require(event.goal_id == state.goal_id, f"an event of the goal {event.goal_id}")
    kind = EventType(event.type)
    require(kind in STREAM_EVENTS[event.stream], f"{kind} has no place in this stream")
    require(event.writer in _writers(event), f"{event.writer} may not write {kind} here")
    if event.stream == Stream.OPERATOR or kind in _BIRTH:
        person = event.agent_id.startswith("operator:") and not state.roster.get(event.agent_id)
        require(person, f"{event.agent_id} is no operator")
    if event.stream == Stream.OPERATOR:
        require(event.role is None, "a person writes here, in no role")
        return
    require(event.role == Role(event.stream), f"the role {event.role} in the stream {event.stream}")
    if kind in _BIRTH:
        return
    role = Role(event.stream)
    claim = state.claims.get(event.agent_id)
    claimed = state.items[claim].claim_role == role if claim else False
    on_roster = role in state.roster.get(event.agent_id, ())
    require(on_roster or claimed, f"{event.agent_id} is not on the roster as {role}")


# The operator ------------------------------------------------------------------------------------


def _goal_created(state: GoalState, event: GoalCreated) -> None:
    require(state.created_at is None, "the goal exists already")
    state.created_at = event.at


def _contract_proposed(state: GoalState, event: ContractProposed) -> None:
    require(state.created_at is not None and state.contract is None, "one contract per goal")
    require(event.contract.context.goal_id == state.goal_id, "a contract of another goal")
    require(event.contract.contract_hash() == event.contract_hash, "the contract's hash differs")
    state.contract, state.contract_hash = event.contract, event.contract_hash
    state.target_met = event.contract.evaluation.target is None
    todo_id = event.todo_id or "todo_contract"
    state.items[todo_id] = ItemState(todo_id, TodoKind.CONTRACT, State.CONTRACT_READY)


def _approved(state: GoalState, event: Approved) -> None:
    require(state.contract is not None and not state.approved, "no contract waits for approval")
    require(event.approval.contract_hash == state.contract_hash, "another contract's hash")
    state.approved, state.approved_at, state.source_open = True, event.at, True


def _agent_registered(state: GoalState, event: AgentRegistered) -> None:
    found = event.registration
    state.declared.pop(found.agent_id, None)
    if found.declaration is not None and not found.removed:
        state.declared[found.agent_id] = found.declaration
    if found.removed:
        require(found.agent_id not in state.claims, f"{found.agent_id} holds a claim")
        state.roster[found.agent_id] = ()
    else:
        state.roster[found.agent_id] = found.roles


def _todo_added(state: GoalState, event: TodoAdded) -> None:
    require(bool(event.todo_id) and event.todo_id not in state.items, "the todo exists already")
    todo_id = event.todo_id or ""
    item = ItemState(todo_id, event.kind, OPEN, added_revision=event.revision)
    if event.kind == TodoKind.IDEA:
        replay_peers.idea_added(state, item, event)
    state.items[todo_id] = item


def _paused(state: GoalState, event: Paused) -> None:
    require(not state.paused, "the goal is paused already")
    state.paused, state.pause_note = True, event.note


def _resumed(state: GoalState, event: Resumed) -> None:
    require(state.paused, "the goal is not paused")
    state.paused, state.pause_note = False, ""
    del event


def _gate_opened(state: GoalState, event: GateOpened) -> None:
    item = item_of(state, event)
    require(not item.terminal, f"{item.todo_id} has ended")
    require(bool(event.gate_id) and event.gate_id not in state.gates, "a new gate id")
    require(not item.gates, f"{item.todo_id} has the gate {item.gates and item.gates[0]} already")
    if event.writer == Writer.QUOTA:
        _check_own_gate(state, item, event)
    gate_id = event.gate_id or ""
    state.gates[gate_id] = GateState(
        gate_id,
        event.gate.kind,
        item.todo_id,
        event.revision,
        event.at,
        event.agent_id,
        event.gate,
    )
    item.gates.append(gate_id)
    if item.state != State.ATTEMPT_RUNNING:
        replay_items.leave_lane(state, item)
    touch(item, event.revision)


def _check_own_gate(state: GoalState, item: ItemState, event: GateOpened) -> None:
    """A gate that the store opens itself: an owner gate, poison, or disagreement."""
    kind = event.gate.kind
    if kind == GateKind.OWNER:
        wanted = state.contract is not None and state.contract.policy.owner_gate
        require(wanted and item.state == State.PROMOTION_GATE, "no owner gate is due here")
    elif kind == GateKind.POISON:
        require(item.lapses > 0, "no recovery of this item came before")
        said = [each.model_copy(update={"detail": ""}) for each in event.gate.recoveries]
        require(said == item.recoveries, "the recoveries are not those that came before")
    elif kind == GateKind.DISAGREEMENT:
        require(item.declines > 0, "nobody declined a signature of this item")
        item.declines = 0
    else:
        fail(f"the selection opens no gate of kind {kind}")


def _gate_decided(state: GoalState, event: GateDecided) -> None:
    gate = state.gates.get(event.gate_id or "")
    if gate is None or gate.decision is not None:
        fail("no such open gate")
    require(event.gate_revision == gate.opened_revision, "another revision of the gate")
    item = state.items[gate.todo_id]
    require(event.todo_id == item.todo_id, f"the gate is on {item.todo_id}")
    gate.decision, gate.decided_revision = event.decision, event.revision
    gate.decided_by = event.agent_id
    item.gates.remove(gate.gate_id)
    recovered(item)
    if event.decision.verdict == "approved":
        limit = state.contract.policy.retries if state.contract else 0
        if gate.kind == GateKind.OWNER:
            item.owner_accepted = True
        else:
            item.retries = min(item.retries, limit)
    elif item.kind == TodoKind.HYPOTHESIS:
        item.doomed = True
    else:
        replay_items.shut(state, item)
    touch(item, event.revision)
    refile(state, item)


def _noted(state: GoalState, event: AnyEvent) -> None:
    """Take an event that changes nothing that replay keeps."""


def _not_yet(_: GoalState, event: AnyEvent) -> None:
    fail(f"nothing of this version writes {event.type}")


HANDLERS: Mapping[EventType, Callable[[GoalState, Any], None]] = {
    EventType.GOAL_CREATED: _goal_created,
    EventType.CONTRACT_PROPOSED: _contract_proposed,
    EventType.BOUNDARY_NOTED: _noted,
    EventType.GATE_OPENED: _gate_opened,
    EventType.SIGNED: replay_signatures.signed,
    EventType.HYPOTHESIS_ADDED: replay_work.hypothesis_added,
    EventType.ASSESSED: replay_peers.assessed,
    EventType.TRANSITIONED: replay_work.transitioned,
    EventType.SUCCESSOR_ADDED: replay_peers.successor_added,
    EventType.ATTEMPT_STARTED: replay_work.attempt_started,
    EventType.EVIDENCE_RECORDED: replay_work.evidence_recorded,
    EventType.RETRY_RECORDED: replay_work.retry_recorded,
    EventType.BASELINE_RECORDED: replay_work.baseline_recorded,
    EventType.CALIBRATION_RECORDED: _noted,
    EventType.HOLDOUT_RECORDED: replay_work.holdout_recorded,
    EventType.EVALUATION_RECORDED: replay_work.evaluation_recorded,
    EventType.STRATEGY_CHANGED: _noted,
    EventType.DECIDED: replay_signatures.decided,
    EventType.APPROVED: _approved,
    EventType.AGENT_REGISTERED: _agent_registered,
    EventType.GATE_DECIDED: _gate_decided,
    EventType.PAUSED: _paused,
    EventType.RESUMED: _resumed,
    EventType.TAKEN_OVER: _not_yet,
    EventType.HANDED_BACK: _not_yet,
    EventType.TODO_ADDED: _todo_added,
    EventType.CLAIMED: replay_items.claimed,
    EventType.SELECTED: replay_work.selected,
    EventType.RELEASED: replay_items.given_back,
    EventType.LEASE_EXPIRED: replay_items.given_back,
    EventType.STALE_RESULT_REJECTED: replay_items.stale,
    EventType.SPENT: replay_work.spent,
    EventType.REVIEWED: replay_peers.reviewed,
    EventType.LOOP_RECORDED: _noted,
}


def _violation(event: AnyEvent, what: str) -> Violation:
    return Violation(event.revision, event.stream, event.entry_id, event.type, what)


def apply(state: GoalState, event: AnyEvent) -> list[Violation]:
    """Fold one event into the state, or say what it breaks and leave the state as it was.

    Args:
        state: Changed in place; use one per goal, from one thread.
        event: The next event in order of revision.
    """
    found: list[Violation] = []
    if event.revision != state.revision + 1:
        what = f"revision {event.revision} after {state.revision}"
        found.append(_violation(event, what))
        if event.revision <= state.revision:
            return found
    state.revision = event.revision
    state.last_at = event.at
    found.extend(_orphans(state, event))
    if what := replay_peers.unpaid(state, event):
        found.append(_violation(event, what))
    try:
        _check_envelope(state, event)
        HANDLERS[EventType(event.type)](state, event)
    except BrokenRuleError as broken:
        found.append(_violation(event, broken.what))
        return found
    state.events[event.revision] = event
    return found


def _orphans(state: GoalState, event: AnyEvent) -> list[Violation]:
    """Records belong to the step right behind them; one without its step is no step at all."""
    if not state.pending:
        return []
    follows = event.todo_id == state.pending[-1].todo_id and event.type in {
        *replay_work.STEP_RECORDS,
        EventType.TRANSITIONED,
    }
    if follows:
        return []
    orphans = [each for each in state.pending if each.type in replay_work.STEP_RECORDS]
    state.pending.clear()
    return [
        _violation(each, "no transition rests on it")
        for each in orphans
        if not isinstance(each, HoldoutRecorded)
    ]


def replay(goal_id: str, events: Iterable[AnyEvent]) -> tuple[GoalState, list[Violation]]:
    """Fold all events of a goal, in order of revision."""
    state = GoalState(goal_id)
    violations: list[Violation] = []
    for event in events:
        violations.extend(apply(state, event))
    return state, violations
