"""Replay of what peers say of each other's work, of ideas and successors: `lua/35` and `lua/55`."""

from contracts import events as ev
from contracts.canonical import text_digest
from contracts.events import AnyEvent
from contracts.replay_items import item_of, refile, require, touch
from contracts.replay_state import OPEN, GoalState, ItemState, is_closed
from contracts.words import Role, TodoKind


def reviewed(state: GoalState, event: ev.Reviewed) -> None:
    """Take `reviewed`: a word on a decision that stands; whose it is, readers judge."""
    item = item_of(state, event)
    require(item.kind == TodoKind.HYPOTHESIS and item.ended_revision, "there is no decision yet")
    found, wanted = event.review, item.ended_revision
    bound = found.decision_revision == event.record_revision == wanted
    require(bound, f"the decision is at revision {wanted}")
    require(found.evidence_revision <= item.touched, f"the evidence is at {item.touched}")
    item.reviews.append(event.revision)


def assessed(state: GoalState, event: ev.Assessed) -> None:
    """Take `assessed`: an observation, which voids signatures that did not see it."""
    item = item_of(state, event)
    require(item.kind == TodoKind.HYPOTHESIS, "a hypothesis")
    item.assessments.append(event.revision)
    item.owner_accepted = False
    touch(item, event.revision)
    if not item.terminal:
        refile(state, item)


def idea_added(state: GoalState, item: ItemState, event: ev.TodoAdded) -> None:
    """Take a person's idea; its text is reserved until the proposer made it a hypothesis."""
    require(state.approved, "the contract is not approved")
    require(not is_closed(state, event.at), "the goal takes no more attempts")
    require(event.idea is not None and event.text.strip(), "an idea with its text")
    digest = text_digest(event.text)
    equal = state.texts.get(digest)
    require(equal is None, f"the same text as {equal}")
    item.idea, item.text = event.idea, event.text
    item.title = event.idea.title if event.idea else ""
    state.texts[digest] = item.todo_id
    state.ideas += 1
    state.idea_count += 1


def successor_added(state: GoalState, event: ev.SuccessorAdded) -> None:
    """Take `successor_added`: owed by the event right before it, and by no other."""
    require(state.owes_successor is not None, "no cycle ended unmet right before it")
    revision, todo_id = state.owes_successor or (0, "")
    state.owes_successor = None
    lineage = event.record_revision == revision and event.after_todo_id == todo_id
    require(lineage, f"it follows {todo_id}, which ended at revision {revision}")
    wanted = f"todo_successor_{state.successor_count + 1:04d}"
    require(event.todo_id == wanted and event.version == 1, f"the todo {wanted}, at version 1")
    require(event.target_role == Role.PROPOSER, "a successor is the proposer's")
    state.items[wanted] = ItemState(wanted, TodoKind.SUCCESSOR, OPEN, added_revision=event.revision)
    state.successor = wanted
    state.successor_count += 1


def unpaid(state: GoalState, event: AnyEvent) -> str:
    """Say that a cycle ended unmet without its successor; empty if none did."""
    if state.owes_successor is None or isinstance(event, ev.SuccessorAdded):
        return ""
    revision, _ = state.owes_successor
    state.owes_successor = None
    return f"the successor that revision {revision} owes is missing"
