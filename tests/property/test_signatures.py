"""What voids a first signature and what does not, on the real store."""

from collections.abc import Callable

import pytest
import redis

from contracts.store import keys
from contracts.store.writer import Writer
from contracts.words import Role, State
from tests.peers import add_idea, assess, review
from tests.property.play import Make, Play
from tests.property.test_guards_match_store import TODO, World, tell_store
from tests.scenario import PLANS, Scenario, body

Event = Callable[[Play, str], object]


def _gate_opened(play: Play, todo: str) -> None:
    play.gate(todo, "merge")


def _gate_approved(play: Play, todo: str) -> None:
    play.gate(todo, "merge")
    play.decide("gate_0001", accepted=True)


def _assessed(play: Play, todo: str) -> None:
    assess(play.play, "proposer-1", play.reader.item(todo)["hyp"], "weakens")


VOID: dict[str, Event] = {
    "a gate that opens": _gate_opened,
    "a gate that is approved": _gate_approved,
    "an assessment": _assessed,
}


def _claimed_and_released(play: Play, todo: str) -> None:
    play.take("curator-1", "cosign", todo)
    play.release("curator-1", "stopped")


def _claimed_and_renewed(play: Play, todo: str) -> None:
    play.take("curator-1", "cosign", todo)
    play.renew("curator-1")
    play.release("curator-1", "stopped")


def _claimed_and_lapsed(play: Play, todo: str) -> None:
    play.take("curator-1", "cosign", todo)
    play.lapse(todo)
    play.take("curator-1", "cosign", todo)
    play.release("curator-1", "stopped")


def _other_item_proposed(play: Play, _todo: str) -> None:
    play.goes("proposer-1", "propose")


def _other_item_tried(play: Play, _todo: str) -> None:
    play.evidence()


def other(todo: str) -> str:
    """Name the item beside."""
    return "todo_0002" if todo == "todo_0001" else "todo_0001"


def _other_item_gated(play: Play, todo: str) -> None:
    play.gate(other(todo), "merge")
    play.decide("gate_0001", accepted=False)


def _idea(play: Play, _todo: str) -> None:
    add_idea(play.play, PLANS[0])


def _paused(play: Play, _todo: str) -> None:
    play.pause(value=True)
    play.pause(value=False)


KEEP: dict[str, Event] = {
    "the cosigner's claim and release": _claimed_and_released,
    "a renewal": _claimed_and_renewed,
    "an ended lease": _claimed_and_lapsed,
    "another hypothesis": _other_item_proposed,
    "another attempt": _other_item_tried,
    "a gate on another item": _other_item_gated,
    "an idea": _idea,
    "a pause": _paused,
}


def signed(make: Make) -> tuple[Play, str]:
    """Bring an item to the gate with the evaluator's signature, beside an untried one."""
    play = make(2)
    todo = play.at_gate()
    play.goes("evaluator-1", "sign")
    return play, todo


def stands(play: Play, todo: str) -> bool:
    """Tell whether the first signature is of what is there now."""
    item = play.reader.item(todo)
    return item.get("signed_touched") == item["touched"]


@pytest.mark.parametrize("event", VOID.values(), ids=VOID)
def test_what_touches_an_item_voids_its_signature(make: Make, event: Event) -> None:
    play, todo = signed(make)
    assert stands(play, todo)
    event(play, todo)
    assert not stands(play, todo)
    for gate in play.reader.open_gates():
        play.decide(gate, accepted=True)
    assert play.reader.should_run("curator-1")["should_run"] == "0"
    reply = play.writer.claim(agent_id="evaluator-1", incarnation="again")
    assert (reply["todo"], reply["action"]) == (todo, "sign")


@pytest.mark.parametrize("event", KEEP.values(), ids=KEEP)
def test_what_touches_it_not_leaves_the_signature(make: Make, event: Event) -> None:
    play, todo = signed(make)
    event(play, todo)
    assert stands(play, todo)
    reply = play.writer.claim(agent_id="curator-1", incarnation="again")
    assert (reply["todo"], reply["action"]) == (todo, "cosign")


def test_a_review_of_what_has_ended_touches_no_signature_of_another(make: Make) -> None:
    play, todo = signed(make)
    play.gate(other(todo), "merge")
    play.decide("gate_0001", accepted=False)
    play.goes("proposer-1", "repropose_or_retire")
    review(play.play, "curator-1", play.reader.item(other(todo))["hyp"])
    assert stands(play, todo)


@pytest.mark.parametrize("accepted", [True, False], ids=["approved", "rejected"])
def test_a_decision_alone_voids_what_was_signed_before_it(make: Make, *, accepted: bool) -> None:
    play, todo = signed(make)
    name = keys.item(play.goal_id, todo)
    before = {k: v for k, v in play.reader.item(todo).items() if k.startswith("signed_")}
    play.gate(todo, "merge")
    # The gate has voided it already: it is put back, as if made under the gate.
    made = {**before, "signed_touched": play.reader.item(todo)["touched"]}
    play.client.hset(name, mapping=made)  # type: ignore[arg-type]
    assert stands(play, todo)
    play.decide("gate_0001", accepted=accepted)
    assert not stands(play, todo)
    assert not play.reader.item(todo).get("signed_to")


@pytest.mark.parametrize(
    ("source", "target", "role"),
    [
        (State.ATTEMPT_RUNNING, State.EVIDENCE_RECORDED, Role.EXECUTOR),
        (State.EVIDENCE_RECORDED, State.EVALUATED, Role.EVALUATOR),
    ],
    ids=["evidence", "an evaluation"],
)
def test_new_evidence_and_a_new_evaluation_void_what_was_signed_before_them(
    redis_client: redis.Redis, goal_id: str, source: State, target: State, role: Role
) -> None:
    Scenario(redis_client, goal_id).open()
    held = tell_store(redis_client, goal_id, World(source, target, role, frozenset()))
    name = keys.item(goal_id, TODO)
    made = {"signed_to": "retired", "signed_role": "evaluator", "signed_by": "agent-0"}
    made |= {"signed_rev": "13", "signed_touched": "6", "touched": "6", "decided_rev": "6"}
    redis_client.hset(name, mapping=made)  # type: ignore[arg-type]
    kind = "evidence_recorded" if role == Role.EXECUTOR else "evaluation_recorded"
    records = [(kind, body(x=1))]
    Writer(redis_client, goal_id).advance(held, target, records=records, commit="c")
    left = redis_client.hgetall(name)
    assert left["state"] == target
    assert left["touched"] != "6"
    assert not {k: v for k, v in left.items() if v and k in made and k != "touched"}
