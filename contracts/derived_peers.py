"""Derived state of declared roles, reviews and assessments, as the store's hashes have it."""

import hashlib

from contracts.canonical import canonical
from contracts.events import AnyEvent, Assessed, Reviewed
from contracts.replay_state import GoalState, ItemState


def declared_words(state: GoalState, agent_id: str) -> str:
    """Give the declaration of an agent whose role is beyond the four, or nothing."""
    declared = state.declared.get(agent_id)
    return canonical(declared.to_json_dict()) if declared else ""


def _words_sha1(event: AnyEvent) -> str:
    """Give the digest by which the store knows the same words again."""
    if isinstance(event, Reviewed):
        words: dict[str, object] = {"review": event.review.to_json_dict()}
    elif isinstance(event, Assessed):
        words = {"verdict": event.verdict, "refs": list(event.refs), "note": event.note}
    else:
        return ""
    return hashlib.sha1(canonical(words).encode(), usedforsecurity=False).hexdigest()


def peers_words(state: GoalState, item: ItemState) -> dict[str, str]:
    """Give where each agent's last review and assessment of an item stand."""
    found = {}
    for name, revisions in (("reviewed", item.reviews), ("assessed", item.assessments)):
        for revision in revisions:
            event = state.events[revision]
            found[f"{name}:{event.agent_id}"] = str(revision)
            found[f"{name}_digest:{event.agent_id}"] = _words_sha1(event)
    return found
