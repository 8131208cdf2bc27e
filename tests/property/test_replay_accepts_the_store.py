"""Whatever agents do, in whatever order: replay takes what the store took, and agrees with it."""

import random
from dataclasses import dataclass, field, replace

import pytest
import redis

from contracts import records as rec
from contracts.errors import RefusedError
from contracts.store.writer import Held
from contracts.words import EndReason, GateKind, Role, State, Verdict
from projection.verify import verify
from tests.peers import add_idea, assess, review
from tests.scenario import AGENTS, OPERATOR, PLANS, Plan, Scenario, body

SEEDS = range(12)
STEPS = 320
EXTRA = (
    Plan("unroll", "loop_shape", Verdict.IMPROVED, 7.9),
    Plan("block twice", "pruning", Verdict.IMPROVED, 17.5),
    Plan("sort less", "partial_selection", Verdict.FLAT, 6.0),
)


IDEAS = (
    Plan("thread twice", "threads", Verdict.IMPROVED, 9.1),
    Plan("cache lines", "layout", Verdict.REGRESSION, 0.4),
)


@dataclass
class Chaos(Scenario):
    """Agents that crash, give up, disagree and are interrupted, all drawn from one seed."""

    seed: int = 0
    lives: dict[str, int] = field(default_factory=dict)
    paused: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.draw = random.Random(self.seed)

    def claim(self, agent_id: str) -> tuple[Held, dict[str, str]] | None:
        """Take what the store gives, as the incarnation of now."""
        life = f"{agent_id}#{self.lives.get(agent_id, 1)}"
        reply = self.writer.claim(agent_id=agent_id, incarnation=life)
        if reply.get("should_run") != "1":
            return None
        facts = {name: str(value) for name, value in reply.items()}
        fence, version = int(facts["fence"]), int(facts["version"])
        return Held(
            self.goal_id, agent_id, life, facts["role"], facts["todo"], fence, version
        ), facts

    def one(self) -> None:
        """Do one thing."""
        agent_id = self.draw.choice(list(AGENTS))
        chance = self.draw.random()
        if chance < 0.06:
            self.claim(agent_id)
        elif chance < 0.12:
            self.lives[agent_id] = self.lives.get(agent_id, 1) + 1
        elif chance < 0.17:
            found = self.claim(agent_id)
            if found:
                self.writer.release(found[0], self.draw.choice(["stopped", "evaluation_failed"]))
        elif chance < (0.26 if self.paused else 0.19):
            self.paused = not self.paused
            note = body(note="a pause")
            self.writer.pause(operator=OPERATOR, value=self.paused, note="a pause", body=note)
        elif chance < 0.28:
            self.gate()
        elif chance < 0.35:
            self.decide()
        elif chance < 0.39:
            self.peers()
        else:
            self.step(agent_id)

    def peers(self) -> None:
        """Add an idea, assess a hypothesis or review a decision."""
        hypothesis_id = f"hyp_{self.draw.randrange(1, len(self.plans) + 1):04d}"
        chance = self.draw.random()
        if chance < 0.3:
            add_idea(self, self.draw.choice((*self.plans, *IDEAS)))
        elif chance < 0.6:
            assess(self, "proposer-1", hypothesis_id, self.draw.choice(["supports", "weakens"]))
        else:
            verdict = self.draw.choice(["approve", "reject"])
            review(self, self.draw.choice(list(AGENTS)), hypothesis_id, verdict)

    def gate(self) -> None:
        """Open a gate on some item."""
        todo = f"todo_{self.draw.randrange(1, len(self.plans) + 1):04d}"
        gate = rec.Gate(kind=GateKind.MERGE, question="Go on?")
        self.writer.open_gate(operator=OPERATOR, todo_id=todo, kind="merge", body=body(gate=gate))

    def decide(self) -> None:
        """Decide the oldest open gate."""
        for gate_id in self.reader.open_gates()[:1]:
            todo = self.reader.gate(gate_id)["todo"]
            verdict = self.draw.choice(["approved", "approved", "rejected"])
            if not todo.startswith("todo_0"):
                verdict = "approved"
            decision = rec.GateDecision.model_validate({"verdict": verdict, "shown": "0" * 8})
            self.writer.decide_gate(
                operator=OPERATOR,
                gate_id=gate_id,
                verdict=verdict,
                touched=int(self.reader.item(todo).get("touched") or 0),
                body=body(decision=decision),
            )

    def step(self, agent_id: str) -> bool:
        """Take a step; what the store refuses is given back or left."""
        try:
            return super().step(agent_id)
        except RefusedError:
            found = self.claim(agent_id)
            if found and found[1]["state"] != State.ATTEMPT_RUNNING:
                self.writer.release(found[0], "stopped")
            return False

    def doomed(self, held: Held) -> bool:
        """Tell whether the operator refused the item."""
        return self.item(held).get("doomed") == "1"

    def do_select(self, held: Held, facts: dict[str, str]) -> None:
        """Start, or deliver what was started before a crash."""
        if facts["state"] == State.ATTEMPT_RUNNING:
            packet = rec.RetryPacket.model_validate(
                {
                    "attempt": int(self.item(held)["attempt"]),
                    "stop_reason": "crash",
                    "retry_reason": "the worker died",
                }
            )
            self.advance(held, "needs_retry", ("retry_recorded", body(retry=packet)))
            return
        super().do_select(held, facts)

    def do_confirm(self, held: Held, facts: dict[str, str]) -> None:
        """Replay, or deliver what was started before a crash."""
        if facts["state"] == State.ATTEMPT_RUNNING:
            self.do_select(held, facts)
        else:
            super().do_confirm(held, facts)

    def do_evaluate(self, held: Held, facts: dict[str, str]) -> None:
        """Evaluate what waits for it."""
        if facts["state"] == State.EVALUATED:
            self.do_classify(held, facts)
        else:
            super().do_evaluate(held, facts)

    def do_classify(self, held: Held, facts: dict[str, str]) -> None:
        """Classify by what was measured, which the moving champion may have made flat."""
        if self.doomed(held):
            self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)
        else:
            super().do_classify(held, facts)

    def do_measure_holdout(self, held: Held, facts: dict[str, str]) -> None:
        """Ask, where it still can be asked."""
        goal, item = self.reader.goal(), self.item(held)
        if self.doomed(held):
            self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)
        elif item["base_rev"] != goal["champion_rev"] or int(item.get("holdouts") or 0) > 1:
            self.sign(held, "retired", "first", EndReason.NO_FOLLOW_UP)
        else:
            super().do_measure_holdout(held, facts)

    def do_sign(self, held: Held, facts: dict[str, str]) -> None:
        """Sign the promotion, or the end of what was refused."""
        if self.doomed(held):
            self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)
        else:
            super().do_sign(held, facts)

    def do_cosign(self, held: Held, facts: dict[str, str]) -> None:
        """Join, or now and then decline."""
        item = self.item(held)
        if self.draw.random() < 0.25 and not self.doomed(held):
            signature = rec.Signature.model_validate(
                {
                    "to_state": item["signed_to"],
                    "order": "second",
                    "reason": "no_follow_up",
                    "rationale": "not convinced",
                    "evidence_revision": int(item["touched"]),
                    "disagrees": True,
                }
            )
            self.writer.decline(held, signature=body(signature=signature))
            return
        super().do_cosign(held, facts)

    def do_repropose_or_retire(self, held: Held, facts: dict[str, str]) -> None:
        """Settle what is the proposer's."""
        if self.doomed(held) and self.item(held).get("attempt"):
            self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)
        else:
            super().do_repropose_or_retire(held, facts)

    def checks(self, plan: Plan) -> tuple[rec.Check, ...]:
        """Make the checks."""
        return super().checks(plan)

    def plan(self, held: Held) -> Plan:
        """Give the plan, flat where the champion of now is not beaten any more."""
        plan = super().plan(held)
        champion = self.reader.goal().get("champion_commit", "")
        if plan.verdict in {Verdict.IMPROVED, Verdict.FLAT, Verdict.REGRESSION} and plan.speed:
            ratio = plan.speed / self.speeds.get(champion, 1.0)
            if ratio * 0.97 >= 1.05 and ratio > 1.06:
                return replace(plan, verdict=Verdict.IMPROVED)
            flat = ratio * 1.03 >= 1
            return replace(plan, verdict=Verdict.FLAT if flat else Verdict.REGRESSION)
        return plan

    def sign(
        self,
        held: Held,
        to: str,
        order: str,
        reason: EndReason,
        decision: rec.TerminalDecision | None = None,
    ) -> None:
        """Sign with a rationale, for the reason that the first signature gave."""
        item = self.item(held)
        if order == "second" and item.get("doomed") == "1" and to == "retired":
            reason = EndReason.OPERATOR_REJECTED
        elif order == "second" and to == "retired":
            reason = EndReason.NO_FOLLOW_UP
        touched = int(item["touched"])
        signature = rec.Signature.model_validate(
            {
                "to_state": to,
                "order": order,
                "reason": reason,
                "rationale": "as the records say",
                "evidence_revision": touched,
            }
        )
        if decision is None and held.role == Role.EVALUATOR:
            decision = rec.TerminalDecision(
                outcome="retired", reason=reason, evidence_revision=touched
            )
        decided = body(decision=decision) if decision else None
        self.writer.sign(held, to, signature=body(signature=signature), decided=decided)


def chaos(client: redis.Redis, goal_id: str, seed: int) -> Chaos:
    """Let agents do what a seed says, on a goal of their own."""
    attempts = 4 + seed
    goal = Chaos(
        client,
        goal_id,
        (*PLANS, *EXTRA),
        lease_ms=3 if seed % 2 else 30_000,
        policy={"max_attempts": attempts, "owner_gate": seed % 3 == 0},
        seed=seed,
    )
    goal.open()
    for _ in range(STEPS):
        try:
            goal.one()
        except RefusedError:
            continue
    return goal


@pytest.mark.parametrize("seed", SEEDS)
def test_replay_accepts_all_that_the_store_accepted_and_agrees_with_it(
    redis_client: redis.Redis, goal_id: str, seed: int
) -> None:
    found = verify(chaos(redis_client, goal_id, seed).reader)

    assert found.violations == ()
    assert [each for each in found.derived if not each.passed] == []
