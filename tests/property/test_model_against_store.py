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
from tests.property.both import ROSTER, Both
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
    closes=st.sampled_from((False, False, False, True)),
)
LIMITS = st.builds(
    m.Limits,
    max_attempts=st.sampled_from((8, 6, 5, 3, 1)),
    max_parallel=st.sampled_from((2, 1, 3)),
    retries=st.integers(0, 1),
    low_water=st.sampled_from((4, 2, 1)),
    holdouts=st.sampled_from((8, 1)),
    holdout_required=st.sampled_from((True, True, False)),
    owner_gate=st.sampled_from((False, False, True)),
    stop=st.sampled_from(("queue_empty", "target")),
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
    ]
    assert waiting == [], "nobody comes for it"
    gated = any(not gate.verdict for gate in model.gates.values())
    assert gated or model.phase() in {"done", "escalate"}, model.phase()
    assert model.lanes() == model.reserved() == 0


class Machine(RuleBasedStateMachine):
    """Everything that may happen to a goal."""

    client: ClassVar["redis.Redis"]
    both: Both
    worked = 0

    @initialize(limits=LIMITS, ahead=st.lists(CHOICES, max_size=24))
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

    @rule(choices=st.lists(CHOICES, min_size=1, max_size=4))
    def all_work(self, choices: list[Choice]) -> None:
        for choice in choices:
            turn(self.both, choice)
            self.worked += 1
            self.both.compare()

    @precondition(lambda self: self.worked > 1)
    @rule(which=WHICH)
    def one_crashes(self, which: int) -> None:
        self.worked = 0
        self.both.crash(self.one(which))
        self.both.compare()

    @precondition(lambda self: self.worked > 1)
    @rule(which=WHICH)
    def a_second_process_starts(self, which: int) -> None:
        self.worked = 0
        agent = self.one(which)
        other = self.both.process(agent) + "b"
        self.both.model.agents[agent].live = True
        self.both.live(agent)
        assert not self.both.claim(agent, other=other)
        assert not self.both.enlist(agent, other, "")
        self.both.compare()

    @precondition(lambda self: self.worked > 1)
    @rule(which=WHICH)
    def a_host_is_lost(self, which: int) -> None:
        self.worked = 0
        agent = self.one(which)
        self.both.model.agents[agent].live = False
        self.both.live(agent)
        self.both.crash(agent, known=False)
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.hands)
    @rule(which=WHICH)
    def a_lease_ends(self, which: int) -> None:
        self.worked = 0
        claimed = [item.todo for item in self.both.model.items.values() if item.claim]
        if claimed:
            self.both.expire(claimed[which % len(claimed)])
            self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.hands)
    @rule(which=WHICH, reason=st.sampled_from(("evaluation_failed", "stopped")))
    def one_gives_up(self, which: int, reason: str) -> None:
        self.worked = 0
        self.both.release(self.one(which), reason)
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.hands)
    @rule(which=WHICH)
    def one_renews(self, which: int) -> None:
        self.worked = 0
        self.both.renew(self.one(which))
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.late)
    @rule(which=WHICH, choice=CHOICES)
    def a_late_write_comes(self, which: int, choice: Choice) -> None:
        self.worked = 0
        step(self.both, self.both.late[-1 - which % len(self.both.late)], choice)
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.hands)
    @rule(which=WHICH, choice=CHOICES, odd=st.sampled_from(("version", "role")))
    def an_odd_write_comes(self, which: int, choice: Choice, odd: str) -> None:
        self.worked = 0
        hand = self.both.hands.pop(self.one(which))
        more: dict[str, Any] = {"version": hand.model.version - 1}
        if odd == "role":
            more = {"role": "curator" if hand.model.role != "curator" else "executor"}
        odd_hand = replace(hand, real=replace(hand.real, **more), model=replace(hand.model, **more))
        step(self.both, odd_hand, choice)
        if self.both.is_live(hand):
            self.both.hands[hand.model.agent] = hand
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.hands)
    @rule(which=WHICH, to=st.sampled_from(sorted({target for _, target in MOVES})))
    def a_move_outside_the_table_comes(self, which: int, to: str) -> None:
        self.worked = 0
        hand = self.both.hands[self.one(which)]
        item = self.both.model.items[hand.model.todo]
        if (item.state, to) not in MOVES and item.kind == "hypothesis":
            found = self.both.both(
                f"{hand.name}: {item.state} -> {to}",
                lambda: self.both.model.move(hand.model, to, m.Fact()),
                lambda: self.both.writer.advance(hand.real, to),
            )
            assert found is None
            self.both.compare()

    @precondition(lambda self: self.worked > 1 and len(self.waiting()) < 2)
    @rule(which=WHICH, kind=st.sampled_from(("merge", "owner", "poison")))
    def the_person_opens_a_gate(self, which: int, kind: str) -> None:
        self.worked = 0
        todos = [
            item.todo for item in self.both.model.items.values() if item.state not in m.TERMINAL
        ]
        self.both.gate((todos or ["todo_baseline"])[-1 - which % max(len(todos), 1)], kind)
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.waiting())
    @rule(which=WHICH, accepted=st.sampled_from((True, True, False)))
    def the_person_decides(self, which: int, accepted: bool) -> None:
        self.worked = 0
        gates = self.waiting()
        gate = gates[which % len(gates)]
        # A refused baseline ends the goal's only way to begin: nobody's turn, ever.
        on_baseline = self.both.model.gates[gate].todo == "todo_baseline"
        self.both.decide(gate, accepted=accepted or on_baseline)
        self.both.compare()

    @precondition(lambda self: self.worked > 1 and self.both.model.gates and not self.waiting())
    @rule(which=WHICH)
    def the_person_decides_twice(self, which: int) -> None:
        self.worked = 0
        gates = sorted(self.both.model.gates)
        self.both.decide(gates[which % len(gates)], accepted=True)
        self.both.compare()

    @precondition(lambda self: self.worked > 1)
    @rule()
    def the_person_pauses_or_resumes(self) -> None:
        self.worked = 0
        self.both.pause(value=not self.both.model.paused)
        self.both.compare()

    def one(self, which: int) -> str:
        """Choose an agent, one with a claim if there is one."""
        agents = sorted(self.both.hands) or sorted(ROSTER)
        return agents[which % len(agents)]

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
            phases=(Phase.generate, Phase.shrink)[
                : 1 if __import__("os").environ.get("FAST") else 2
            ],
            suppress_health_check=list(HealthCheck),
        ),
    )
