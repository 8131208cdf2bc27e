"""The curator: keeps objective, scopes, metric and gates explicit, and joins promotions."""

from contracts.errors import LabmatesError
from contracts.words import State
from roles.steps.champion import move_champion_ref
from roles.steps.lane import Lane
from roles.steps.signing import cosign_promotion


def curate(lane: Lane, item: dict[str, str]) -> None:
    """Carry one claim of the curator to its end."""
    if item.get("signed_to") != State.PROMOTED:
        message = f"a curator has nothing to do with {item.get('state')}"
        raise LabmatesError(message)
    lane.say("working", f"co-signs the promotion of {item['hyp']}")
    cosign_promotion(lane, item)
    move_champion_ref(lane.context)
