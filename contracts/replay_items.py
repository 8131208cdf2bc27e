"""Replay of items and claims: `lua/20_items` and `lua/30_quota` in Python, with its checks."""

from typing import NoReturn

from contracts import events as ev
from contracts import records
from contracts.canonical import text_digest
from contracts.events import AnyEvent
from contracts.replay_state import (
    CLOSED,
    GoalState,
    ItemState,
    has_room,
    is_closed,
    is_satisfied,
    ready_class,
)
from contracts.words import (
    Action,
    Role,
    State,
    TodoKind,
)

# Actions that begin something; a pause stops these alone.
_BEGINS = (Action.SELECT, Action.CONFIRM, Action.PROPOSE, Action.MEASURE_BASELINE)
_CHOSEN = (
    "stopped",
    "goal_paused",
    "goal_closed",
    "stale_base",
    "blocked_by_gate",
    "changed_since_read",
)
"""Reasons to give a claim back that are no recovery."""

SOURCES: dict[str, str] = {
    TodoKind.PROPOSE: "source_empty",
    TodoKind.SUCCESSOR: "no_follow_up",
    TodoKind.IDEA: "no_follow_up",
}
"""The todos that hypotheses come out of, and why each closes when it has none."""

# Ready set -> the actions of a claim out of it, and the role that makes it.
_ACTIONS: dict[str, tuple[Role, tuple[Action, ...]]] = {
    "baseline": (Role.EVALUATOR, (Action.MEASURE_BASELINE,)),
    "propose": (Role.PROPOSER, (Action.PROPOSE,)),
    "idea": (Role.PROPOSER, (Action.PROPOSE,)),
    "successor": (Role.PROPOSER, (Action.PROPOSE,)),
    "settle": (Role.PROPOSER, (Action.REPROPOSE_OR_RETIRE,)),
    "cosign_proposer": (Role.PROPOSER, (Action.COSIGN,)),
    "cosign_evaluator": (Role.EVALUATOR, (Action.COSIGN,)),
    "cosign_curator": (Role.CURATOR, (Action.COSIGN,)),
    "confirm": (Role.EXECUTOR, (Action.CONFIRM,)),
    "retry": (Role.EXECUTOR, (Action.SELECT,)),
    "start": (Role.EXECUTOR, (Action.SELECT,)),
    "evaluate": (Role.EVALUATOR, (Action.EVALUATE,)),
    "classify": (Role.EVALUATOR, (Action.CLASSIFY,)),
    "holdout": (Role.EVALUATOR, (Action.MEASURE_HOLDOUT,)),
    "sign": (Role.EVALUATOR, (Action.SIGN,)),
}
# What the same sets are for once the goal takes no more attempts.
_WHEN_CLOSED = {
    "start": (Role.PROPOSER, (Action.REPROPOSE_OR_RETIRE,)),
    "retry": (Role.PROPOSER, (Action.REPROPOSE_OR_RETIRE,)),
    "confirm": (Role.EVALUATOR, (Action.MEASURE_HOLDOUT,)),
}


class BrokenRuleError(Exception):
    """An event breaks a rule; never leaves replay."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what


def require(condition: object, what: str) -> None:
    """Break off with `what` unless the condition holds."""
    if not condition:
        raise BrokenRuleError(what)


def fail(what: str) -> NoReturn:
    """Break off with `what`."""
    raise BrokenRuleError(what)


def item_of(state: GoalState, event: AnyEvent) -> ItemState:
    """Give the event's item; breaks off if there is none, or its hypothesis is another."""
    item = state.items.get(event.todo_id or "")
    if item is None:
        fail(f"there is no todo {event.todo_id}")
    same = event.hypothesis_id is None or event.hypothesis_id == item.hypothesis_id
    require(same, f"{item.todo_id} backs {item.hypothesis_id}, not {event.hypothesis_id}")
    return item


def held_item(state: GoalState, event: AnyEvent) -> ItemState:
    """Give the item that the event's agent holds under the event's fence."""
    item = item_of(state, event)
    check_held(item, event)
    return item


def check_held(item: ItemState, event: AnyEvent) -> None:
    """Break off unless agent, fence, role and incarnation are those of the live claim."""
    holder = item.claimed_by or "nobody"
    require(item.claimed_by == event.agent_id, f"{item.todo_id} is claimed by {holder}")
    require(event.fence == item.fence, f"fence {event.fence}, the live claim's is {item.fence}")
    require(event.role == item.claim_role, f"the claim is for the role {item.claim_role}")
    same = event.incarnation is None or event.incarnation == item.incarnation
    require(same, "another incarnation holds the claim")


def unsign(item: ItemState) -> None:
    """Void the first signature and the decision that goes with it."""
    item.signed_to, item.signed_role, item.signed_by = "", None, ""
    item.signed_revision = item.signed_touched = item.decided_revision = 0


def touch(item: ItemState, revision: int) -> None:
    """Give the item a new evidence revision, which voids signatures."""
    item.touched = revision
    unsign(item)


def refile(state: GoalState, item: ItemState) -> None:
    """A supported item whose base is no longer the champion must be measured again."""
    if (
        item.state == State.SUPPORTED
        and not item.claimed_by
        and not item.wants_confirm
        and item.base_revision != state.champion_revision
    ):
        item.wants_confirm = "champion_moved"


def free(state: GoalState, item: ItemState) -> None:
    """End the item's claim; its fence stays."""
    state.claims.pop(item.claimed_by, None)
    item.claimed_by, item.claim_role, item.incarnation = "", None, ""
    item.action = item.lease_until = None
    refile(state, item)


def leave_lane(state: GoalState, item: ItemState) -> None:
    """The attempt no longer holds a lane."""
    if item.in_lane:
        item.in_lane = False
        state.lanes -= 1


def end_item(state: GoalState, item: ItemState, event: AnyEvent, reason: str | None) -> None:
    """The item has ended."""
    leave_lane(state, item)
    state.live -= 1
    item.end_reason, item.ended_revision = reason, event.revision
    attempt = state.attempt_of(item)
    if attempt is not None:
        attempt.outcome = item.state
    end_cycle(state, item, event)


def end_cycle(state: GoalState, item: ItemState, event: AnyEvent) -> None:
    """With nothing left to do and the target unmet, the next event adds the successor."""
    rule = state.contract.strategy.unmet_target_rule if state.contract else ""
    left = state.live or state.source_open or state.successor or state.ideas
    over = is_satisfied(state) or is_closed(state, event.at)
    if rule == "add_successor" and state.baseline_revision and not left and not over:
        state.owes_successor = (event.revision, item.todo_id)


def shut(state: GoalState, item: ItemState) -> None:
    """Close a todo that backs no hypothesis."""
    item.state = CLOSED
    if item.kind == TodoKind.PROPOSE:
        state.source_open = False
    elif item.kind == TodoKind.SUCCESSOR:
        state.successor = ""
    elif item.kind == TodoKind.IDEA:
        state.ideas -= 1
        digest = text_digest(item.text)
        if state.texts.get(digest) == item.todo_id:
            del state.texts[digest]


def note_recovery(item: ItemState, event: AnyEvent, reason: str) -> None:
    """A claim ended without its step; its holder is still known."""
    item.lapses += 1
    item.recoveries.append(
        records.Recovery.model_validate(
            {
                "revision": event.revision,
                "reason": reason,
                "agent_id": item.claimed_by,
                "role": item.claim_role,
                "incarnation": item.incarnation,
                "fence": item.fence,
                "attempt": item.attempt,
            }
        )
    )


def recovered(item: ItemState) -> None:
    """A step of the item ended well, or a person decided: the count begins anew."""
    item.lapses = 0
    item.recoveries.clear()


def stale(state: GoalState, event: ev.StaleResultRejected) -> None:
    """Take `stale_result_rejected`: its claim had ended, and it is on record once."""
    item = item_of(state, event)
    fence = event.fence or 0
    live = item.fence == fence and item.claimed_by == event.agent_id
    require(0 < fence <= item.fence and not live, f"the claim at fence {fence} had not ended")
    require(fence not in item.stale, f"the result at fence {fence} was refused already")
    item.stale.append(fence)


def move(item: ItemState, event: AnyEvent) -> None:
    """Move the item to the event's state; checks source and version."""
    require(event.from_state == item.state, f"{item.todo_id} is {item.state}")
    require(event.version == item.version + 1, f"version {event.version} after {item.version}")
    item.state = str(event.to_state)
    item.version += 1
    item.last_moved = event.at


# Claims ------------------------------------------------------------------------------------------


def claimed(state: GoalState, event: ev.Claimed) -> None:
    """Take `claimed`: the roster, the ready set, the lane and the budget allow it."""
    item = item_of(state, event)
    require(event.fence == event.revision, "a fence is the revision of its claim")
    require(event.version == item.version, f"version {event.version}, it is {item.version}")
    require(event.action and event.role and event.lease_until, "an action, a role and a lease")
    require(state.approved, "the contract is not approved")
    if event.action == Action.RESUME:
        require(item.claimed_by == event.agent_id, f"{event.agent_id} does not hold the item")
        require(event.role == item.claim_role, f"the claim is for the role {item.claim_role}")
        note_recovery(item, event, "crash")
    else:
        _check_new_claim(state, item, event)
        item.claimed_by, item.claim_role, item.action = event.agent_id, event.role, event.action
        state.claims[event.agent_id] = item.todo_id
        if event.action in {Action.SELECT, Action.CONFIRM}:
            item.reserved = True
            state.attempt_count += 1
            item.next_attempt = state.attempt_count
            state.attempts_reserved += 1
            state.lanes += 1
    item.incarnation = event.incarnation or ""
    item.fence = event.fence or 0
    item.lease_until = event.lease_until


def _check_new_claim(state: GoalState, item: ItemState, event: ev.Claimed) -> None:
    require(not item.claimed_by, f"{item.todo_id} is claimed by {item.claimed_by}")
    held = state.claims.get(event.agent_id)
    require(held is None, f"{event.agent_id} holds {held} already")
    begins = event.action in _BEGINS
    require(not (state.paused and begins), "the goal is paused")
    name = ready_class(state, item)
    closed = is_closed(state, event.at)
    role, actions = _ACTIONS.get(name, (None, ()))
    if closed and name in _WHEN_CLOSED:
        role, actions = _WHEN_CLOSED[name]
    allowed = role == event.role and event.action in actions
    require(allowed, f"{item.todo_id} is {item.state}: nothing to {event.action} for {event.role}")
    if event.action in {Action.SELECT, Action.CONFIRM}:
        require(state.baseline_revision, "there is no baseline yet")
        require(has_room(state, event.at), "no attempt or lane is left to reserve")


def given_back(state: GoalState, event: ev.Released | ev.LeaseExpired) -> None:
    """Take `released` and `lease_expired`: the claim ends, the item goes back where it was."""
    item = item_of(state, event)
    require(item.claimed_by, f"{item.todo_id} is not claimed")
    require(event.fence == item.fence, f"fence {event.fence}, the live claim's is {item.fence}")
    if isinstance(event, ev.LeaseExpired):
        ended = item.lease_until is not None and event.at >= item.lease_until
        require(ended, "the lease had not ended")
    elif event.agent_id != item.claimed_by:
        require(
            event.reason == "blocked_by_gate" and item.gates, "only a gate ends another's claim"
        )
    elif event.reason != "crash":
        check_held(item, event)
    if event.version is not None and event.to_state is None:
        _close_source(state, item, event)
        return
    target = _way_back(item)
    require((event.to_state or "") == target, f"the way back is to {target or 'stay'}")
    attempt = state.attempt_of(item)
    running = item.state == State.ATTEMPT_RUNNING
    if target:
        move(item, event)
    item.selected_from = ""
    if running:
        item.retries += 1
        leave_lane(state, item)
        if attempt is not None:
            attempt.stop_reason, attempt.ended_at = event.reason, event.at
            attempt.outcome = State.NEEDS_RETRY
    if item.reserved:
        item.reserved = False
        state.attempts_reserved -= 1
        state.lanes -= 1
    if isinstance(event, ev.LeaseExpired) or event.reason not in _CHOSEN:
        note_recovery(item, event, event.reason or "")
    if running:
        touch(item, event.revision)
    free(state, item)


def _way_back(item: ItemState) -> str:
    if item.state == State.FRONTIER_SELECTED:
        return item.selected_from
    return State.NEEDS_RETRY if item.state == State.ATTEMPT_RUNNING else ""


def _close_source(state: GoalState, item: ItemState, event: AnyEvent) -> None:
    wanted = SOURCES.get(item.kind)
    require(wanted and event.reason == wanted, "only a todo that proposes closes so")
    require(event.version == item.version + 1, f"version {event.version} after {item.version}")
    shut(state, item)
    item.version += 1
    free(state, item)
    if item.kind != TodoKind.SUCCESSOR:
        end_cycle(state, item, event)
