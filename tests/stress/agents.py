"""Light agents: processes that drive the real store by the writer alone, and log what it took.

One process plays one agent of each role in a row of goals: it claims what the store gives and does
that step with valid records (`tests.scenario`). There is no git and no evaluation, and a verdict
follows from the hypothesis' title, so what the store does is all that takes time. A process may be
killed or stopped at any instant and is started again as the next life of its agents.

Every answer that acknowledged a write becomes one line of `<process>.log`; `tests.stress.audit` holds
those lines against the streams.
"""

import json
import os
import random
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from contracts import records as rec
from contracts.canonical import canonical
from contracts.contract import MAX_ATTEMPTS_CLAMP
from contracts.errors import RefusedError, StoreError
from contracts.store import keys
from contracts.store.connect import connect, wait_for_answer, with_retries
from contracts.store.decision import as_dict
from contracts.store.embedded import ensure_server
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Held, Writer
from contracts.words import EndReason, Reason, Role, State, Stream, Verdict
from tests.scenario import OPERATOR, Plan, Scenario, body, numbers_of

PLAYED_AT_ONCE = 3
"""Goals that a process has agents in: while one of them ends, the next begins."""

HYPOTHESES = 44
"""Of each goal, which has attempts for these and for what must be tried or measured again."""

VERDICTS = (
    *(["wrong"] * 10),
    *(["outside"] * 3),
    *(["hang"] * 4),
    *(["fast"] * 2),
    *(["slow"] * 1),
)
PLANS: Mapping[str, Plan] = {
    "wrong": Plan("", "approximation", Verdict.CORRECTNESS),
    "outside": Plan("", "harness", Verdict.BOUNDARY),
    "hang": Plan("", "search", Verdict.UNSCORED),
    "fast": Plan("", "gemm", Verdict.IMPROVED),
    "slow": Plan("", "python_loop", Verdict.REGRESSION, 0.31),
}
LOST = {"stale_fence", "not_claimed"}
OVER = {Reason.GOAL_DONE, Reason.GOAL_ESCALATED}


@dataclass(frozen=True, slots=True)
class Spec:
    """What a process of light agents is to do.

    Attributes:
        url: The store.
        home: LABMATES_HOME of an embedded server that is started again when it is gone, or None.
        folder: Where the logs are, and the file `stop` once the load shall end.
        number: Of the process, from 1.
        processes: How many there are.
        goals: The first part of the goals' ids.
        lease_ms: Of the goals.
        seed: With the life, what all draws follow from.
        life: How often this process was started.
    """

    url: str
    home: Path | None
    folder: Path
    number: int
    processes: int
    goals: str
    lease_ms: int
    seed: int
    life: int = 1

    def goal_id(self, number: int) -> str:
        """Name a goal."""
        return f"{self.goals}-{number:05d}"


class LoggedWriter(Writer):
    """Writes a line for each acknowledged write, right behind the answer.

    A line is `<goal> <function> <agent> <todo> <fence> <revision>`. It goes to the kernel at once, so
    that only what was not yet answered, or answered a moment ago, can be missing after a kill.
    """

    def __init__(self, client: Any, goal_id: str, *, url: str, log: int) -> None:
        super().__init__(client, goal_id, url=url)
        self.log = log

    def call(self, name: str, values: Mapping[str, object]) -> Any:
        """Call, then log what was acknowledged."""
        answer = super().call(name, values)
        todo, fence, revision = str(values.get("todo") or "-"), values.get("fence") or 0, 0
        if name == "claim":
            found = as_dict(answer)
            if found.get("should_run") != "1":
                return answer
            todo, fence = str(found["todo"]), found["fence"]
            revision = int(str(fence))
        elif name == "propose":
            revision = int(answer[3][1])
        elif name in {"renew", "enlist", "leave"} or answer[1] == "same":
            return answer
        else:
            revision = int(answer[1])
        line = f"{self.goal_id} {name} {values['agent']} {todo} {fence} {revision}\n"
        os.write(self.log, line.encode())
        return answer


class StepReader(Reader):
    """Reads each hash once for a step, so that what a step writes is of one moment."""

    def __init__(self, client: Any, goal_id: str, *, url: str) -> None:
        super().__init__(client, goal_id, url=url)
        self.known: dict[str, dict[str, str]] = {}

    def goal(self) -> dict[str, str]:
        """Give the goal's hash as the step first saw it."""
        if "" not in self.known:
            self.known[""] = super().goal()
        return self.known[""]

    def item(self, todo_id: str) -> dict[str, str]:
        """Give a todo's fields as the step first saw them since it last wrote."""
        if todo_id not in self.known:
            self.known[todo_id] = super().item(todo_id)
        return self.known[todo_id]

    def forget(self, *names: str) -> None:
        """Read again what is needed next: these todos, or everything."""
        for name in names or list(self.known):
            self.known.pop(name, None)


def agent_ids(number: int) -> dict[str, Role]:
    """Give the agents of a process."""
    return {f"{role}-{number}": role for role in Role}


@dataclass
class Light(Scenario):
    """The agents of one process in one goal."""

    spec: Spec = field(kw_only=True)
    log: int = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        spec = self.spec
        self.writer: Writer = LoggedWriter(self.client, self.goal_id, url=spec.url, log=self.log)
        self.known = StepReader(self.client, self.goal_id, url=spec.url)
        self.reader: Reader = self.known
        self.draw = random.Random(f"{spec.seed} {self.goal_id} {spec.number} {spec.life}")
        self.life = f"p{spec.number}#{spec.life}"
        self.waits: dict[str, str] = {}
        self.recorded: dict[int, Verdict] = {}
        self.digest = self.contract.contract_hash()

    def open(self) -> "Light":
        """Bring the goal about, whoever else does so too, or died over it."""
        contract = self.contract.model_dump(mode="json")
        bodies = ("{}", canonical({"contract": contract, "contract_hash": self.digest}))
        numbers = numbers_of(self.contract, lease_ms=self.lease_ms)
        approval = body(approval=rec.Approval(contract_hash=self.digest))
        try:
            self.writer.create(
                operator=OPERATOR, contract_hash=self.digest, numbers=numbers, bodies=bodies
            )
        except RefusedError as refused:
            expect(refused, "goal_exists")
        try:
            self.writer.approve(operator=OPERATOR, contract_hash=self.digest, body=approval)
        except RefusedError as refused:
            expect(refused, "already_approved")
        for agent_id, role in agent_ids(self.spec.number).items():
            found = rec.AgentRegistration(agent_id=agent_id, roles=(role,), host="box")
            self.writer.register(
                operator=OPERATOR, agent_id=agent_id, roles=[role], body=body(registration=found)
            )
            self.enlist(agent_id, role)
        return self

    def enlist(self, agent_id: str, role: Role) -> None:
        """Become the agent; the process that was it before is known to be dead."""
        dead = self.reader.agent(agent_id).get("inc", "")
        identity = {"inc": self.life, "host": "box", "pid": str(os.getpid()), "start": "0"}
        self.writer.enlist(agent_id=agent_id, role=role, incarnation=identity, dead=dead)

    # A turn --------------------------------------------------------------------------------------

    def turn(self, agent_id: str) -> bool:
        """Let an agent take what the store gives it and do that step; False if there was none."""
        self.known.forget()
        found = self.claim(agent_id)
        if found is None:
            return False
        held, facts = found
        action = facts["action"] if facts["action"] != "resume" else facts["claimed_action"]
        chance = self.draw.random()
        try:
            if facts["state"] == State.ATTEMPT_RUNNING:
                self.give_up(held, facts)
            elif chance < 0.1:
                self.writer.release(held, "stopped")
            else:
                getattr(self, f"do_{action}")(held, facts)
        except RefusedError as refused:
            self.refused(held, refused)
        return True

    def refused(self, held: Held, refused: RefusedError) -> None:
        """Put a late result on record; give back what cannot be done as things stand now."""
        if refused.reason in LOST:
            self.writer.reject_stale(held, body=canonical({"current_fence": 0, "what": "late"}))
            return
        if refused.reason not in MOVED:
            raise refused
        self.known.forget()
        found = self.claim(held.agent_id)
        if found is not None and found[1]["state"] != State.ATTEMPT_RUNNING:
            self.writer.release(found[0], "stale_base")

    def claim(self, agent_id: str) -> tuple[Held, dict[str, str]] | None:
        """Take what the store gives, as this life."""
        reply = self.writer.claim(agent_id=agent_id, incarnation=self.life)
        facts = {name: str(value) for name, value in reply.items()}
        if facts.get("should_run") != "1":
            self.waits[agent_id] = facts["reason"]
            return None
        fence, version = int(facts["fence"]), int(facts["version"])
        role, todo = facts["role"], facts["todo"]
        return Held(self.goal_id, agent_id, self.life, role, todo, fence, version), facts

    def decide_gates(self) -> None:
        """Decide what waits for a person: twice try again, once no."""
        for gate_id in self.reader.open_gates():
            todo = self.reader.gate(gate_id)["todo"]
            number = int(gate_id.rsplit("_", 1)[1])
            self.known.forget()
            verdict = "approved" if number % 3 or not todo.startswith("todo_0") else "rejected"
            decision = rec.GateDecision.model_validate({"verdict": verdict, "shown": "0" * 8})
            try:
                self.writer.decide_gate(
                    operator=OPERATOR,
                    gate_id=gate_id,
                    verdict=verdict,
                    touched=int(self.reader.item(todo).get("touched") or 0),
                    body=body(decision=decision),
                )
            except RefusedError as refused:
                expect(refused, "already_decided", "changed_since_shown")

    # What a step reads, once -----------------------------------------------------------------------

    def item(self, held: Held) -> dict[str, str]:
        """Give the item's hash, if the claim on it still stands.

        Raises:
            RefusedError: It does not, as the next write would hear.
        """
        found = self.reader.item(held.todo_id)
        if found.get("fence") != str(held.fence) or found.get("claimed_by") != held.agent_id:
            raise RefusedError("the claim has ended", reason="stale_fence", missing="")
        return found

    def advance(self, held: Held, to: str, *records: tuple[str, str], **facts: str) -> Held:
        """Move the item; what was read of it is old then."""
        note = facts.pop("note", "{}")
        answer = self.writer.advance(held, to, records=list(records), note=note, **facts)
        self.known.forget(held.todo_id)
        return replace(held, version=int(str(answer.get("version") or 0)))

    def plan(self, held: Held) -> Plan:
        """Tell from the title what becomes of a hypothesis, as the champion of now has it."""
        title = self.item(held)["title"]
        if held.fence in self.recorded:
            return replace(PLANS["wrong"], title=title, verdict=self.recorded[held.fence])
        kind, _, number = title.partition(" ")
        plan = PLANS[kind]
        if kind == "fast":
            plan = replace(plan, speed=speed_of(title))
        if plan.speed:
            champion = self.reader.goal()
            mine = self.item(held).get("commit", "")
            speed = self.champion_speed(champion)
            ratio = plan.speed / speed
            if mine != champion.get("champion_commit") and ratio > 1.3:
                return replace(plan, title=title, verdict=Verdict.IMPROVED)
            flat = ratio * 1.03 >= 1
            verdict = Verdict.FLAT if flat else Verdict.REGRESSION
            return replace(plan, title=title, verdict=verdict)
        return replace(plan, title=f"{kind} {number}")

    def champion_speed(self, goal: Mapping[str, str]) -> float:
        """Give the champion's speed, which its title tells."""
        todo, speed = goal.get("champion_todo"), 1.0
        if todo:
            speed = speed_of(self.reader.item(todo)["title"])
        self.speeds[goal["champion_commit"]] = speed
        return speed

    # Steps that the scenario does otherwise --------------------------------------------------------

    def do_propose(self, held: Held, facts: dict[str, str]) -> None:
        """Propose one more, or close the source."""
        del facts
        if int(self.reader.goal().get("hypothesis_count", "0")) >= HYPOTHESES:
            self.writer.close_source(held, cursor="")
            return
        unique = f"{held.agent_id}.{held.fence}"
        kind = self.draw.choice(VERDICTS)
        plan = replace(PLANS[kind], title=f"{kind} {unique}")
        self.proposed = held.fence
        self.propose(held, plan, self.hypothesis(plan))

    def give_up(self, held: Held, facts: dict[str, str]) -> None:
        """End an attempt that a dead process began."""
        packet = rec.RetryPacket.model_validate(
            {
                "attempt": int(facts["attempt"]),
                "stop_reason": "crash",
                "retry_reason": "the process died",
            }
        )
        self.advance(held, "needs_retry", ("retry_recorded", body(retry=packet)))

    def do_evaluate(self, held: Held, facts: dict[str, str]) -> None:
        """Evaluate what waits for it."""
        if facts["state"] == State.EVALUATED:
            self.do_classify(held, facts)
        else:
            super().do_evaluate(held, facts)

    def do_classify(self, held: Held, facts: dict[str, str]) -> None:
        """Classify by what was measured."""
        if self.doomed(held):
            self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)
            return
        if facts["state"] == State.EVALUATED:  # measured by a dead process, on a champion of then
            self.recorded[held.fence] = self.verdict_on_record(held)
        super().do_classify(held, facts)

    def verdict_on_record(self, held: Held) -> Verdict:
        """Give the verdict of the evaluation that a claimed item rests on."""
        wanted = self.item(held)["evaluation_rev"]
        for _, fields in self.reader.entries(Stream.EVALUATOR):
            if fields["rev"] == wanted:
                return Verdict(json.loads(fields["body"])["evaluation"]["verdict"])
        message = f"no evaluation of revision {wanted}"
        raise AssertionError(message)

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

    def do_repropose_or_retire(self, held: Held, facts: dict[str, str]) -> None:
        """Settle what is the proposer's."""
        if self.doomed(held) and self.item(held).get("attempt"):
            self.sign(held, "retired", "first", EndReason.OPERATOR_REJECTED)
        else:
            super().do_repropose_or_retire(held, facts)

    def doomed(self, held: Held) -> bool:
        """Tell whether the operator refused the item."""
        return self.item(held).get("doomed") == "1"

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
        if order == "second" and to == "retired":
            doomed = self.doomed(held)
            reason = EndReason.OPERATOR_REJECTED if doomed else EndReason.NO_FOLLOW_UP
        touched = int(item["touched"])
        values = {"to_state": to, "order": order, "reason": reason, "evidence_revision": touched}
        signature = rec.Signature.model_validate({**values, "rationale": "as the records say"})
        if decision is None and held.role == Role.EVALUATOR:
            decision = rec.TerminalDecision(
                outcome="retired", reason=reason, evidence_revision=touched
            )
        decided = body(decision=decision) if decision else None
        self.writer.sign(held, to, signature=body(signature=signature), decided=decided)


MOVED = {
    "base_current",
    "base_moved",
    "not_closed",
    "not_paused",
    "not_doomed",
    "confirmation_wanted",
    "no_confirmation_wanted",
    "holdout_passed",
    "holdout_used_up",
    "blocked_by_gate",
    "retries_left",
    "version",
}
"""Refusals that a step meets where another agent moved the champion or a person decided."""


def speed_of(title: str) -> float:
    """Give the speed that a title promises: the later it was proposed, the faster, in steps."""
    fence = int(title.rsplit(".", 1)[1])
    return float(2 * 1.4 ** (fence // 120))


def expect(refused: RefusedError, *reasons: str) -> None:
    """Let a refusal pass that losing a race explains."""
    if refused.reason not in reasons:
        raise refused


# A process ---------------------------------------------------------------------------------------


def run(spec: Spec) -> None:
    """Play goals until the file `stop` is there."""
    client = with_retries(lambda: connect(spec.url), url=spec.url)
    draw = random.Random(f"{spec.seed} {spec.number} {spec.life}")
    playing: list[Light] = []
    opened = first_goal(spec)
    log = append_to(spec.folder / f"{spec.number}.log")
    places = append_to(spec.folder / f"{spec.number}.opened")
    stop = spec.folder / "stop"
    while not stop.exists():
        try:
            moved = 0
            for light in list(playing):
                moved += turns(light, draw)
                if set(light.waits.values()) & OVER:
                    playing.remove(light)
            if not moved and len(playing) < PLAYED_AT_ONCE:
                policy: dict[str, object] = {
                    "max_attempts": MAX_ATTEMPTS_CLAMP,
                    "max_parallel": 64,
                    "holdout_limit": 100,
                }
                light = Light(
                    client,
                    spec.goal_id(opened + 1),
                    (),
                    lease_ms=spec.lease_ms,
                    policy=policy,
                    spec=spec,
                    log=log,
                )
                opened += 1
                os.write(places, f"{opened}\n".encode())
                playing.append(light.open())
            elif not moved:
                playing[0].writer.blocking_pop(keys.wake(playing[0].goal_id, "executor"), 0.02)
        except StoreError as error:
            with (spec.folder / "outages.txt").open("a") as file:
                file.write(f"{error.code} {error.message} {error.mend}\n")
            start = partial(ensure_server, spec.home) if spec.home else None
            wait_for_answer(client, stop=stop.exists, start=start)
            with suppress(StoreError):
                ensure_library(client)


def turns(light: Light, draw: random.Random) -> int:
    """Give each agent of the process a turn; the number of those that had something to do."""
    agents = list(agent_ids(light.spec.number))
    draw.shuffle(agents)
    moved = sum(light.turn(agent_id) for agent_id in agents)
    if not moved and Reason.BLOCKED_BY_GATE in light.waits.values():
        light.decide_gates()
    return moved


def first_goal(spec: Spec) -> int:
    """Give the number of goals before the oldest that this process may still have work in."""
    place = spec.folder / f"{spec.number}.opened"
    numbers = [int(line) for line in place.read_text().split()] if place.exists() else []
    return max(0, max(numbers, default=0) - PLAYED_AT_ONCE - 1)


def append_to(path: Path) -> int:
    """Open a file for whole lines that survive this process."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
