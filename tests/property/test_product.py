"""The full product: states x states x writers, alone and by signatures, on the real store.

`ROWS` is the table stated a second time, typed by hand from the specification. Every item here is
laid into the store with all that any row could ask for, so that only the table can refuse.
"""

import itertools
from dataclasses import replace
from typing import Any

import pytest
import redis

from contracts.errors import RefusedError
from contracts.store import keys
from contracts.store.writer import Held, Writer
from contracts.transitions import GATED_ROWS, TABLE
from contracts.words import EventType, Role, State, Stream
from tests.integration.store.dumps import dump
from tests.property import model as m
from tests.property.play import BAD, GOOD, NO_SCORE, Play
from tests.property.test_guards_match_store import TODO, World, tell_store
from tests.property.test_replay_accepts_the_store import chaos
from tests.property.work import Choice
from tests.scenario import Scenario, body

C, P, X, V = "curator", "proposer", "executor", "evaluator"

# from, to, who moves alone, what must stand in the call
ROWS: dict[tuple[str, str], tuple[set[str], tuple[str, ...]]] = {
    ("contract_ready", "hypothesis_proposed"): ({P}, ("hypothesis_added",)),
    ("hypothesis_proposed", "frontier_selected"): ({"quota"}, ()),
    ("hypothesis_proposed", "retired"): ({P}, ()),
    ("frontier_selected", "attempt_running"): ({X}, ("attempt_started",)),
    ("frontier_selected", "hypothesis_proposed"): ({"quota"}, ()),
    ("frontier_selected", "needs_retry"): ({"quota"}, ()),
    ("attempt_running", "evidence_recorded"): ({X}, ("evidence_recorded",)),
    ("attempt_running", "needs_retry"): ({X, "quota"}, ("retry_recorded",)),
    ("evidence_recorded", "evaluated"): ({V}, ("evaluation_recorded",)),
    ("evaluated", "supported"): ({V}, ()),
    ("evaluated", "contradicted"): ({V}, ()),
    ("evaluated", "needs_retry"): ({V}, ()),
    ("evaluated", "promotion_gate"): ({V}, ()),
    ("supported", "promotion_gate"): ({V}, ()),
    ("supported", "attempt_running"): ({X}, ("attempt_started",)),
    ("needs_retry", "frontier_selected"): ({"quota"}, ()),
    ("contradicted", "hypothesis_proposed"): ({P}, ("hypothesis_added",)),
    ("promotion_gate", "supported"): ({V}, ()),
}
# from, to, whose signature comes first, whose makes the move
SIGNED: dict[tuple[str, str], tuple[str, str]] = {
    ("evaluated", "retired"): (V, P),
    ("supported", "retired"): (V, P),
    ("promotion_gate", "retired"): (V, P),
    ("contradicted", "retired"): (P, V),
    ("needs_retry", "retired"): (P, V),
    ("hypothesis_proposed", "retired"): (P, V),
    ("promotion_gate", "promoted"): (V, C),
}
# These make another item; the item that is asked about stays where it is, and no move makes them.
BY_PROPOSAL = {
    ("contract_ready", "hypothesis_proposed"),
    ("contradicted", "hypothesis_proposed"),
}
STATES = sorted(State)
ROLES = sorted(Role)
WRITERS = (*ROLES, "operator", "quota")

# guard -> what makes it fail, every other being content
UNMET: dict[str, dict[str, Any]] = {
    "not_paused": {"paused": True},
    "not_closed": {"used": 20},
    "not_doomed": {"doomed": True},
    "reserved": {"reserved": False},
    "base_current": {"base_current": False},
    "base_moved": {"base_current": True},
    "unattempted": {"attempted": True},
    "attempted": {"attempted": False},
    "confirmation_wanted": {"wants_confirm": ""},
    "no_confirmation_wanted": {"wants_confirm": "noise"},
    "evidence": {"evidence": False},
    "evaluation": {"evaluation": False},
    "holdout": {"holdout": False},
    "holdout_passed": {},
    "holdout_not_required": {"holdout_required": True},
    "owner_accepted": {"owner_gate": True},
    "retries_left": {"retries": 9},
}


def world_for(source: str, target: str, role: str, *, signed: bool = False) -> World:
    """Give a world in which every guard of this move is content."""
    move = (source, target)
    return World(
        State(source),
        State(target),
        Role(role),
        frozenset(),
        reserved=True,
        base_current=move != ("promotion_gate", "supported"),
        attempted=signed or move != ("hypothesis_proposed", "retired"),
        wants_confirm="noise" if move == ("supported", "attempt_running") else "",
        holdout_required=move != ("evaluated", "promotion_gate"),
    )


class Bench:
    """One goal, whose one item is laid anew for each try."""

    def __init__(self, client: redis.Redis, goal_id: str) -> None:
        Scenario(client, goal_id).open()
        self.client, self.goal_id = client, goal_id
        self.writer = Writer(client, goal_id)

    def lay(self, world: World, **fields: str) -> Held:
        """Lay the item; `fields` are laid over what the world says."""
        held = tell_store(self.client, self.goal_id, world)
        more: dict[Any, Any] = {"holdout_pass": "1", "touched": "6", "commit": "c", **fields}
        self.client.hset(keys.item(self.goal_id, TODO), mapping=more)
        return held

    def move(self, held: Held, target: str, records: tuple[str, ...] | None = None) -> None:
        """Ask for a move alone, with the records that the row must carry."""
        if records is None:
            _, records = ROWS.get((self.state(), target), (set(), ()))
        facts = {"base_rev": self.base()} if "attempt_started" in records else {}
        self.writer.advance(held, target, records=[(each, body(x=1)) for each in records], **facts)

    def sign(self, held: Held, target: str) -> None:
        """Sign; an evaluator's signature comes with its decision."""
        decided = '{"decision":{}}' if held.role == V else None
        self.writer.sign(held, target, signature=self.seen(), decided=decided)

    def seen(self) -> str:
        """Give a signature of what is there."""
        touched = self.item("touched")
        return body(signature={"evidence_revision": int(touched), "x": 1})

    def item(self, name: str) -> str:
        """Give a field of the item."""
        return str(self.client.hget(keys.item(self.goal_id, TODO), name) or "")

    def state(self) -> str:
        """Give the item's state."""
        return self.item("state")

    def base(self) -> str:
        """Give the revision of the item's base."""
        return self.item("base_rev")

    def refused(self, call: Any, *arguments: Any, agent: str = "agent-1") -> RefusedError:
        """Check that a call is refused, changes no byte and says all there is to say."""
        before, state = dump(self.client, self.goal_id), self.state()
        held, target = arguments[0], arguments[1]
        with pytest.raises(RefusedError) as caught:
            call(*arguments)
        error = caught.value
        assert dump(self.client, self.goal_id) == before
        assert error.missing
        if agent == "agent-1":
            assert error.facts["item"] == f"{TODO}, hyp_0001, {state}, version 3"
            assert error.facts["asked"] == f"{state} -> {target}, as {held.role}"
            assert error.facts["missing"] == error.missing
        assert error.exit_code == 3
        return error


@pytest.fixture
def bench(redis_client: redis.Redis, goal_id: str) -> Bench:
    return Bench(redis_client, goal_id)


def test_the_table_says_what_the_specification_says() -> None:
    alone = {
        (str(rule.source), str(rule.target)): (
            set(map(str, rule.writers)),
            tuple(map(str, rule.records)),
        )
        for rule in TABLE
        if not rule.signers
    }
    signed = {
        (str(rule.source), str(rule.target)): tuple(map(str, rule.signers))
        for rule in TABLE
        if rule.signers
    }
    assert alone == ROWS
    assert signed == SIGNED
    assert len(TABLE) == len(ROWS) + len(SIGNED)
    assert {guard for rule in TABLE for guard in rule.guards} <= {*UNMET, "approved"}


@pytest.mark.parametrize("source", STATES)
def test_an_item_moves_by_one_role_exactly_where_the_table_says(bench: Bench, source: str) -> None:
    for target, writer in itertools.product(STATES, WRITERS):
        role = writer if writer in ROLES else X
        held = bench.lay(world_for(source, target, role))
        if writer not in ROLES:
            someone = f"operator:{writer}" if writer == "operator" else writer
            other = replace(held, agent_id=someone, role=writer)
            bench.refused(bench.move, other, target, agent=someone)
            continue
        writers, _ = ROWS.get((source, target), (set(), ()))
        if role in writers and (source, target) not in BY_PROPOSAL:
            bench.move(held, target)
            assert (bench.state(), bench.item("version")) == (target, "4")
            continue
        error = bench.refused(bench.move, held, target)
        wanted = "not_writer" if writers else "no_such_transition"
        assert error.reason == ("by_proposal" if role in writers else wanted)


@pytest.mark.parametrize("source", STATES)
def test_an_item_moves_by_two_signatures_exactly_where_the_table_says(
    bench: Bench, source: str
) -> None:
    for target, writer in itertools.product(STATES, WRITERS):
        signers = SIGNED.get((source, target))
        for order in (0, 1) if signers else (0,):
            role = writer if writer in ROLES else X
            first: dict[str, str] = {}
            if signers and order:
                first = {"signed_to": target, "signed_role": signers[0], "signed_by": "agent-0"}
                first |= {"signed_rev": "13", "signed_touched": "6", "decided_rev": "6"}
            held = bench.lay(world_for(source, target, role, signed=True), **first)
            if writer not in ROLES:
                someone = f"operator:{writer}" if writer == "operator" else writer
                other = replace(held, agent_id=someone, role=writer)
                bench.refused(bench.sign, other, target, agent=someone)
            elif not signers:
                assert bench.refused(bench.sign, held, target).reason == "no_such_transition"
            elif role != signers[order]:
                error = bench.refused(bench.sign, held, target)
                assert error.reason == "missing_signature"
                assert error.missing == f"the signature of {signers[order]}"
            else:
                bench.sign(held, target)
                assert bench.state() == (target if order else source)
                assert bench.item("version") == ("4" if order else "3")


def test_a_hypothesis_comes_only_from_a_proposer_and_out_of_what_was_contradicted(
    bench: Bench,
) -> None:
    def propose(held: Held, _target: str) -> None:
        bench.writer.propose(
            held,
            body=body(x=1),
            text_digest=f"text of {held.role}",
            rank=1.0,
            rank_reason="",
            title="",
            family="",
            cursor="",
            signature=bench.seen(),
        )

    bench.client.hset(keys.goal(bench.goal_id), "hypothesis_count", "1")  # the laid one
    of_items = [state for state in STATES if state != "contract_ready"]
    for source, role in itertools.product(of_items, ROLES):
        held = bench.lay(world_for(source, "hypothesis_proposed", role))
        if (source, role) == ("contradicted", P):
            propose(held, "hypothesis_proposed")
            assert bench.state() == "contradicted"
            continue
        before = dump(bench.client, bench.goal_id)
        with pytest.raises(RefusedError) as caught:
            propose(held, "hypothesis_proposed")
        assert dump(bench.client, bench.goal_id) == before
        rows = {"contradicted": "not_writer", "frontier_selected": "foreign_record"}
        assert caught.value.reason == rows.get(source, "no_such_transition")


@pytest.mark.parametrize("move", sorted(ROWS), ids="-".join)
def test_a_row_without_one_of_its_records_or_with_a_foreign_one_is_refused(
    bench: Bench, move: tuple[str, str]
) -> None:
    writers, records = ROWS[move]
    role = next((each for each in sorted(writers) if each != "quota"), X)
    held = bench.lay(world_for(*move, role))
    for each in records:
        left = tuple(other for other in records if other != each)
        error = bench.refused(bench.move, held, move[1], left)
        assert (error.reason, error.missing) == ("missing_record", f"the record {each}")
    rule = next(r for r in TABLE if r.key == move and not r.signers)
    for kind in {*map(str, EventType)} - {*records, *map(str, rule.may)}:
        error = bench.refused(bench.move, held, move[1], (*records, kind))
        assert error.reason == "foreign_record"


@pytest.mark.parametrize(
    "rule", TABLE, ids=lambda rule: "-".join((*rule.key, *(rule.signers or ())))
)
def test_a_row_without_one_of_its_guards_is_refused_by_its_name(bench: Bench, rule: Any) -> None:
    move = (str(rule.source), str(rule.target))
    signed = rule.signers is not None
    role = SIGNED[move][0] if signed else next(iter(sorted(ROWS[move][0] - {"quota"})), X)
    for guard in rule.guards:
        if guard == "approved":  # no item is there before the contract is
            continue
        world = replace(world_for(*move, role, signed=signed), **UNMET[guard])
        fields = {"holdout_pass": ""} if guard == "holdout_passed" else {}
        held = bench.lay(world, **fields)
        error = bench.refused(bench.sign if signed else bench.move, held, move[1])
        assert error.reason == guard


@pytest.mark.parametrize("signed", [False, True], ids=["alone", "by signatures"])
def test_an_item_under_a_gate_leaves_its_state_only_to_deliver(bench: Bench, signed: bool) -> None:
    free = {(str(source), str(target)) for source, target in GATED_ROWS}
    assert free == {
        ("attempt_running", "evidence_recorded"),
        ("attempt_running", "needs_retry"),
        ("frontier_selected", "hypothesis_proposed"),
        ("frontier_selected", "needs_retry"),
    }
    for move in SIGNED if signed else ROWS:
        role = SIGNED[move][0] if signed else next(iter(sorted(ROWS[move][0] - {"quota"})), X)
        world = world_for(*move, role, signed=signed)
        held = bench.lay(world, gates="1", gate="gate_0001")
        if move in free and role == X and move[0] == "attempt_running":
            bench.move(held, move[1])
            assert bench.state() == move[1]
            continue
        if move in free:
            continue  # the selection's own: no worker asks for it
        error = bench.refused(bench.sign if signed else bench.move, held, move[1])
        assert (error.reason, error.missing) == ("blocked_by_gate", "the decision of gate_0001")


def test_every_row_is_reached_by_calls_that_agents_make(
    redis_client: redis.Redis, goal_id: str
) -> None:
    def play(name: str, **limits: Any) -> Play:
        made = Play(redis_client, f"{goal_id}-{name}", m.Limits(low_water=9, **limits))
        made.ready(1)
        return made

    retried = play("retried")
    todo = retried.goes("executor-1", "select", GOOD, NO_SCORE)
    retried.take("executor-1", "select", todo)
    retried.lapse(todo)
    without = play("without", holdout_required=False)
    without.evidence()
    without.goes("evaluator-1", "evaluate", GOOD, Choice(alone=True))
    child = play("child")
    child.evidence(BAD)
    child.goes("evaluator-1", "evaluate", BAD, BAD)
    child.goes("proposer-1", "repropose_or_retire", Choice(child=True))
    readers = [each.reader for each in (retried, without, child)]
    seeds = (0, 1, 3, 4, 5, 6)
    readers += [chaos(redis_client, f"{goal_id}-{seed}", seed).reader for seed in seeds]
    reached = set()
    for reader in readers:
        for stream in Stream:
            for _, fields in reader.entries(stream):
                row = (fields.get("from"), fields.get("to"), fields["type"] == "signed")
                reached.add(row)
    wanted = {(*rule.key, rule.signers is not None) for rule in TABLE}
    # An attempt that ends leaves its item in another state; the row stands for other programs.
    assert wanted - reached == {(State.HYPOTHESIS_PROPOSED, State.RETIRED, True)}
