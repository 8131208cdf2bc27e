"""The steps of the model: moves, records, signatures and what the person does."""

from dataclasses import dataclass

from tests.property.model import TERMINAL, Fact, Goal, Held, Item, No, Signature

# from, to -> the role that may move alone, and what must hold.
MOVES: dict[tuple[str, str], tuple[str, tuple[str, ...]]] = {
    ("hypothesis_proposed", "retired"): ("proposer", ("untried",)),
    ("frontier_selected", "attempt_running"): (
        "executor",
        ("running", "open", "wanted", "reserved", "fresh"),
    ),
    ("supported", "attempt_running"): (
        "executor",
        ("running", "open", "wanted", "confirm", "reserved", "fresh"),
    ),
    ("attempt_running", "evidence_recorded"): ("executor", ()),
    ("attempt_running", "needs_retry"): ("executor", ()),
    ("evidence_recorded", "evaluated"): ("evaluator", ("evidence",)),
    ("evaluated", "supported"): ("evaluator", ("wanted", "evaluation")),
    ("evaluated", "contradicted"): ("evaluator", ("wanted", "evaluation")),
    ("evaluated", "needs_retry"): ("evaluator", ("wanted", "evaluation")),
    ("evaluated", "promotion_gate"): (
        "evaluator",
        ("wanted", "evaluation", "fresh", "no_holdout"),
    ),
    ("supported", "promotion_gate"): ("evaluator", ("wanted", "settled", "fresh", "holdout")),
    ("promotion_gate", "supported"): ("evaluator", ("wanted", "stale")),
}
# from, to -> who signs first and second, and what must hold at both signatures.
SIGNED: dict[tuple[str, str], tuple[tuple[str, str], tuple[str, ...]]] = {
    ("evaluated", "retired"): (("evaluator", "proposer"), ("evaluation",)),
    ("supported", "retired"): (("evaluator", "proposer"), ("evaluation",)),
    ("promotion_gate", "retired"): (("evaluator", "proposer"), ()),
    ("contradicted", "retired"): (("proposer", "evaluator"), ()),
    ("needs_retry", "retired"): (("proposer", "evaluator"), ()),
    ("promotion_gate", "promoted"): (
        ("evaluator", "curator"),
        ("wanted", "fresh", "passed", "owner"),
    ),
}
DELIVERIES = (("attempt_running", "evidence_recorded"), ("attempt_running", "needs_retry"))


@dataclass(slots=True)
class Protocol(Goal):
    """A goal with all that can be done to it."""

    # Work ----------------------------------------------------------------------------------------

    def missing(self, item: Item, needs: tuple[str, ...], base: int | None = None) -> set[str]:
        """Give what is not there of what a move needs, by the store's names."""
        base = item.base if base is None else base
        holds = {
            "untried": ("unattempted", not item.tried),
            "running": ("not_paused", not self.paused),
            "open": ("not_closed", not self.closed()),
            "wanted": ("not_doomed", not item.doomed),
            "reserved": ("reserved", item.reserved),
            "fresh": ("base_current", base == self.champion),
            "stale": ("base_moved", self.stale(item)),
            "confirm": ("confirmation_wanted", bool(item.wants) or self.stale(item)),
            "settled": ("no_confirmation_wanted", not item.wants and not self.stale(item)),
            "evidence": ("evidence", item.evidence),
            "evaluation": ("evaluation", item.evaluation),
            "holdout": ("holdout", not self.limits.holdout_required or bool(item.holdout)),
            "no_holdout": ("holdout_not_required", not self.limits.holdout_required),
            "passed": (
                "holdout_passed",
                not self.limits.holdout_required or item.holdout == "pass",
            ),
            "owner": ("owner_accepted", not self.limits.owner_gate or item.owner),
        }
        return {holds[need][0] for need in needs if not holds[need][1]}

    def check(self, item: Item, claim: Held, to: str) -> None:
        """Refuse a step on an older version, or past a gate."""
        if claim.version != item.version:
            raise No("version")
        if item.gate and (item.state, to) not in DELIVERIES:
            raise No("blocked_by_gate")

    def move(self, claim: Held, to: str, fact: Fact) -> None:
        """Move an item alone."""
        item = self.held(claim)
        self.check(item, claim, to)
        if (item.state, to) not in MOVES:
            back = item.state == "frontier_selected" and to == "needs_retry"
            raise No("not_writer" if back else "no_such_transition")
        role, needs = MOVES[item.state, to]
        if fact.holdout and item.state == "supported":
            needs = tuple(need for need in needs if need != "holdout")
        missing = self.missing(item, needs, fact.base if to == "attempt_running" else None)
        if role != claim.role:
            missing.add("not_writer")
        if missing:
            raise No(*missing)
        reworks = self.limits.reworks
        if fact.reason == "guard_rework" and item.reworks >= reworks and to == "needs_retry":
            raise No("reworks_left")
        source = item.state
        item.lapses, item.state = 0, to
        item.version += 1
        getattr(self, f"_to_{to}")(item, source, fact)
        if to not in {"attempt_running", "evaluated"}:
            self.free(item)
        if to == "retired":
            self.succeed()

    def _to_attempt_running(self, item: Item, source: str, fact: Fact) -> None:
        del source
        self.used += 1
        item.reserved, item.in_lane, item.tried, item.base = False, True, True, fact.base
        item.origin = item.wants = item.holdout = ""
        item.evidence = item.evaluation = item.owner = False
        self.touch(item)

    def _to_evidence_recorded(self, item: Item, source: str, fact: Fact) -> None:
        del source
        item.evidence = True
        self.cost += fact.cost
        item.in_lane = not item.gate
        self.touch(item)

    def _to_needs_retry(self, item: Item, source: str, fact: Fact) -> None:
        item.in_lane = False
        if fact.reason == "guard_rework":
            item.reworks += 1
        else:
            item.retries += 1
        if fact.reason in {"no_change", "hook_blocked"}:
            if item.unchanged:  # the second time is the last
                item.retries = max(item.retries, self.limits.retries + 1)
            item.unchanged = True
        if source == "attempt_running":
            self.touch(item)

    def _to_evaluated(self, item: Item, source: str, fact: Fact) -> None:
        del source
        item.evaluation, item.wants = True, fact.confirmation
        self.touch(item)

    def _to_supported(self, item: Item, source: str, fact: Fact) -> None:
        del fact
        item.retries, item.in_lane = 0, False
        if source == "promotion_gate":
            item.wants, item.owner, item.signature = "champion_moved", False, None

    def _to_contradicted(self, item: Item, source: str, fact: Fact) -> None:
        del source, fact
        item.in_lane = False

    def _to_retired(self, item: Item, source: str, fact: Fact) -> None:
        del source, fact
        item.in_lane = False

    def _to_promotion_gate(self, item: Item, source: str, fact: Fact) -> None:
        del source
        item.in_lane = False
        if fact.holdout:
            item.holdout = fact.holdout
            self.touch(item)
        if fact.holdout or not self.limits.holdout_required:
            item.meets = fact.meets
        if self.limits.owner_gate:
            self.open_gate(item, "owner")

    def record_baseline(self, claim: Held) -> None:
        """Measure the approved base; it is the first champion."""
        item = self.held(claim)
        if item.kind != "baseline":
            raise No("wrong_state")
        self.baseline, self.champion, item.state = True, 1, "closed"
        item.version += 1
        self.free(item)

    def ask_holdout(self, claim: Held) -> None:
        """Count a held-out question before it is asked."""
        item = self.held(claim)
        if item.state != "supported":
            raise No("wrong_state")
        limits = self.limits
        if self.holdouts >= limits.holdouts or item.questions >= limits.holdouts_per_item:
            raise No("holdout_used_up")
        self.holdouts += 1
        item.questions += 1

    def answer_holdout(self, claim: Held, verdict: str, *, meets: bool) -> None:
        """Put the answer on record without a move."""
        item = self.held(claim)
        if item.state != "supported":
            raise No("wrong_state")
        item.holdout, item.meets = verdict, meets
        self.touch(item)

    def propose(self, claim: Held, rank: float) -> str:
        """Add a hypothesis: out of the source, or as the child of a refuted one."""
        item = self.held(claim)
        if item.kind == "hypothesis":
            self.check(item, claim, "hypothesis_proposed")
            if item.state != "contradicted":
                raise No("no_such_transition")
        missing = self.missing(item, ("open", "wanted") if item.kind == "hypothesis" else ("open",))
        if missing:
            raise No(*missing)
        todo = f"todo_{len(self.hypotheses()) + 1:04d}"
        self.serial += 1
        self.items[todo] = Item(
            todo, "hypothesis", "hypothesis_proposed", rank, touched=self.serial, text=item.text
        )
        if item.kind == "hypothesis":
            item.signature = Signature("retired", "proposer", item.touched, self.champion)
        elif item.kind != "propose":
            self.shut(item)
            item.version += 1
        if item.kind == "successor":
            self.source_open = True
            source = self.items["todo_propose"]
            if source.state == "closed":
                source.state = "open"
                source.version += 1
        item.lapses = 0
        self.free(item)
        return todo

    def shut(self, item: Item) -> None:
        """Close a todo that backs no hypothesis."""
        item.state = "closed"
        self.source_open &= item.kind != "propose"

    def close_source(self, claim: Held) -> None:
        """Say that there is nothing more to propose; a successor's no is the last word."""
        item = self.held(claim)
        self.shut(item)
        item.version += 1
        self.free(item)
        if item.kind != "successor":
            self.succeed()

    def succeed(self) -> None:
        """The step that leaves nothing to do while the target is unmet adds the successor todo."""
        due = self.limits.successors and self.baseline and not (self.met or self.closed())
        if due and self.dry() and self.live() == 0:
            count = sum(item.kind == "successor" for item in self.items.values()) + 1
            todo = f"todo_successor_{count:04d}"
            self.items[todo] = Item(todo, "successor", "open")

    def add_idea(self, text: str) -> str:
        """Let a person add an idea."""
        if self.closed():
            raise No("not_closed")
        kept = [item for item in self.items.values() if item.text == text]
        if any(item.kind == "hypothesis" or item.state == "open" for item in kept):
            raise No("duplicate")
        count = sum(item.kind == "idea" for item in self.items.values()) + 1
        todo = f"todo_idea_{count:04d}"
        self.items[todo] = Item(todo, "idea", "open", text=text)
        return todo

    def assess(self, todo: str, verdict: str) -> None:
        """Put an assessment on record, once: it is new evidence."""
        item = self.items[todo]
        if item.assessed != verdict:
            item.assessed = verdict
            self.touch(item)

    # Signatures ------------------------------------------------------------------------------------

    def sign(self, claim: Held, to: str, *, decided: bool) -> None:
        """Sign; the second signature moves the item."""
        item = self.held(claim)
        self.check(item, claim, to)
        if (item.state, to) not in SIGNED:
            raise No("no_such_transition")
        signers, needs = SIGNED[item.state, to]
        standing = self.standing(item)
        second = standing is not None and standing.to == to and standing.role == signers[0]
        missing = self.missing(item, needs)
        if claim.role != signers[second]:
            missing.add("missing_signature")
        if not (decided or item.decided) and (second or claim.role == "evaluator"):
            missing.add("missing_record")
        if missing:
            raise No(*missing)
        item.lapses, item.in_lane = 0, False
        item.decided |= decided
        if not second:
            item.signature = Signature(to, claim.role, item.touched, self.champion)
            self.free(item)
            return
        item.state, item.signature, item.decided = to, None, False
        item.version += 1
        if to == "promoted":
            self.champion += 1
            self.met |= item.meets
        self.free(item)
        self.succeed()

    def decline(self, claim: Held) -> None:
        """Disagree with the first signature."""
        item = self.held(claim)
        if self.standing(item) is None:
            raise No("nothing_to_decline")
        if item.doomed:
            raise No("operator_rejected")
        item.signature, item.decided = None, False
        item.declines += 1
        if item.declines >= self.limits.recoveries:
            item.declines = 0
            self.open_gate(item, "disagreement")
        self.free(item)

    # The person ------------------------------------------------------------------------------------

    def gate(self, todo: str, kind: str) -> str:
        """Open a gate as the person; a claim that cannot be delivered any more ends."""
        item = self.items[todo]
        if item.state in TERMINAL:
            raise No("todo_unknown")
        if item.gate:
            raise No("already_gated")
        gate = self.open_gate(item, kind)
        if item.claim and item.state != "attempt_running":
            self.give_back(item, recovery=False)
        return gate

    def decide(self, gate: str, *, accepted: bool) -> None:
        """Decide a gate."""
        found = self.gates[gate]
        if found.verdict:
            raise No("already_decided")
        found.verdict = "approved" if accepted else "rejected"
        item = self.items[found.todo]
        item.gate, item.lapses = "", 0
        if accepted and found.kind == "owner":
            item.owner = True
        elif accepted:
            item.retries = min(item.retries, self.limits.retries)
        elif item.kind == "hypothesis":
            item.doomed = True
        else:
            self.shut(item)
        self.touch(item)
