"""The protocol as the design page has it: a few hundred lines that know no store and no records.

Theory of operation. A `Goal` holds items, agents and gates as plain values. Each method is one call
of the protocol: it raises `No` with everything that is missing and then has changed nothing, or
makes the step whole. Fences, revisions and times are counters of its own (`serial`), so nothing
here can agree with the product by sharing a number with it; a lease ends when the test says so.
Ready sets and the phase are functions of the items, never kept.

Deliberate differences of the product from the page, taken over here: within a role what is
furthest along comes first; an attempt holds its lane until it is evaluated; the champion's move
voids a promotion's signature, not a retirement's; a pause stops only what begins something.
"""

import copy
from dataclasses import dataclass, field

ROLES = ("curator", "proposer", "executor", "evaluator")
TERMINAL = ("promoted", "retired", "closed")
SOURCES = ("propose", "idea", "successor")
"""Kinds of todo that become a hypothesis, or end without one."""
CHOSEN = ("stopped", "goal_paused", "goal_closed", "stale_base", "blocked_by_gate")
"""Reasons to give a claim back that cost no recovery."""

ACTIONS = {
    "baseline": "measure_baseline",
    "propose": "propose",
    "idea": "propose",
    "successor": "propose",
    "settle": "repropose_or_retire",
    "confirm": "confirm",
    "retry": "select",
    "start": "select",
    "evaluate": "evaluate",
    "classify": "classify",
    "holdout": "measure_holdout",
    "sign": "sign",
}
WHEN_CLOSED = {
    "start": "repropose_or_retire",
    "retry": "repropose_or_retire",
    "confirm": "measure_holdout",
}


class No(Exception):
    """A refusal: everything that is missing, by the names the store uses."""

    def __init__(self, *reasons: str) -> None:
        super().__init__(*reasons)
        self.reasons = frozenset(reasons)


@dataclass(slots=True)
class Claim:
    """Who holds an item; `number` stands for the fence."""

    agent: str
    role: str
    incarnation: str
    action: str
    number: int


@dataclass(slots=True)
class Signature:
    """A first signature, with what it is bound to."""

    to: str
    role: str
    touched: int
    champion: int


@dataclass(slots=True)
class Item:
    """One todo."""

    todo: str
    kind: str
    state: str
    rank: float = 0.0
    version: int = 1
    claim: Claim | None = None
    origin: str = ""
    reserved: bool = False
    in_lane: bool = False
    tried: bool = False
    base: int = 0
    wants: str = ""
    evidence: bool = False
    evaluation: bool = False
    holdout: str = ""
    meets: bool = False
    owner: bool = False
    retries: int = 0
    reworks: int = 0
    unchanged: bool = False
    lapses: int = 0
    declines: int = 0
    questions: int = 0
    gate: str = ""
    doomed: bool = False
    touched: int = 0
    signature: Signature | None = None
    decided: bool = False
    text: str = ""
    assessed: str = ""


@dataclass(slots=True)
class Agent:
    """A member of the roster; `live` says whether its incarnation's lease runs."""

    roles: tuple[str, ...]
    claim: str = ""
    incarnation: str = ""
    live: bool = False


@dataclass(slots=True)
class Gate:
    """A question to the person."""

    kind: str
    todo: str
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """The numbers of the contract."""

    max_attempts: int = 4
    max_parallel: int = 2
    retries: int = 1
    low_water: int = 4
    recoveries: int = 3
    holdouts: int = 8
    holdouts_per_item: int = 2
    holdout_required: bool = True
    owner_gate: bool = False
    stop: str = "queue_empty"
    successors: bool = True
    reworks: int = 2
    max_cost: int = 0


@dataclass(frozen=True, slots=True)
class Answer:
    """What `should-run` and `claim` say."""

    should_run: bool
    reason: str
    todo: str = ""
    action: str = ""
    role: str = ""


@dataclass(frozen=True, slots=True)
class Held:
    """A claim as its holder remembers it."""

    agent: str
    role: str
    incarnation: str
    todo: str
    number: int
    version: int


@dataclass(frozen=True, slots=True)
class Fact:
    """What a move brings along."""

    base: int = 0
    cost: int = 0
    confirmation: str = ""
    holdout: str = ""
    meets: bool = False
    reason: str = ""


@dataclass(slots=True)
class Goal:
    """One goal after its approval."""

    limits: Limits
    agents: dict[str, Agent]
    items: dict[str, Item] = field(default_factory=dict)
    gates: dict[str, Gate] = field(default_factory=dict)
    due: list[str] = field(default_factory=list)
    serial: int = 0
    baseline: bool = False
    champion: int = 0
    paused: bool = False
    source_open: bool = True
    met: bool = False
    used: int = 0
    cost: int = 0
    holdouts: int = 0

    def __post_init__(self) -> None:
        for kind in ("baseline", "propose"):
            self.items[f"todo_{kind}"] = Item(f"todo_{kind}", kind, "open")

    # What follows from the items ---------------------------------------------------------------

    def hypotheses(self) -> list[Item]:
        """Give the items that back a hypothesis."""
        return [item for item in self.items.values() if item.kind == "hypothesis"]

    def live(self) -> int:
        """Count the hypotheses that have not ended."""
        return sum(item.state not in TERMINAL for item in self.hypotheses())

    def reserved(self) -> int:
        """Count reserved attempts."""
        return sum(item.reserved for item in self.items.values())

    def lanes(self) -> int:
        """Count lanes in use: reserved ones, and those of attempts that are not evaluated yet."""
        return sum(item.reserved + item.in_lane for item in self.items.values())

    def closed(self) -> bool:
        """Tell whether the goal takes no more attempts."""
        limits = self.limits
        return (
            self.baseless()
            or (limits.stop == "target" and self.met)
            or self.used >= limits.max_attempts
            or 0 < limits.max_cost <= self.cost
        )

    def baseless(self) -> bool:
        """Tell whether a person refused the baseline."""
        todo = next((item for item in self.items.values() if item.kind == "baseline"), None)
        return not self.baseline and todo is not None and todo.state == "closed"

    def room(self) -> bool:
        """Tell whether one more attempt may be reserved."""
        limits = self.limits
        return (
            not self.closed()
            and self.lanes() < limits.max_parallel
            and self.used + self.reserved() < limits.max_attempts
        )

    def open(self, kind: str) -> int:
        """Count the open todos of a kind."""
        return sum(item.kind == kind and item.state == "open" for item in self.items.values())

    def ideas(self) -> int:
        """Count the ideas that wait."""
        return self.open("idea")

    def dry(self) -> bool:
        """Tell whether nothing is left that could become a hypothesis."""
        return not (self.source_open or self.open("successor") or self.ideas())

    def phase(self) -> str:
        """Give the phase."""
        if not self.baseline:
            return "escalate" if self.baseless() and self.live() == 0 else "baseline"
        if self.live() == 0 and (self.closed() or self.dry()):
            return "done" if self.met else "escalate"
        return "iterate"

    def stale(self, item: Item) -> bool:
        """Tell whether the champion moved since the item's base."""
        return item.base != self.champion

    def standing(self, item: Item) -> Signature | None:
        """Give the first signature if nothing has voided it."""
        found = item.signature
        if found is None or found.touched != item.touched:
            return None
        return None if found.to == "promoted" and found.champion != self.champion else found

    def filed(self, item: Item) -> str:  # noqa: PLR0911 - one answer per class
        """Give the ready set of an item, or nothing."""
        moving = ("frontier_selected", "attempt_running")
        if item.claim or item.state in TERMINAL or item.state in moving:
            return ""
        if item.gate:
            return "blocked"
        if item.kind != "hypothesis":
            return item.kind
        if signature := self.standing(item):
            if signature.to == "promoted":
                return "cosign_curator"
            return "cosign_proposer" if signature.role == "evaluator" else "cosign_evaluator"
        match item.state:
            case "hypothesis_proposed":
                return "settle" if item.doomed else "start"
            case "needs_retry":
                spent = item.retries > self.limits.retries
                return "settle" if item.doomed or spent else "retry"
            case "supported":
                wanted = item.wants or self.stale(item)
                return "confirm" if wanted and not item.doomed else "holdout"
            case "evidence_recorded":
                return "evaluate"
            case "evaluated":
                return "classify"
            case "promotion_gate":
                return "sign"
            case _:
                return "settle"

    def ready(self) -> dict[str, list[str]]:
        """Give each ready set in its order."""
        sets: dict[str, list[str]] = {}
        for item in sorted(self.items.values(), key=lambda each: (each.rank, each.todo)):
            if name := self.filed(item):
                sets.setdefault(name, []).append(item.todo)
        return sets

    # The decision ------------------------------------------------------------------------------

    def classes(self, role: str, sets: dict[str, list[str]]) -> list[str]:
        """Give the ready sets a role may take from now, furthest along first."""
        begins = not self.paused
        if role == "curator":
            return ["cosign_curator"]
        if role == "executor":
            free = begins and self.baseline and self.room()
            return ["confirm", "retry", "start"] if free else []
        if role == "evaluator":
            found = ["baseline"] if begins else []
            found += ["cosign_evaluator", "sign", "holdout"]
            return [*found, *(["confirm"] if self.closed() else []), "classify", "evaluate"]
        found = ["cosign_proposer", "settle"]
        if self.closed():
            return [*found, "retry", "start"]
        if not begins:
            return found
        thirsty = self.source_open and len(sets.get("start", [])) < self.limits.low_water
        return [*found, "idea", "successor", *(["propose"] if thirsty else [])]

    def pick(self, agent: Agent) -> tuple[Item, str, str] | None:
        """Find the first item for an agent, with the role and the action."""
        sets = self.ready()
        for role in (each for each in ROLES if each in agent.roles):
            for name in self.classes(role, sets):
                if todos := sets.get(name):
                    action = ACTIONS.get(name, "cosign")
                    if self.closed():
                        action = WHEN_CLOSED.get(name, action)
                    return self.items[todos[0]], role, action
        return None

    def why_not(self, agent: Agent) -> str:
        """Say why there is nothing for an agent."""
        if self.phase() in {"done", "escalate"}:
            return f"goal_{'done' if self.met else 'escalated'}"
        if self.paused:
            return "goal_paused"
        sets = self.ready()
        if "executor" in agent.roles:
            if not self.baseline:
                return "baseline_missing"
            if self.closed() or self.used + self.reserved() >= self.limits.max_attempts:
                return "budget_exhausted"
            waiting = any(sets.get(name) for name in ("start", "retry", "confirm"))
            if waiting and self.lanes() >= self.limits.max_parallel:
                return "parallel_limit"
        return "blocked_by_gate" if sets.get("blocked") else "frontier_empty"

    def should_run(self, name: str) -> Answer:
        """Say what `claim` would do, changing nothing."""
        goal = copy.deepcopy(self) if self.due else self
        goal.lapse_due()
        agent = goal.agents[name]
        if agent.claim:
            claim = goal.items[agent.claim].claim
            return Answer(True, "resume_claim", agent.claim, "resume", claim.role if claim else "")
        if found := goal.pick(agent):
            item, role, action = found
            return Answer(True, "ready", item.todo, action, role)
        return Answer(False, goal.why_not(agent))

    def claim(self, name: str, incarnation: str) -> Answer:
        """Take what `should_run` names; an own claim goes on, for a new process under a new one."""
        agent = self.agents[name]
        if agent.incarnation not in {"", incarnation} and agent.live:
            raise No("incarnation_live")
        self.lapse_due()
        if agent.claim and self.resume(agent, incarnation):
            claim = self.items[agent.claim].claim
            return Answer(True, "resume_claim", agent.claim, "resume", claim.role if claim else "")
        found = self.pick(agent)
        if found is None:
            return Answer(False, self.why_not(agent))
        item, role, action = found
        self.serial += 1
        item.claim = Claim(name, role, incarnation, action, self.serial)
        agent.claim = item.todo
        if action in {"select", "confirm"}:
            item.reserved = True
        if action == "select":
            item.origin, item.state = item.state, "frontier_selected"
            item.version += 1
        return Answer(True, "ready", item.todo, action, role)

    def resume(self, agent: Agent, incarnation: str) -> bool:
        """Let a new process go on with the claim of the one before; False if it costs too much."""
        item = self.items[agent.claim]
        claim = item.claim
        if claim is None or claim.incarnation == incarnation:
            return True
        if item.lapses + 1 >= self.limits.recoveries:
            self.give_back(item, recovery=True)
            return False
        item.lapses += 1
        self.serial += 1
        claim.incarnation, claim.number = incarnation, self.serial
        return True

    # Claims that end without their step ----------------------------------------------------------

    def expire(self, todo: str) -> None:
        """The lease of an item ends; nobody has noticed yet."""
        if todo not in self.due:
            self.due.append(todo)

    def lapse_due(self) -> None:
        """Give back what is due."""
        for todo in list(self.due):
            self.give_back(self.items[todo], recovery=True)

    def free(self, item: Item) -> None:
        """End a claim."""
        if item.claim:
            self.agents[item.claim.agent].claim = ""
            item.claim = None
        if item.todo in self.due:
            self.due.remove(item.todo)

    def touch(self, item: Item) -> None:
        """Void signatures: something that they rest on is new."""
        self.serial += 1
        item.touched, item.signature, item.decided = self.serial, None, False

    def give_back(self, item: Item, *, recovery: bool) -> None:
        """End a claim without its step: the item goes where the claim found it."""
        running = item.state == "attempt_running"
        if item.state == "frontier_selected":
            item.state, item.origin = item.origin, ""
            item.version += 1
        elif running:
            item.state, item.in_lane = "needs_retry", False
            item.version += 1
            item.retries += 1
        item.reserved = False
        item.lapses += recovery
        if running:
            self.touch(item)
        self.free(item)
        if item.lapses >= self.limits.recoveries and not item.gate:
            self.open_gate(item, "poison")

    def release(self, claim: Held, reason: str) -> None:
        """Give a claim back before its step."""
        item = self.held(claim)
        if item.state == "attempt_running":
            raise No("attempt_running")
        self.give_back(item, recovery=reason not in CHOSEN)

    def renew(self, claim: Held) -> None:
        """Renew a claim and its process."""
        item = self.held(claim)
        agent = self.agents[claim.agent]
        if agent.incarnation == claim.incarnation:
            agent.live = True
        if item.todo in self.due:
            self.due.remove(item.todo)

    def enlist(self, name: str, incarnation: str, dead: str) -> str:
        """Start a process of an agent."""
        agent = self.agents[name]
        if agent.incarnation not in {"", incarnation, dead} and agent.live:
            raise No("incarnation_live")
        agent.incarnation, agent.live = incarnation, True
        return agent.claim

    def held(self, claim: Held) -> Item:
        """Find the item of a claim, if it is the live one."""
        item = self.items[claim.todo]
        if item.claim is None or item.claim.agent != claim.agent:
            raise No("not_claimed")
        if item.claim.number != claim.number or item.claim.incarnation != claim.incarnation:
            raise No("stale_fence")
        if item.claim.role != claim.role:
            raise No("role_mismatch")
        return item

    def open_gate(self, item: Item, kind: str) -> str:
        """Put an item under a gate."""
        gate = f"gate_{len(self.gates) + 1:04d}"
        self.gates[gate] = Gate(kind, item.todo)
        item.gate = gate
        if item.state != "attempt_running":
            item.in_lane = False
        self.touch(item)
        return gate
