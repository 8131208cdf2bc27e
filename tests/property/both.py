"""One action, done to the model and to the real store; and all that must be equal afterwards.

Time: the store's clock cannot be set. The goal's leases last 1 ms, and after each call the leases
are put far ahead or, where the model says that one has ended, into the past. Ends of leases are
derived state that no event carries but the first one, so replay sees nothing of it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import redis  # noqa: TC002 - a dataclass reads its annotations

from contracts import records as rec
from contracts.contract import ResearchContract
from contracts.derived import READY, differences, goal_findings
from contracts.errors import RefusedError
from contracts.events import parse_entry
from contracts.ids import new_operation_id
from contracts.replay import apply
from contracts.replay_state import GoalState
from contracts.store import keys
from contracts.store import writer as store_writer
from contracts.store.decision import as_dict
from contracts.store.reader import Reader
from contracts.stored import DerivedState
from contracts.words import Role, Stream, Verdict
from tests.peers import add_idea, assess
from tests.property import model as m
from tests.property.model_steps import Protocol
from tests.scenario import AGENTS, OPERATOR, Plan, Scenario, body, contract_for

T = TypeVar("T")
FAR = 4_000_000_000_000
EXTRA = {
    "evaluator-2": (Role.EVALUATOR,),
    "all-1": (Role.CURATOR, Role.PROPOSER, Role.EXECUTOR, Role.EVALUATOR),
}
ROSTER = {name: (role,) for name, role in AGENTS.items()} | EXTRA
COMPARED = ("retries", "lapses", "declines", "holdouts", "reworks")


class Stutter(store_writer.Writer):
    """A writer whose replies get lost: each call is sent `times` times as one operation."""

    times = 1

    def call(self, name: str, values: Any) -> Any:
        """Call a function, perhaps again."""
        same = {**values, "op": new_operation_id()}
        send = super().call
        answers = [send(name, same) for _ in range(self.times)]
        assert all(timeless(answer) == timeless(answers[0]) for answer in answers), name
        return answers[0]


def timeless(answer: Any) -> Any:
    """Give a reply without the time it was made at."""
    if isinstance(answer, list) and "now" in answer:
        return [each for n, each in enumerate(answer) if answer[n - 1] != "now"]
    return answer


@dataclass
class Hand:
    """A claim as an agent remembers it, on both sides, and the base it saw then."""

    real: store_writer.Held
    model: m.Held
    base: int
    base_revision: str
    asked: bool = False

    @property
    def name(self) -> str:
        """Say who holds what."""
        return f"{self.model.agent} ({self.model.role}) on {self.model.todo}"


def contract_of(goal_id: str, limits: m.Limits) -> ResearchContract:
    """Give the contract that says what the model's limits say."""
    contract = contract_for(
        goal_id,
        max_attempts=limits.max_attempts,
        max_parallel=limits.max_parallel,
        retries=limits.retries,
        owner_gate=limits.owner_gate,
        holdout_limit=limits.holdouts,
        max_cost_usd=limits.max_cost / 1_000_000,
    )
    strategy = contract.strategy.model_copy(
        update={
            "stop": limits.stop,
            "low_water": limits.low_water,
            "unmet_target_rule": "add_successor" if limits.successors else "escalate",
        }
    )
    holdout = contract.evaluation.holdout if limits.holdout_required else None
    evaluation = contract.evaluation.model_copy(update={"holdout": holdout})
    return contract.model_copy(update={"strategy": strategy, "evaluation": evaluation})


@dataclass
class Both:
    """A goal in the store, and the same goal in the model."""

    client: "redis.Redis"
    goal_id: str
    limits: m.Limits
    hands: dict[str, Hand] = field(default_factory=dict)
    late: list[Hand] = field(default_factory=list)
    lives: dict[str, int] = field(default_factory=dict)
    fences: dict[int, int] = field(default_factory=dict)
    verdicts: dict[str, str] = field(default_factory=dict)
    ended: dict[str, str] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)
    sound: bool = True

    def __post_init__(self) -> None:
        self.play = Scenario(self.client, self.goal_id, lease_ms=1)
        self.play.contract = contract_of(self.goal_id, self.limits)
        self.writer = self.play.writer = Stutter(self.client, self.goal_id)
        self.reader = self.play.reader
        self.play.open()
        for name, roles in EXTRA.items():
            registration = rec.AgentRegistration(agent_id=name, roles=roles, host="box")
            self.writer.register(
                operator=OPERATOR,
                agent_id=name,
                roles=list(roles),
                body=body(registration=registration),
            )
        self.model = Protocol(
            self.limits,
            {name: m.Agent(tuple(str(role) for role in roles)) for name, roles in ROSTER.items()},
        )
        self.replayed = GoalState(self.goal_id)
        self.seen: dict[Stream, str] = {}
        self.sleeps = self.reader.now_ms()

    # Calls ---------------------------------------------------------------------------------------

    def both(
        self, name: str, mine: Callable[[], T], theirs: Callable[[], Any]
    ) -> tuple[T, Any] | None:
        """Make one call on both sides; None if both refuse it, for a reason both know."""
        self.sound = False
        self.log.append(name)
        reasons: frozenset[str] = frozenset()
        result: Any = None
        answer: Any = None
        refused = ""
        try:
            result = mine()
        except m.No as no:
            reasons = no.reasons
        try:
            answer = theirs()
        except RefusedError as error:
            refused = error.reason
        if refused:
            allowed = ", ".join(sorted(reasons)) or "nothing"
            assert refused in reasons, (
                f"{name}: the store refuses for {refused}, the model for {allowed}"
            )
            self.log.append(f"  refused: {refused}")
            self.sound = True
            return None
        assert not reasons, f"{name}: the store accepts, the model refuses for {sorted(reasons)}"
        self.keep_time()
        self.sound = True
        return result, answer

    def keep_time(self) -> None:
        """Make the store's leases what the model says of them."""
        leases = self.reader.leases()
        wanted = {
            todo: self.model.due.index(todo) + 1 if todo in self.model.due else FAR
            for todo in leases
        }
        changed = {todo: end for todo, end in wanted.items() if leases[todo] != end}
        if changed:
            self.client.zadd(keys.leases(self.goal_id), dict(changed))

    def expire(self, todo: str) -> None:
        """Let the lease of a claimed item end, unnoticed."""
        self.log.append(f"clock: the lease of {todo} ends")
        claimed = self.reader.now_ms()
        while self.reader.now_ms() <= claimed + 1:
            pass  # replay wants the lease of 1 ms, which the event names, to be over
        self.model.expire(todo)
        self.keep_time()

    def process(self, agent: str) -> str:
        """Name the process that runs an agent now."""
        return f"{agent}#{self.lives.get(agent, 1)}"

    def claim(self, agent: str, *, other: str = "") -> bool:
        """Ask for a claim; True if there is one."""
        process = other or self.process(agent)
        found = self.both(
            f"{process} claims",
            lambda: self.model.claim(agent, process),
            lambda: self.writer.claim(agent_id=agent, incarnation=process),
        )
        if found is None:
            return False
        answer, reply = found
        self.compare_answer(agent, answer, reply)
        self.log[-1] += f": {answer.reason} {answer.todo} {answer.action}".rstrip()
        if not answer.should_run:
            return False
        item, fence = self.model.items[answer.todo], int(reply["fence"])
        assert item.claim is not None
        number = item.claim.number
        if number not in self.fences:
            assert fence > max(self.fences.values(), default=0), "a fence grows"
            self.fences[number] = fence
        goal = self.reader.goal()
        self.hands[agent] = Hand(
            store_writer.Held(
                self.goal_id, agent, process, answer.role, answer.todo, fence, item.version
            ),
            m.Held(agent, answer.role, process, answer.todo, number, item.version),
            self.model.champion,
            goal.get("champion_rev", ""),
        )
        return True

    def enlist(self, agent: str, process: str, dead: str) -> bool:
        """Start a process of an agent; True if it may."""
        who = {"inc": process, "host": "box", "pid": "1", "start": "1"}
        found = self.both(
            f"{process} starts" + (f", {dead} is dead" if dead else ""),
            lambda: self.model.enlist(agent, process, dead),
            lambda: self.writer.enlist(
                agent_id=agent, role=ROSTER[agent][0], incarnation=who, dead=dead
            ),
        )
        if found is None:
            return False
        assert found[0] == found[1][0]
        self.live(agent)
        return True

    def live(self, agent: str) -> None:
        """Make the lease of an agent's process what the model says."""
        end = FAR if self.model.agents[agent].live else 1
        self.client.hset(keys.agent(self.goal_id, agent), "inc_until", str(end))

    def crash(self, agent: str, *, known: bool = True) -> None:
        """Let an agent's process die, and start the next one, which may know of the death."""
        before = self.process(agent)
        self.lives[agent] = self.lives.get(agent, 1) + 1
        if agent in self.hands:
            self.late.append(self.hands.pop(agent))
        self.log.append(f"CRASH {before}")
        dead = self.model.agents[agent].incarnation if known else ""
        self.enlist(agent, self.process(agent), dead)

    def release(self, agent: str, reason: str) -> None:
        """Let an agent give its claim back."""
        hand = self.hands.pop(agent)
        found = self.both(
            f"{hand.name} releases: {reason}",
            lambda: self.model.release(hand.model, reason),
            lambda: self.writer.release(hand.real, reason),
        )
        if found is None and self.is_live(hand):
            self.hands[agent] = hand

    def renew(self, agent: str) -> None:
        """Let an agent renew its claim, late or not."""
        hand = self.hands[agent]
        found = self.both(
            f"{hand.name} renews",
            lambda: self.model.renew(hand.model),
            lambda: self.writer.renew(
                agent_id=agent, incarnation=hand.real.incarnation, held=hand.real
            ),
        )
        if found is None:
            self.late.append(self.hands.pop(agent))
        else:
            self.live(agent)

    def is_live(self, hand: Hand) -> bool:
        """Tell whether a remembered claim is the item's claim of now."""
        try:
            self.model.held(hand.model)
        except m.No:
            return False
        return True

    def after(self, hand: Hand, *, done: bool) -> None:
        """Take a claim to its next version, or forget it when it has ended."""
        agent = hand.model.agent
        if self.is_live(hand):
            version = self.model.items[hand.model.todo].version
            if done:
                hand.real = replace(hand.real, version=version)
                hand.model = replace(hand.model, version=version)
            return
        if self.hands.get(agent) is hand:
            del self.hands[agent]
            if not done:
                self.late.append(hand)

    # The person ------------------------------------------------------------------------------------

    def gate(self, todo: str, kind: str) -> None:
        """Open a gate as the person."""
        gate = rec.Gate.model_validate({"kind": kind, "question": "Go on?"})
        found = self.both(
            f"the person opens a gate on {todo}",
            lambda: self.model.gate(todo, kind),
            lambda: self.writer.open_gate(
                operator=OPERATOR, todo_id=todo, kind=kind, body=body(gate=gate)
            ),
        )
        assert found is None or found[0] == found[1]

    def decide(self, gate: str, *, accepted: bool) -> None:
        """Decide a gate as it is shown now."""
        todo = self.model.gates[gate].todo
        verdict = "approved" if accepted else "rejected"
        decision = rec.GateDecision.model_validate({"verdict": verdict, "shown": "0" * 8})
        touched = int(self.reader.item(todo).get("touched") or 0)
        self.both(
            f"the person: {gate} on {todo} {verdict}",
            lambda: self.model.decide(gate, accepted=accepted),
            lambda: self.writer.decide_gate(
                operator=OPERATOR,
                gate_id=gate,
                verdict=verdict,
                touched=touched,
                body=body(decision=decision),
            ),
        )

    def pause(self, *, value: bool) -> None:
        """Pause, or go on."""

        def mine() -> None:
            self.model.paused = value

        self.both(
            "the person pauses" if value else "the person resumes",
            mine,
            lambda: self.writer.pause(
                operator=OPERATOR, value=value, note="", body=body(note="a pause")
            ),
        )

    def add_idea(self, number: int) -> None:
        """Let a person add an idea, perhaps one that is there."""
        title = f"thought {number}"
        found = self.both(
            f"the person adds {title}",
            lambda: self.model.add_idea(title),
            lambda: add_idea(self.play, Plan(title, title, Verdict.IMPROVED)),
        )
        assert found is None or found[0] == found[1]

    def assess(self, todo: str) -> None:
        """Let the proposer assess a hypothesis."""
        hypothesis = self.reader.item(todo)["hyp"]
        verdict = "weakens" if self.model.serial % 2 else "supports"
        self.both(
            f"proposer-1 assesses {todo}",
            lambda: self.model.assess(todo, verdict),
            lambda: assess(self.play, "proposer-1", hypothesis, verdict),
        )

    # What must be equal ----------------------------------------------------------------------------

    def compare_answer(self, agent: str, answer: m.Answer, reply: dict[str, object]) -> None:
        """Compare a decision with the store's."""
        found = m.Answer(
            reply["should_run"] == "1",
            str(reply["reason"]),
            str(reply.get("todo", "")),
            str(reply.get("action", "")),
            str(reply["role"]) if reply["should_run"] == "1" else "",
        )
        assert found == answer, f"{agent}: the store decides {found}, the model {answer}"

    def compare(self) -> None:
        """Compare everything."""
        self.sound = False
        model = self.model
        batch = self.client.pipeline(transaction=False)
        asking = Reader(batch, self.goal_id)
        for agent in ROSTER:
            asking.should_run(agent, brief=True)
        for stream in Stream:
            key = keys.events(self.goal_id, stream)
            batch.xrange(key, min=f"({self.seen[stream]}" if stream in self.seen else "-")
        answers = batch.execute()
        for agent, answer in zip(ROSTER, answers, strict=False):
            reply = as_dict(answer)
            self.compare_answer(agent, model.should_run(agent), reply)
            if not model.due:
                assert reply["phase"] == model.phase(), f"{reply['phase']}, not {model.phase()}"
        gates = [gate for gate, found in model.gates.items() if not found.verdict]
        stored = self.reader.derived(
            todos=[*model.items, "todo_contract"],
            agents=ROSTER,
            gates=model.gates,
            classes=READY,
        )
        assert stored is not None
        for item in model.items.values():
            theirs, mine = seen(stored.items[item.todo]), told(item, self.fences)
            odd = {name: (theirs[name], mine[name]) for name in mine if theirs[name] != mine[name]}
            assert not odd, f"{item.todo}: the store and the model have {odd}"
        ready = {
            name: sorted(todos, key=lambda todo: (todos[todo], todo))
            for name, todos in stored.ready.items()
            if todos
        }
        assert ready == model.ready(), f"the store has {ready}, the model {model.ready()}"
        assert sorted(stored.open_gates) == gates
        goal = stored.goal
        theirs = {name: int(goal.get(name) or 0) for name in numbers(model)}
        assert theirs == numbers(model), f"the store has {theirs}, the model {numbers(model)}"
        claims = {agent: fields.get("claim", "") for agent, fields in stored.agents.items()}
        assert claims == {agent: member.claim for agent, member in model.agents.items()}
        self.compare_replay(stored, dict(zip(Stream, answers[len(ROSTER) :], strict=True)))
        for todo, state in self.ended.items():
            assert model.items[todo].state == state, f"{todo} left {state}"
        self.ended |= {
            item.todo: item.state
            for item in model.items.values()
            if item.state in m.TERMINAL and item.kind != "propose"
        }
        if model.phase() in {"done", "escalate"}:
            assert all(item.state in m.TERMINAL for item in model.hypotheses())
        self.sound = True

    def compare_replay(self, stored: DerivedState, fresh: dict[Stream, Any]) -> None:
        """Replay what is new: no event breaks a rule, and derived state is what they give."""
        events = []
        for stream, entries in fresh.items():
            for entry_id, fields in entries:
                events.append(parse_entry(self.goal_id, stream, entry_id, fields))
                self.seen[stream] = entry_id
        for event in sorted(events, key=lambda each: each.revision):
            broken = apply(self.replayed, event)
            assert broken == [], broken
        found = [each for each in goal_findings(self.replayed, stored.goal) if not each.passed]
        found += differences(self.replayed, stored)
        assert found == [], found
        for champion in self.replayed.champions[1:]:
            check_promotion(self.replayed, champion.todo_id or "", self.limits)


def told(item: m.Item, fences: dict[int, int]) -> dict[str, object]:
    """Give what the model says of an item."""
    claim = item.claim
    return {
        "state": item.state,
        "version": item.version,
        "claimed_by": claim.agent if claim else "",
        "claim_role": claim.role if claim else "",
        "incarnation": claim.incarnation if claim else "",
        "action": claim.action if claim else "",
        "fence": fences.get(claim.number, 0) if claim else 0,
        "reserved": item.reserved,
        "in_lane": item.in_lane,
        "gate": item.gate,
        "doomed": item.doomed,
        "signed_to": item.signature.to if item.signature else "",
        "retries": item.retries,
        "lapses": item.lapses,
        "declines": item.declines,
        "holdouts": item.questions,
        "reworks": item.reworks,
    }


def seen(fields: dict[str, str]) -> dict[str, object]:
    """Give what the store says of an item."""
    claimed = bool(fields.get("claimed_by"))
    texts = ("state", "claimed_by", "claim_role", "incarnation", "action", "gate", "signed_to")
    return {
        **{name: fields.get(name, "") for name in texts},
        **{name: int(fields.get(name) or 0) for name in ("version", *COMPARED)},
        **{name: fields.get(name) == "1" for name in ("reserved", "in_lane", "doomed")},
        "fence": int(fields.get("fence") or 0) if claimed else 0,
    }


def numbers(model: Protocol) -> dict[str, int]:
    """Give the numbers of the goal."""
    return {
        "attempts_used": model.used,
        "attempts_reserved": model.reserved(),
        "lanes": model.lanes(),
        "live": model.live(),
        "holdouts": model.holdouts,
        "cost": model.cost,
        "paused": int(model.paused),
        "source_open": int(model.source_open),
        "target_met": int(model.met),
        "promotions": max(model.champion - 1, 0),
        "ideas": model.ideas(),
    }


def check_promotion(state: GoalState, todo: str, limits: m.Limits) -> None:
    """A promotion has its records, its two signatures, and a decision bound to a revision."""
    item = state.items[todo]
    attempt = state.attempt_of(item)
    assert attempt is not None
    assert attempt.evidence is not None
    assert attempt.evidence.protected_scope_clean
    assert not limits.holdout_required or attempt.holdout_revision > attempt.evidence_revision
    events = [
        event
        for event in state.events.values()
        if event.todo_id == todo and event.type in {"signed", "decided"}
    ]
    signers = [event for event in events if event.type == "signed"][-2:]
    assert [str(event.role) for event in signers] == ["evaluator", "curator"]
    decided = [event for event in events if event.type == "decided"][-1]
    assert decided.type == "decided"
    assert decided.decision.evidence_revision == signers[1].record_revision == item.touched
