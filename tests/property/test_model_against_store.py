"""Agents, crashes, clocks and a person, in any order: the store does what the model does.

After every action the whole of both is compared (`Both.compare`): decisions of all agents, items,
claims and fences, ready sets, budgets, lanes, phase, and the replay of the streams with the derived
state. At the end of every example the faults stop, and fair work must end everything.
"""

import random
from dataclasses import replace
from typing import Any, ClassVar

import pytest
import redis
from hypothesis import HealthCheck, Phase, note, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from contracts.ids import new_operation_id
from tests.property import model as m
from tests.property.both import ROSTER, Both, Hand
from tests.property.model_steps import MOVES
from tests.property.work import VERDICTS, Choice, step
from tests.support import rounds

EXAMPLES = rounds(600)
STEPS = 40
FAIR_ROUNDS = 150
WHICH = st.integers(0, 11)
CHOICES = st.builds(
    Choice,
    verdict=st.sampled_from(("improved", "improved", *VERDICTS)),
    fails=st.sampled_from((False, False, False, True)),
    noise=st.booleans(),
    big=st.booleans(),
    passes=st.sampled_from((True, True, False)),
    alone=st.booleans(),
    disagrees=st.sampled_from((False, False, True)),
    child=st.booleans(),
    closes=st.sampled_from((False,) * 9 + (True,)),
)
CLAIM_TROUBLE = (
    "the process dies",
    "evaluation_failed",
    "stopped",
    "it renews",
    "the host is lost",
    "a second process starts",
)
LIMITS = st.builds(
    m.Limits,
    max_attempts=st.sampled_from((12, 8, 5, 3, 1)),
    max_parallel=st.sampled_from((2, 1, 3)),
    retries=st.integers(0, 1),
    low_water=st.sampled_from((4, 2, 1)),
    holdouts=st.sampled_from((24, 8, 1)),
    holdout_required=st.sampled_from((True, True, False)),
    owner_gate=st.sampled_from((False, False, True)),
    stop=st.sampled_from(("queue_empty", "target")),
    successors=st.sampled_from((True, True, False)),
    max_cost=st.sampled_from((0, 0, 500_000)),
)


def act(both: Both, agent: str, choice: Choice) -> bool:
    """Let an agent take its next step: claim, or work under its claim; False if there is none."""
    if agent not in both.hands:
        return both.claim(agent)
    hand = both.hands[agent]
    if not step(both, hand, choice) and both.is_live(hand):
        running = both.model.items[hand.model.todo].state == "attempt_running"
        if not running:
            both.release(agent, "stopped")
    return True


def busy(both: Both) -> list[str]:
    """List the agents that have a step to take; `compare` asks the store for the same."""
    model = both.model
    return [
        agent
        for agent in sorted(ROSTER)
        if agent in both.hands or model.should_run(agent).should_run
    ]


def turn(both: Both, choice: Choice) -> int:
    """Let everybody who can take a step."""
    return sum(act(both, agent, choice) for agent in sorted(ROSTER) if agent in busy(both))


def settle(both: Both) -> None:
    """Let everybody work fairly, without faults: nobody may wait for nobody."""
    both.log.append("-- from here on without faults")
    both.writer.times = 1
    if both.model.paused:
        both.pause(value=False)
    verdicts = ("improved", "regression", "flat", "improved", "unscored")
    for number in range(FAIR_ROUNDS):
        choice = Choice(verdict=verdicts[number % 5], closes=number > 6, child=number % 2 > 0)
        if not turn(both, choice):
            break
        if number % 5 == 0:
            both.compare()
    both.compare()
    model = both.model
    waiting = [
        f"{item.todo} is {item.state}"
        for item in model.items.values()
        if item.state not in m.TERMINAL and not item.gate and item.kind != "propose"
        if not (model.closed() and item.kind in m.SOURCES)
    ]
    assert waiting == [], "nobody comes for it"
    gated = any(not gate.verdict for gate in model.gates.values())
    assert gated or model.phase() in {"done", "escalate"}, model.phase()
    assert model.lanes() == model.reserved() == 0


def move_outside(both: Both, hand: Hand, which: int) -> None:
    """Ask for a move that no row allows."""
    item = both.model.items[hand.model.todo]
    targets = sorted({to for _, to in MOVES if (item.state, to) not in MOVES})
    if item.kind == "hypothesis":
        to = targets[which % len(targets)]
        found = both.both(
            f"{hand.name}: {item.state} -> {to}",
            lambda: both.model.move(hand.model, to, m.Fact()),
            lambda: both.writer.advance(hand.real, to),
        )
        assert found is None


class Machine(RuleBasedStateMachine):
    """Everything that may happen to a goal."""

    client: ClassVar["redis.Redis"]
    both: Both
    worked = 0

    @initialize(limits=LIMITS, ahead=st.lists(CHOICES, max_size=8))
    def a_goal(self, limits: m.Limits, ahead: list[Choice]) -> None:
        self.both = Both(self.client, f"m-{new_operation_id()[:16]}", limits)
        for agent in sorted(ROSTER):
            self.both.enlist(agent, self.both.process(agent), "")
        for choice in ahead:
            turn(self.both, choice)
        self.both.compare()

    @rule(which=WHICH, choice=CHOICES, times=st.sampled_from((1, 1, 2)))
    def one_works(self, which: int, choice: Choice, times: int) -> None:
        agents = busy(self.both) or sorted(ROSTER)
        self.both.writer.times = times
        act(self.both, agents[which % len(agents)], choice)
        self.both.writer.times = 1
        self.worked += 1
        self.both.compare()

    @rule(which=WHICH, choice=CHOICES)
    def one_works_on(self, which: int, choice: Choice) -> None:
        agents = sorted(self.both.hands) or busy(self.both) or sorted(ROSTER)
        act(self.both, agents[which % len(agents)], choice)
        self.worked += 1
        self.both.compare()

    @rule(choices=st.lists(CHOICES, min_size=1, max_size=2))
    def all_work(self, choices: list[Choice]) -> None:
        for choice in choices:
            turn(self.both, choice)
            self.worked += 1
            self.both.compare()

    @precondition(lambda self: self.worked > 1)
    @rule(which=WHICH, what=st.sampled_from(CLAIM_TROUBLE))
    def trouble_with_a_claim(self, which: int, what: str) -> None:
        self.worked = 0
        both, agent = self.both, self.one(which)
        member = both.model.agents[agent]
        if what == "the process dies":
            both.crash(agent)
        elif what == "the host is lost":
            member.live = False
            both.live(agent)
            both.crash(agent, known=False)
        elif what == "a second process starts":
            other = both.process(agent) + "b"
            member.live = True
            both.live(agent)
            assert not both.claim(agent, other=other)
            assert not both.enlist(agent, other, "")
        elif agent in both.hands and what == "it renews":
            both.renew(agent)
        elif agent in both.hands:
            both.release(agent, what)
        both.compare()

    @precondition(lambda self: self.worked > 1 and self.claimed())
    @rule(which=WHICH)
    def a_lease_ends(self, which: int) -> None:
        self.worked = 0
        claimed = self.claimed()
        self.both.expire(claimed[which % len(claimed)])
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and (self.both.late or self.both.hands))
    @rule(
        which=WHICH,
        choice=CHOICES,
        what=st.sampled_from(("late", "late", "older version", "other role", "outside the table")),
    )
    def trouble_with_a_write(self, which: int, choice: Choice, what: str) -> None:
        self.worked = 0
        both = self.both
        if what == "late" and both.late:
            step(both, both.late[-1 - which % len(both.late)], choice)
        elif what == "outside the table" and both.hands:
            move_outside(both, both.hands[self.one(which)], which)
        elif both.hands:
            hand = both.hands.pop(self.one(which))
            more: dict[str, Any] = {"version": hand.model.version - 1}
            if what == "other role":
                more = {"role": "curator" if hand.model.role != "curator" else "executor"}
            real, mine = replace(hand.real, **more), replace(hand.model, **more)
            step(both, replace(hand, real=real, model=mine), choice)
            if both.is_live(hand):
                both.hands[hand.model.agent] = hand
        both.compare()

    @precondition(lambda self: self.worked > 1)
    @rule(
        which=WHICH,
        what=st.sampled_from(("opens", "pauses", "decides twice", "an idea", "assesses")),
    )
    def a_person_comes(self, which: int, what: str) -> None:
        self.worked = 0
        both = self.both
        live = [item.todo for item in both.model.items.values() if item.state not in m.TERMINAL]
        if what == "pauses":
            both.pause(value=not both.model.paused)
        elif what == "decides twice" and both.model.gates:
            gates = sorted(both.model.gates)
            both.decide(gates[which % len(gates)], accepted=True)
        elif what == "an idea":
            both.add_idea(which % 4)
        elif what == "assesses":
            if todos := [item.todo for item in both.model.hypotheses()]:
                both.assess(todos[-1 - which % len(todos)])
        elif live and len(self.waiting()) < 2:
            both.gate(live[-1 - which % len(live)], ("merge", "owner", "poison")[which % 3])
        both.compare()

    @precondition(lambda self: self.worked > 0 and self.waiting())
    @rule(which=WHICH, accepted=st.sampled_from((True, True, False)))
    def a_person_decides(self, which: int, accepted: bool) -> None:
        gates = self.waiting()
        self.both.decide(gates[which % len(gates)], accepted=accepted)
        self.both.compare()

    def one(self, which: int) -> str:
        """Choose an agent, one with a claim if there is one."""
        agents = sorted(self.both.hands) or sorted(ROSTER)
        return agents[which % len(agents)]

    def claimed(self) -> list[str]:
        """List what is claimed."""
        return [item.todo for item in self.both.model.items.values() if item.claim]

    def waiting(self) -> list[str]:
        """List the open gates."""
        return [gate for gate, found in self.both.model.gates.items() if not found.verdict]

    def teardown(self) -> None:
        both: Any = getattr(self, "both", None)
        if both is None:
            return
        try:
            if both.sound:
                settle(both)
        finally:
            note("\n".join(both.log))


@pytest.mark.stress
@pytest.mark.timeout(1200)  # shrinking a failure takes its time
def test_the_store_does_what_the_model_does_and_nobody_waits_for_nobody(
    redis_client: redis.Redis,
) -> None:
    whole = EXAMPLES > 60
    number = random.randrange(2**32) if whole else 0
    print(f"seed {number}, {EXAMPLES} examples of {STEPS} steps")

    class Here(Machine):
        client = redis_client

    factory = seed(number)(Here) if whole else Here
    run_state_machine_as_test(
        factory,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            derandomize=not whole,
            database=None,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        ),
    )
