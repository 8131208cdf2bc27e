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
AGENTS = st.sampled_from(sorted(ROSTER))
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
    max_attempts=st.integers(1, 6),
    max_parallel=st.integers(1, 2),
    retries=st.integers(0, 1),
    low_water=st.integers(1, 4),
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


def settle(both: Both) -> None:
    """Let everybody work fairly, without faults: nobody may wait for nobody."""
    both.log.append("-- from here on without faults")
    both.writer.times = 1
    if both.model.paused:
        both.pause(value=False)
    verdicts = ("improved", "regression", "flat", "unscored")
    for number in range(FAIR_ROUNDS):
        choice = Choice(verdict=verdicts[number % 4], closes=number > 6)
        if not sum(act(both, agent, choice) for agent in ROSTER):
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

    @initialize(limits=LIMITS, ahead=st.integers(0, 30), choice=CHOICES)
    def a_goal(self, limits: m.Limits, ahead: int, choice: Choice) -> None:
        self.both = Both(self.client, f"m-{new_operation_id()[:16]}", limits)
        for agent in sorted(ROSTER):
            self.both.enlist(agent, self.both.process(agent), "")
        for number in range(ahead):
            act(self.both, sorted(ROSTER)[number % len(ROSTER)], choice)
        self.both.compare()

    @rule(agent=AGENTS, choice=CHOICES, times=st.sampled_from((1, 1, 2)))
    def works(self, agent: str, choice: Choice, times: int) -> None:
        self.both.writer.times = times
        act(self.both, agent, choice)
        self.both.writer.times = 1
        self.both.compare()

    @rule(choice=CHOICES, turns=st.integers(1, 3))
    def all_work(self, choice: Choice, turns: int) -> None:
        for _ in range(turns):
            for agent in sorted(ROSTER):
                act(self.both, agent, choice)
        self.both.compare()

    @rule(agent=AGENTS)
    def crashes(self, agent: str) -> None:
        self.both.crash(agent)
        self.both.compare()

    @rule(agent=AGENTS)
    def a_second_process_starts(self, agent: str) -> None:
        other = self.both.process(agent) + "b"
        assert not self.both.model.agents[agent].live or not self.both.claim(agent, other=other)
        assert not self.both.model.agents[agent].live or not self.both.enlist(agent, other, "")
        self.both.compare()

    @rule(agent=AGENTS)
    def the_host_is_lost(self, agent: str) -> None:
        self.both.model.agents[agent].live = False
        self.both.live(agent)
        self.both.crash(agent)
        self.both.compare()

    @rule(which=st.integers(0, 6))
    def a_lease_ends(self, which: int) -> None:
        claimed = [item.todo for item in self.both.model.items.values() if item.claim]
        if claimed:
            self.both.expire(claimed[which % len(claimed)])
            self.both.compare()

    @rule(agent=AGENTS, reason=st.sampled_from(("stopped", "evaluation_failed")))
    def gives_up(self, agent: str, reason: str) -> None:
        if agent in self.both.hands:
            self.both.release(agent, reason)
            self.both.compare()

    @rule(agent=AGENTS)
    def renews(self, agent: str) -> None:
        if agent in self.both.hands:
            self.both.renew(agent)
            self.both.compare()

    @precondition(lambda self: self.both.late)
    @rule(which=st.integers(0, 9), choice=CHOICES)
    def a_late_write_comes(self, which: int, choice: Choice) -> None:
        hand = self.both.late[which % len(self.both.late)]
        step(self.both, hand, choice)
        self.both.compare()

    @rule(agent=AGENTS, choice=CHOICES)
    def a_write_with_an_older_version_comes(self, agent: str, choice: Choice) -> None:
        if hand := self.both.hands.get(agent):
            real, mine = hand.real, hand.model
            self.both.late.append(hand)
            del self.both.hands[agent]
            hand.real = replace(real, version=real.version - 1)
            hand.model = replace(mine, version=mine.version - 1)
            step(self.both, hand, choice)
            self.both.compare()

    @rule(agent=AGENTS, to=st.sampled_from(sorted({target for _, target in MOVES})))
    def a_move_outside_the_table_comes(self, agent: str, to: str) -> None:
        if hand := self.both.hands.get(agent):
            item = self.both.model.items[hand.model.todo]
            if (item.state, to) not in MOVES and item.kind == "hypothesis":
                found = self.both.both(
                    f"{hand.name}: {item.state} -> {to}",
                    lambda: self.both.model.move(hand.model, to, m.Fact()),
                    lambda: self.both.writer.advance(hand.real, to),
                )
                assert found is None
                self.both.compare()

    @rule(which=st.integers(0, 9), kind=st.sampled_from(("merge", "owner", "poison")))
    def the_person_opens_a_gate(self, which: int, kind: str) -> None:
        todos = sorted(self.both.model.items)
        self.both.gate(todos[which % len(todos)], kind)
        self.both.compare()

    @rule(which=st.integers(0, 3), accepted=st.sampled_from((True, True, False)))
    def the_person_decides(self, which: int, accepted: bool) -> None:
        gates = sorted(self.both.model.gates)
        if gates:
            gate = gates[-1 - which % len(gates)]
            on_baseline = self.both.model.gates[gate].todo == "todo_baseline"
            self.both.decide(gate, accepted=accepted or on_baseline)
            self.both.compare()

    @rule()
    def the_person_pauses_or_resumes(self) -> None:
        self.both.pause(value=not self.both.model.paused)
        self.both.compare()

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
