"""A realistic goal, played into a real store through the writer: every ending there is.

Two executors, one evaluator, proposer and curator each take what the store gives them, in turn.
What becomes of a hypothesis is in `PLANS`; every record is made from its model, with values that
bear its labels. Nothing is run: commits are made up, numbers are fixed.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import redis  # noqa: TC002 - a dataclass reads its annotations

from contracts import records as rec
from contracts.canonical import canonical, sha256_hex
from contracts.contract import (
    Context,
    Evaluation,
    Policy,
    ResearchContract,
    Strategy,
    goal_limits,
)
from contracts.models import Record
from contracts.store.library import ensure_library
from contracts.store.reader import Reader
from contracts.store.writer import Held, TypedBody, Writer
from contracts.words import (
    Direction,
    EndReason,
    EvalStatus,
    FailureKind,
    MetricStatus,
    Role,
    Split,
    StopReason,
    Verdict,
)

OPERATOR = "operator:ops"
AGENTS = {
    "executor-1": Role.EXECUTOR,
    "executor-2": Role.EXECUTOR,
    "evaluator-1": Role.EVALUATOR,
    "proposer-1": Role.PROPOSER,
    "curator-1": Role.CURATOR,
}
SCOPE = sha256_hex("protected files")


def commit_of(name: str) -> str:
    """Make up a commit id."""
    return hashlib.sha1(name.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of a hypothesis: its verdict and its speed-up over the reference."""

    title: str
    family: str
    verdict: Verdict
    speed: float = 0.0


PLANS = (
    Plan("product", "gemm", Verdict.IMPROVED, 2.44),
    Plan("select", "partial_selection", Verdict.IMPROVED, 6.05),
    Plan("loop", "python_loop", Verdict.REGRESSION, 0.31),
    Plan("projection", "approximation", Verdict.CORRECTNESS),
    Plan("warm-up", "harness", Verdict.BOUNDARY),
    Plan("norms", "gemm", Verdict.FLAT, 6.06),
    Plan("autotune", "search", Verdict.UNSCORED),
    Plan("block minima", "pruning", Verdict.IMPROVED, 14.82),
)


def contract_for(
    goal_id: str, strategy: Mapping[str, object] = {}, **policy: object
) -> ResearchContract:
    """Make the scenario's contract."""
    values: dict[str, object] = {"max_attempts": 20, "max_parallel": 2, "retries": 1, **policy}
    return ResearchContract(
        context=Context(
            goal_id=goal_id,
            objective="exact k-nearest neighbours, faster, with the same answers",
            editable=("solution.py",),
            protected=("evaluate.py", "task.py", "data/**"),
        ),
        evaluation=Evaluation(
            metric="speedup",
            direction=Direction.MAXIMIZE,
            unit="x",
            dev="python evaluate.py --split dev",
            holdout="python evaluate.py --split holdout",
            target=7.0,
            min_gain=0.05,
            pairs=6,
        ),
        strategy=Strategy.model_validate({"stop": "queue_empty", "low_water": 10} | dict(strategy)),
        policy=Policy.model_validate(values),
        base_commit=commit_of("base"),
        protected_scope_sha256=SCOPE,
    )


def numbers_of(contract: ResearchContract, *, lease_ms: int = 30_000) -> dict[str, str]:
    """Give the contract's numbers as the goal's hash holds them."""
    met = "1" if contract.evaluation.target is None else ""
    return goal_limits(contract) | {"lease_ms": str(lease_ms), "target_met": met}


def body(**parts: object) -> str:
    """Write the body of an event."""
    values = {
        name: part.to_json_dict() if isinstance(part, Record) else part
        for name, part in parts.items()
        if part is not None
    }
    return canonical(values)


def spread(value: float, width: float = 0.04) -> rec.Spread:
    """Make a spread around a value."""
    low, high = value * (1 - width), value * (1 + width)
    return rec.Spread(value=value, low=low, high=high, n=6, level=0.96875)


def manifest(name: str) -> rec.ProcessManifest:
    """Make a process manifest."""
    return rec.ProcessManifest(
        argv=("python", name),
        started_at=datetime(2026, 11, 30, 12, 0, tzinfo=UTC),
        duration_s=1.25,
        exit_code=0,
        ended_by="exit",
    )


@dataclass
class Scenario:
    """Plays one goal into a store."""

    client: "redis.Redis"
    goal_id: str
    plans: tuple[Plan, ...] = PLANS
    contract: ResearchContract = field(init=False)
    lease_ms: int = 30_000
    policy: dict[str, object] = field(default_factory=dict)
    strategy: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        ensure_library(self.client)
        self.writer = Writer(self.client, self.goal_id)
        self.reader = Reader(self.client, self.goal_id)
        self.contract = contract_for(self.goal_id, self.strategy, **self.policy)
        self.by_title = {plan.title: plan for plan in self.plans}
        self.proposed = 0
        self.speeds: dict[str, float] = {self.contract.base_commit: 1.0}

    # The operator ----------------------------------------------------------------------------

    def open(self) -> "Scenario":
        """Create and approve the goal, and register its agents."""
        digest = self.contract.contract_hash()
        contract = self.contract.model_dump(mode="json")
        bodies = ("{}", canonical({"contract": contract, "contract_hash": digest}))
        numbers = numbers_of(self.contract, lease_ms=self.lease_ms)
        self.writer.create(operator=OPERATOR, contract_hash=digest, numbers=numbers, bodies=bodies)
        approval = body(approval=rec.Approval(contract_hash=digest))
        self.writer.approve(operator=OPERATOR, contract_hash=digest, body=approval)
        for agent_id, role in AGENTS.items():
            registration = rec.AgentRegistration(agent_id=agent_id, roles=(role,), host="box")
            self.writer.register(
                operator=OPERATOR,
                agent_id=agent_id,
                roles=[role],
                body=body(registration=registration),
            )
        return self

    # Steps -----------------------------------------------------------------------------------

    def claim(self, agent_id: str) -> tuple[Held, dict[str, str]] | None:
        """Take what the store gives an agent; None for a no."""
        role = AGENTS.get(agent_id, "")
        reply = self.writer.claim(agent_id=agent_id, incarnation=f"{agent_id}#1", role=role)
        if reply.get("should_run") != "1":
            return None
        facts = {name: str(value) for name, value in reply.items()}
        held = Held(
            self.goal_id,
            agent_id,
            f"{agent_id}#1",
            facts["role"],
            facts["todo"],
            int(facts["fence"]),
            int(facts["version"]),
        )
        return held, facts

    def step(self, agent_id: str) -> bool:
        """Let an agent take one step; False if there was none to take."""
        found = self.claim(agent_id)
        if found is None:
            return False
        held, facts = found
        action = facts["action"]
        if action == "resume":
            action = facts["claimed_action"]
        getattr(self, f"do_{action}")(held, facts)
        return True

    def play(self, limit: int = 400) -> "Scenario":
        """Let all agents take turns until none has anything to do, or `limit` rounds are over."""
        for _ in range(limit):
            if sum(self.step(agent_id) for agent_id in AGENTS) == 0:
                return self
        return self

    def plan(self, held: Held) -> Plan:
        """Give the plan of a claimed item."""
        return self.by_title[self.item(held)["title"]]

    def item(self, held: Held) -> dict[str, str]:
        """Give the item's hash."""
        return self.reader.item(held.todo_id)

    def version(self, held: Held) -> Held:
        """Give the claim with the item's version of now."""
        version = int(self.item(held)["version"])
        return Held(
            held.goal_id,
            held.agent_id,
            held.incarnation,
            held.role,
            held.todo_id,
            held.fence,
            version,
        )

    def advance(self, held: Held, to: str, *records: TypedBody, **facts: str) -> Held:
        """Move the item, and give the claim with its new version."""
        note = facts.pop("note", "{}")
        self.writer.advance(held, to, records=list(records), note=note, **facts)
        return self.version(held)

    # Measurements ----------------------------------------------------------------------------

    def measure(
        self, split: Split, commit: str, speed: float, width: float = 0.04
    ) -> rec.Measurement:
        """Make a scored measurement against the champion of now."""
        goal = self.reader.goal()
        champion = goal.get("champion_commit") or self.contract.base_commit
        ratio = spread(speed / self.speeds.get(champion, 1.0), 0.03)
        gain = speed - self.speeds.get(champion, 1.0)
        wide = 0.05 * max(speed, abs(gain))
        status = MetricStatus.FLAT
        if ratio.low >= 1.05 and gain - wide > 0:
            status = MetricStatus.IMPROVED
        elif ratio.high < 1:
            status = MetricStatus.REGRESSED
        return rec.Measurement(
            split=split,
            commit=commit,
            against_commit=champion,
            against_hypothesis_id=goal.get("champion_hyp") or None,
            against_revision=int(goal.get("champion_rev") or 0),
            eval_status=EvalStatus.SCORED,
            primary_metric_status=status,
            value=speed,
            spread=spread(speed, width),
            ratio=ratio,
            difference=rec.Spread(
                value=gain, low=gain - wide, high=gain + wide, n=6, level=0.96875
            ),
            samples=rec.Samples(champion=(1.0,) * 6, candidate=(speed,) * 6, seeds=tuple(range(6))),
            manifest=manifest("evaluate.py"),
        )

    def unscored(self, commit: str, label: str) -> rec.Measurement:
        """Make a measurement without a score."""
        return rec.Measurement(
            split=Split.DEV,
            commit=commit,
            eval_status=EvalStatus.FAILED_TO_RUN,
            primary_metric_status=MetricStatus.FAILED,
            label=label,
            manifest=manifest("evaluate.py"),
        )

    # Proposer --------------------------------------------------------------------------------

    def do_propose(self, held: Held, facts: dict[str, str]) -> None:
        """Propose the next plan, or close the source."""
        if facts["kind"] == "idea":
            plan = self.plan(held)
            self.propose(held, plan, self.hypothesis(plan, source="person"))
            return
        if self.proposed == len(self.plans):
            self.writer.close_source(held, cursor=str(self.proposed))
            return
        plan = self.plans[self.proposed]
        self.proposed += 1
        self.propose(held, plan, self.hypothesis(plan))

    def hypothesis(self, plan: Plan, **more: object) -> rec.Hypothesis:
        """Make a plan's hypothesis."""
        values: dict[str, object] = {
            "title": plan.title,
            "hypothesis": f"{plan.title} makes it faster",
            "mechanism_family": plan.family,
            "source": "preset",
            "no_grounding_reason": "prepared with the preset",
            "frontier_rank": float(self.proposed),
            "driver": "files",
            **more,
        }
        return rec.Hypothesis.model_validate(values)

    def propose(self, held: Held, plan: Plan, hypothesis: rec.Hypothesis) -> tuple[str, str]:
        """Add a hypothesis under a claim."""
        return self.writer.propose(
            held,
            body=body(hypothesis=hypothesis),
            text_digest=sha256_hex(hypothesis.hypothesis),
            rank=hypothesis.frontier_rank,
            rank_reason="priority",
            title=plan.title,
            family=plan.family,
            cursor=str(self.proposed),
        )

    def do_repropose_or_retire(self, held: Held, facts: dict[str, str]) -> None:
        """Sign the retirement of what is refuted or exhausted."""
        if facts["state"] == "hypothesis_proposed":
            note = body(end_reason="no_follow_up", note="the goal takes no more attempts")
            self.advance(held, "retired", note=note)
            return
        exhausted = facts["state"] == "needs_retry"
        reason = EndReason.RETRY_EXHAUSTED if exhausted else EndReason.CONTRADICTED
        self.sign(held, "retired", "first", reason)

    # Executor --------------------------------------------------------------------------------

    def do_select(self, held: Held, facts: dict[str, str]) -> None:
        """Start an attempt and bring its evidence."""
        self.attempt(held, facts, confirmation=None)

    def do_confirm(self, held: Held, facts: dict[str, str]) -> None:
        """Replay the attempt on the champion of now."""
        self.attempt(held, facts, confirmation="champion_moved")

    def attempt(self, held: Held, facts: dict[str, str], confirmation: str | None) -> None:
        """Run one attempt: start, then evidence or a retry packet."""
        plan, goal, item = self.plan(held), self.reader.goal(), self.item(held)
        number = int(item["next_attempt"])
        hypothesis_id = facts["hyp"]
        branch = f"labmates/{self.goal_id}/{hypothesis_id}/{number}"
        start = rec.AttemptStart.model_validate(
            {
                "branch": branch,
                "base_commit": goal["champion_commit"],
                "base_revision": int(goal["champion_rev"]),
                "worktree": f"worktrees/{self.goal_id}/{number}",
                "scope_sha256": SCOPE,
                "confirmation": confirmation,
                "replay_of": item.get("commit") if confirmation else None,
            }
        )
        started = ("attempt_started", body(start=start))
        base = {"base_rev": goal["champion_rev"], "base_commit": goal["champion_commit"]}
        held = self.advance(held, "attempt_running", started, **base)
        if plan.verdict == Verdict.UNSCORED and item.get("retries", "") in {"", "0"}:
            packet = rec.RetryPacket(
                attempt=number,
                stop_reason=StopReason.TIMEOUT,
                retry_reason="once more, with a longer limit",
                detail="10 s",
            )
            self.advance(held, "needs_retry", ("retry_recorded", body(retry=packet)))
            return
        commit = commit_of(f"{plan.title} {number}")
        outside = plan.verdict == Verdict.BOUNDARY
        evidence = rec.Evidence(
            attempt=number,
            split=Split.DEV,
            metric=rec.Metric(name="speedup", direction=Direction.MAXIMIZE),
            primary_metric_status=MetricStatus.INCONCLUSIVE,
            eval_status=EvalStatus.INCONCLUSIVE,
            code_ref=commit,
            branch=branch,
            changed_files=("solution.py", "evaluate.py") if outside else ("solution.py",),
            insertions=4,
            deletions=3,
            scope_violations=("evaluate.py",) if outside else (),
            protected_scope_clean=not outside,
            raw_logs_recorded=False,
            private_artifacts_recorded=False,
            manifest=manifest("driver"),
            cost_usd=0.25,
        )
        spend = rec.Spend(attempt=number, cost_usd=0.25)
        self.advance(
            held,
            "evidence_recorded",
            ("evidence_recorded", body(evidence=evidence)),
            commit=commit,
            cost="250000",
            spent_body=body(spend=spend),
        )

    # Evaluator -------------------------------------------------------------------------------

    def do_measure_baseline(self, held: Held, facts: dict[str, str]) -> None:
        """Record iteration 0."""
        del facts
        commit = self.contract.base_commit

        def measured(split: Split) -> rec.Measurement:
            return rec.Measurement(
                split=split,
                commit=commit,
                eval_status=EvalStatus.SCORED,
                primary_metric_status=MetricStatus.FLAT,
                value=1.0,
                spread=spread(1.0),
            )

        baseline = rec.Baseline(dev=measured(Split.DEV), holdout=measured(Split.HOLDOUT))
        self.writer.record(held, "baseline_recorded", body(baseline=baseline), commit=commit)

    def do_evaluate(self, held: Held, facts: dict[str, str]) -> None:
        """Measure the dev split and classify."""
        plan, item = self.plan(held), self.item(held)
        commit = item["commit"]
        scored = plan.verdict in {Verdict.IMPROVED, Verdict.FLAT, Verdict.REGRESSION}
        labels = {
            Verdict.UNSCORED: "timeout",
            Verdict.CORRECTNESS: "0/12 exact",
            Verdict.BOUNDARY: "boundary",
        }
        measured = (
            self.measure(Split.DEV, commit, plan.speed)
            if scored
            else self.unscored(commit, labels[plan.verdict])
        )
        evaluation = rec.Evaluation(
            attempt=int(item["attempt"]),
            evidence_revision=int(item["evidence_rev"]),
            measurement=measured,
            checks=self.checks(plan),
            verdict=plan.verdict,
            failure_kind=_FAILURE_KINDS.get(plan.verdict),
            failure=_FAILURES.get(plan.verdict),
            retry_reason="once more" if plan.verdict == Verdict.UNSCORED else None,
            stop_reason=StopReason.TIMEOUT if plan.verdict == Verdict.UNSCORED else None,
        )
        record = ("evaluation_recorded", body(evaluation=evaluation))
        self.do_classify(self.advance(held, "evaluated", record), facts)

    def checks(self, plan: Plan) -> tuple[rec.Check, ...]:
        """Make the checks of an evaluation."""
        clean = plan.verdict != Verdict.BOUNDARY
        exact = plan.verdict != Verdict.CORRECTNESS
        return (
            rec.Check.model_validate(
                {"name": "protected_scope_clean", "actual": clean, "expected": True, "pass": clean}
            ),
            rec.Check.model_validate(
                {
                    "name": "answers_exact",
                    "actual": "12/12" if exact else "0/12",
                    "expected": "12/12",
                    "pass": exact,
                }
            ),
        )

    def do_classify(self, held: Held, facts: dict[str, str]) -> None:
        """Take the way out of `evaluated` that the verdict gives."""
        del facts
        verdict = self.plan(held).verdict
        if verdict == Verdict.IMPROVED:
            self.advance(held, "supported")
        elif verdict == Verdict.UNSCORED:
            self.advance(held, "needs_retry")
        elif verdict == Verdict.FLAT:
            self.sign(held, "retired", "first", EndReason.NO_MEASURABLE_GAIN)
        else:
            self.advance(held, "contradicted")

    def do_measure_holdout(self, held: Held, facts: dict[str, str]) -> None:
        """Ask the held-out question and go to the gate."""
        del facts
        item, plan = self.item(held), self.plan(held)
        number = int(item["attempt"])
        question = int(item.get("holdouts") or 0) + 1
        asked = rec.Holdout(attempt=number, status="asked", question=question)
        self.writer.record(held, "holdout_recorded", body(holdout=asked), status="asked")
        speed = plan.speed * 0.97
        measured = self.measure(Split.HOLDOUT, item["commit"], speed)
        met = measured.spread is not None and measured.spread.low >= 7.0
        answer = rec.Holdout(
            attempt=number,
            status="measured",
            question=question,
            measurement=measured,
            checks=self.checks(plan),
            target_met=met,
        )
        self.advance(
            held,
            "promotion_gate",
            ("holdout_recorded", body(holdout=answer)),
            holdout_pass="1",
            target_met="1" if met else "",
        )

    def do_sign(self, held: Held, facts: dict[str, str]) -> None:
        """Decide the promotion, or send a stale item back."""
        del facts
        item, goal = self.item(held), self.reader.goal()
        if item["base_rev"] != goal["champion_rev"]:
            self.advance(held, "supported")
            return
        plan = self.plan(held)
        value = plan.speed * 0.97
        decision = rec.TerminalDecision(
            outcome="promoted",
            reason=EndReason.HOLDOUT_VALIDATED,
            commit=item["commit"],
            evidence_revision=int(item["touched"]),
            holdout_revision=int(item["holdout_rev"]),
            value=value,
            low=spread(value).low,
            target_met=spread(value).low >= 7.0,
        )
        self.sign(held, "promoted", "first", EndReason.HOLDOUT_VALIDATED, decision)

    # Signatures ------------------------------------------------------------------------------

    def do_cosign(self, held: Held, facts: dict[str, str]) -> None:
        """Give the second signature."""
        del facts
        item = self.item(held)
        to = item["signed_to"]
        if to == "promoted":
            self.speeds[item["commit"]] = self.plan(held).speed
            self.sign(held, to, "second", EndReason.HOLDOUT_VALIDATED)
        else:
            flat = self.plan(held).verdict == Verdict.FLAT
            exhausted = item["state"] == "needs_retry"
            reason = EndReason.NO_MEASURABLE_GAIN if flat else EndReason.CONTRADICTED
            self.sign(held, to, "second", EndReason.RETRY_EXHAUSTED if exhausted else reason)

    def sign(
        self,
        held: Held,
        to: str,
        order: str,
        reason: EndReason,
        decision: rec.TerminalDecision | None = None,
    ) -> None:
        """Sign, with the decision that the evaluator owes."""
        touched = int(self.item(held)["touched"])
        signature = rec.Signature.model_validate(
            {"to_state": to, "order": order, "reason": reason, "evidence_revision": touched}
        )
        if decision is None and held.role == Role.EVALUATOR:
            decision = rec.TerminalDecision(
                outcome="retired", reason=reason, evidence_revision=touched
            )
        decided = body(decision=decision) if decision else None
        self.writer.sign(held, to, signature=body(signature=signature), decided=decided)


_FAILURE_KINDS = {
    Verdict.REGRESSION: FailureKind.MECHANISM_CONTRADICTED,
    Verdict.CORRECTNESS: FailureKind.MECHANISM_CONTRADICTED,
    Verdict.BOUNDARY: FailureKind.GUARDRAIL_OR_PROTECTED_BOUNDARY,
}
_FAILURES = {
    Verdict.REGRESSION: "slower than the champion",
    Verdict.CORRECTNESS: "0 of 12 answers exact",
    Verdict.BOUNDARY: "evaluate.py changed",
}
