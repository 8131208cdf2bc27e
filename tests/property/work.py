"""What a worker does with its claim: the step that the item's state asks for, on both sides."""

from dataclasses import dataclass

from contracts import records as rec
from contracts.canonical import sha256_hex
from contracts.words import (
    Direction,
    EvalStatus,
    FailureKind,
    MetricStatus,
    Split,
    StopReason,
    Verdict,
)
from tests.property import model as m
from tests.property.both import Both, Hand
from tests.scenario import SCOPE, Plan, body, commit_of, manifest, spread

COST = 250_000
MOST = 10
"""Hypotheses of one goal."""


@dataclass(frozen=True)
class Choice:
    """What comes out of a step, where more than one thing may."""

    verdict: str = "improved"
    fails: bool = False
    noise: bool = False
    big: bool = False
    passes: bool = True
    alone: bool = False
    disagrees: bool = False
    child: bool = False
    closes: bool = False


FAILURES = {
    "guard": FailureKind.GUARDRAIL_OR_PROTECTED_BOUNDARY,
    "regression": FailureKind.MECHANISM_CONTRADICTED,
    "correctness": FailureKind.MECHANISM_CONTRADICTED,
    "boundary": FailureKind.GUARDRAIL_OR_PROTECTED_BOUNDARY,
}
UNCHANGED = (StopReason.NO_CHANGE, StopReason.HOOK_BLOCKED)
VERDICTS = ("guard", "improved", "flat", "regression", "correctness", "boundary", "unscored")


def step(both: Both, hand: Hand, choice: Choice) -> bool:
    """Take one step under a claim; False if both sides refuse it."""
    item = both.model.items[hand.model.todo]
    done = WORK[hand.model.role](both, hand, item, choice)
    both.after(hand, done=done)
    return done


def move(
    both: Both,
    hand: Hand,
    to: str,
    *records: tuple[str, str],
    fact: m.Fact | None = None,
    note: str = "{}",
    **facts: str,
) -> bool:
    """Move an item alone."""
    told = fact or m.Fact()
    what = f"{hand.name}: {both.model.items[hand.model.todo].state} -> {to}"
    return (
        both.both(
            what,
            lambda: both.model.move(hand.model, to, told),
            lambda: both.writer.advance(hand.real, to, records=records, note=note, **facts),
        )
        is not None
    )


def sign(both: Both, hand: Hand, item: m.Item, to: str, *, decided: bool = True) -> bool:
    """Sign, with the decision where one is due."""
    standing = both.model.standing(item)
    fields = both.reader.item(item.todo)
    touched = int(fields.get("touched") or 0)
    promoted = to == "promoted"
    reason = "operator_rejected" if item.doomed else "no_follow_up"
    if promoted:
        reason = "holdout_validated" if both.limits.holdout_required else "dev_validated"
    order = "second" if standing and standing.to == to else "first"
    signature = rec.Signature.model_validate(
        {
            "to_state": to,
            "order": order,
            "reason": reason,
            "rationale": "as the records say",
            "evidence_revision": touched,
        }
    )
    decision = None
    if decided and hand.model.role == "evaluator":
        decision = rec.TerminalDecision.model_validate(
            {
                "outcome": to,
                "reason": reason,
                "evidence_revision": touched,
                "commit": fields.get("commit") if promoted else None,
                "holdout_revision": int(fields["holdout_rev"])
                if promoted and fields.get("holdout_rev")
                else None,
                "target_met": promoted and item.meets,
            }
        )
    return (
        both.both(
            f"{hand.name} signs {to}",
            lambda: both.model.sign(hand.model, to, decided=decision is not None),
            lambda: both.writer.sign(
                hand.real,
                to,
                signature=body(signature=signature),
                decided=body(decision=decision) if decision else None,
            ),
        )
        is not None
    )


def cosign(both: Both, hand: Hand, item: m.Item, to: str, choice: Choice) -> bool:
    """Give the second signature, or disagree."""
    if not choice.disagrees or item.doomed:
        return sign(both, hand, item, to)
    touched = int(both.reader.item(item.todo).get("touched") or 0)
    signature = rec.Signature.model_validate(
        {
            "to_state": to,
            "order": "second",
            "reason": "no_follow_up",
            "rationale": "not convinced",
            "evidence_revision": touched,
            "disagrees": True,
        }
    )
    return (
        both.both(
            f"{hand.name} declines",
            lambda: both.model.decline(hand.model),
            lambda: both.writer.decline(hand.real, signature=body(signature=signature)),
        )
        is not None
    )


# Roles -------------------------------------------------------------------------------------------


def curator(both: Both, hand: Hand, item: m.Item, choice: Choice) -> bool:
    """Cosign a promotion."""
    return cosign(both, hand, item, "promoted", choice)


def proposer(both: Both, hand: Hand, item: m.Item, choice: Choice) -> bool:
    """Propose, settle or cosign."""
    standing = both.model.standing(item)
    if standing and standing.role == "evaluator":
        return cosign(both, hand, item, standing.to, choice)
    count = len(both.model.hypotheses())
    if item.kind in m.SOURCES:
        if choice.closes or count >= MOST:
            return (
                both.both(
                    f"{hand.name}: nothing more to propose",
                    lambda: both.model.close_source(hand.model),
                    lambda: both.writer.close_source(hand.real, cursor=str(count)),
                )
                is not None
            )
        return propose(both, hand, "", "")
    over = (both.model.closed() or item.doomed) and not choice.fails
    if item.state == "contradicted" and choice.child and count < MOST and not over:
        fields = both.reader.item(item.todo)
        signature = rec.Signature.model_validate(
            {
                "to_state": "retired",
                "order": "first",
                "reason": "superseded",
                "evidence_revision": int(fields["touched"]),
            }
        )
        return propose(both, hand, fields["hyp"], body(signature=signature))
    if item.state == "hypothesis_proposed":
        reason = "operator_rejected" if item.doomed else "no_follow_up"
        note = body(end_reason=reason, note="as the records say")
        return move(both, hand, "retired", note=note)
    return sign(both, hand, item, "retired")


def propose(both: Both, hand: Hand, parent: str, signature: str) -> bool:
    """Add a hypothesis."""
    number = len(both.model.hypotheses()) + 1
    under = both.model.items[hand.model.todo]
    idea = under.text if under.kind == "idea" else ""
    title = idea or f"hypothesis {number}"
    both.play.proposed = (number * 3) % 5
    more: dict[str, object] = {"source": "person"} if idea else {}
    if parent:
        more = {"parent_hypothesis_id": parent, "cites_negative": (parent,)}
    plan = Plan(title, idea or f"family {number}", Verdict.IMPROVED)
    hypothesis = both.play.hypothesis(plan, **more)
    found = both.both(
        f"{hand.name} proposes",
        lambda: both.model.propose(hand.model, hypothesis.frontier_rank),
        lambda: both.writer.propose(
            hand.real,
            body=body(hypothesis=hypothesis),
            text_digest=sha256_hex(hypothesis.hypothesis),
            rank=hypothesis.frontier_rank,
            rank_reason="priority",
            title=title,
            family=hypothesis.mechanism_family,
            cursor=str(number),
            signature=signature,
        ),
    )
    assert found is None or found[0] == found[1][0]
    return found is not None


def executor(both: Both, hand: Hand, item: m.Item, choice: Choice) -> bool:
    """Start an attempt, or bring what came of it."""
    fields = both.reader.item(item.todo)
    if item.state in {"frontier_selected", "supported"}:
        return start(both, hand, item, fields)
    number = int(fields.get("attempt") or 1)
    if choice.fails:
        reason = UNCHANGED[choice.big] if choice.noise else StopReason.TIMEOUT
        packet = rec.RetryPacket(attempt=number, stop_reason=reason, retry_reason="once more")
        return move(
            both,
            hand,
            "needs_retry",
            ("retry_recorded", body(retry=packet)),
            fact=m.Fact(reason=reason),
            reason=reason,
        )
    outside = choice.verdict == "boundary"
    commit = commit_of(f"{both.goal_id} {number}")
    evidence = rec.Evidence(
        attempt=number,
        split=Split.DEV,
        metric=rec.Metric(name="speedup", direction=Direction.MAXIMIZE),
        primary_metric_status=MetricStatus.INCONCLUSIVE,
        eval_status=EvalStatus.INCONCLUSIVE,
        code_ref=commit,
        branch=f"b/{number}",
        changed_files=("solution.py",),
        scope_violations=("evaluate.py",) if outside else (),
        protected_scope_clean=not outside,
        raw_logs_recorded=False,
        private_artifacts_recorded=False,
        manifest=manifest("driver"),
        cost_usd=COST / 1_000_000,
    )
    done = move(
        both,
        hand,
        "evidence_recorded",
        ("evidence_recorded", body(evidence=evidence)),
        fact=m.Fact(cost=COST),
        commit=commit,
        cost=str(COST),
        spent_body=body(spend=rec.Spend(attempt=number, cost_usd=COST / 1_000_000)),
    )
    if done:
        both.verdicts[item.todo] = choice.verdict
    return done


def start(both: Both, hand: Hand, item: m.Item, fields: dict[str, str]) -> bool:
    """Start an attempt on the base that was the champion when the claim was made."""
    goal = both.reader.goal()
    number = int(fields.get("next_attempt") or 1)
    confirmation = fields.get("wants_confirm") or None
    begun = rec.AttemptStart.model_validate(
        {
            "branch": f"b/{number}",
            "base_commit": goal.get("champion_commit", ""),
            "base_revision": int(hand.base_revision or 0),
            "worktree": f"w/{number}",
            "scope_sha256": SCOPE,
            "confirmation": confirmation if item.state == "supported" else None,
        }
    )
    return move(
        both,
        hand,
        "attempt_running",
        ("attempt_started", body(start=begun)),
        fact=m.Fact(base=hand.base),
        base_rev=hand.base_revision,
        base_commit=goal.get("champion_commit", ""),
    )


def evaluator(  # noqa: PLR0911 - one step per state
    both: Both, hand: Hand, item: m.Item, choice: Choice
) -> bool:
    """Measure, classify, sign."""
    standing = both.model.standing(item)
    if standing and standing.role == "proposer":
        return cosign(both, hand, item, standing.to, choice)
    if item.kind == "baseline":
        return baseline(both, hand)
    if item.state == "evaluated":
        return classify(both, hand, item, choice)
    if item.state == "supported":
        return holdout(both, hand, item, choice)
    if item.state == "promotion_gate":
        if item.doomed or item.holdout == "fail":
            return sign(both, hand, item, "retired")
        if both.model.stale(item):
            return move(both, hand, "supported")
        return sign(both, hand, item, "promoted")
    return evaluate(both, hand, item, choice)


def baseline(both: Both, hand: Hand) -> bool:
    """Record iteration 0."""
    commit = both.play.contract.base_commit

    def measured(split: Split) -> rec.Measurement:
        return rec.Measurement(
            split=split,
            commit=commit,
            eval_status=EvalStatus.SCORED,
            primary_metric_status=MetricStatus.FLAT,
            value=1.0,
            spread=spread(1.0),
        )

    found = measured(Split.HOLDOUT) if both.limits.holdout_required else None
    record = rec.Baseline(dev=measured(Split.DEV), holdout=found)
    return (
        both.both(
            f"{hand.name} measures the baseline",
            lambda: both.model.record_baseline(hand.model),
            lambda: both.writer.record(
                hand.real, "baseline_recorded", body(baseline=record), commit=commit
            ),
        )
        is not None
    )


def speed_of(both: Both, status: str, *, big: bool = False) -> float:
    """Give a speed that bears a label against the champion of now."""
    champion = both.play.speeds.get(both.reader.goal().get("champion_commit", ""), 1.0)
    if status == "improved":
        return max(champion * 1.5, 20.0 if big else 0.0)
    return champion * (0.5 if status == "regression" else 1.0)


def met(measured: rec.Measurement) -> bool:
    """Tell whether the low end reaches the target of 7."""
    return measured.spread is not None and measured.spread.low >= 7.0


def evaluate(both: Both, hand: Hand, item: m.Item, choice: Choice) -> bool:
    """Measure the dev split of the evidence's commit."""
    fields = both.reader.item(item.todo)
    commit = fields.get("commit", "")
    verdict = both.verdicts.get(item.todo, "improved")
    if verdict in {"improved", "flat", "regression"}:
        speed = speed_of(both, verdict, big=choice.big)
        both.play.speeds[commit] = speed
        measured = both.play.measure(Split.DEV, commit, speed)
    else:
        measured = both.play.unscored(commit or commit_of("none"), verdict)
    bound = choice.noise and fields.get("confirmations", "") in {"", "0"}
    noise = "noise" if bound and verdict == "improved" else ""
    stop = "timeout" if verdict == "unscored" else None
    if verdict == "guard" and item.reworks < both.limits.reworks:
        stop = "guard_rework"
    evaluation = rec.Evaluation.model_validate(
        {
            "attempt": int(fields.get("attempt") or 1),
            "evidence_revision": int(fields.get("evidence_rev") or 1),
            "measurement": measured,
            "checks": both.play.checks(Plan("x", "x", Verdict(verdict))),
            "verdict": verdict,
            "failure_kind": FAILURES.get(verdict),
            "failure": verdict if verdict in FAILURES else None,
            "retry_reason": "once more" if stop else None,
            "stop_reason": stop,
            "confirmation": noise or None,
        }
    )
    return move(
        both,
        hand,
        "evaluated",
        ("evaluation_recorded", body(evaluation=evaluation)),
        fact=m.Fact(confirmation=noise),
        confirmation=noise,
    )


def classify(both: Both, hand: Hand, item: m.Item, choice: Choice) -> bool:
    """Take the way out that the verdict gives."""
    verdict = both.verdicts[item.todo]
    if item.doomed or verdict == "flat":
        return sign(both, hand, item, "retired")
    if verdict == "unscored":
        return move(both, hand, "needs_retry", reason="timeout")
    if verdict == "guard" and (choice.fails or item.reworks < both.limits.reworks):
        fact = m.Fact(reason="guard_rework")
        return move(both, hand, "needs_retry", fact=fact, reason="guard_rework")
    if verdict != "improved":
        return move(both, hand, "contradicted")
    if choice.alone and not both.limits.holdout_required and not item.wants:
        return to_gate(both, hand, item)
    return move(both, hand, "supported")


def to_gate(both: Both, hand: Hand, item: m.Item) -> bool:
    """Go to the promotion gate on the dev measurement alone."""
    commit = both.reader.item(item.todo).get("commit", "")
    meets = both.play.speeds.get(commit, 1.0) * 0.96 >= 7.0
    fact = m.Fact(meets=meets)
    return move(both, hand, "promotion_gate", fact=fact, target_met="1" if meets else "")


def holdout(  # noqa: PLR0911 - one step per state of the question
    both: Both, hand: Hand, item: m.Item, choice: Choice
) -> bool:
    """Ask the held-out question, answer it, go to the gate; or give up."""
    limits, model = both.limits, both.model
    if item.doomed or item.wants or model.stale(item) or item.holdout == "fail":
        return sign(both, hand, item, "retired")
    if not limits.holdout_required:
        return to_gate(both, hand, item)
    if item.holdout == "pass":
        return move(both, hand, "promotion_gate")
    fields = both.reader.item(item.todo)
    number = int(fields.get("attempt") or 1)
    used_up = item.questions >= limits.holdouts_per_item or model.holdouts >= limits.holdouts
    if not hand.asked:
        if used_up and not choice.fails:
            return sign(both, hand, item, "retired")
        asked = rec.Holdout(attempt=number, status="asked", question=item.questions + 1)
        hand.asked = (
            both.both(
                f"{hand.name} asks the held-out question",
                lambda: model.ask_holdout(hand.model),
                lambda: both.writer.record(
                    hand.real, "holdout_recorded", body(holdout=asked), status="asked"
                ),
            )
            is not None
        )
        return hand.asked
    commit = fields.get("commit", "")
    speed = speed_of(both, "improved" if choice.passes else "flat", big=choice.big)
    measured = both.play.measure(Split.HOLDOUT, commit, speed)
    answer = rec.Holdout(
        attempt=number,
        status="measured",
        question=max(item.questions, 1),
        measurement=measured,
        checks=both.play.checks(Plan("x", "x", Verdict.IMPROVED)),
        target_met=met(measured),
    )
    verdict = "pass" if choice.passes else "fail"
    passed = "1" if choice.passes else ""
    if choice.alone:
        return (
            both.both(
                f"{hand.name} records its held-out answer: {verdict}",
                lambda: model.answer_holdout(hand.model, verdict, meets=met(measured)),
                lambda: both.writer.record(
                    hand.real,
                    "holdout_recorded",
                    body(holdout=answer),
                    status="measured",
                    holdout_pass=passed,
                    target_met="1" if met(measured) else "",
                ),
            )
            is not None
        )
    return move(
        both,
        hand,
        "promotion_gate",
        ("holdout_recorded", body(holdout=answer)),
        fact=m.Fact(holdout=verdict, meets=met(measured)),
        holdout_pass=passed,
        target_met="1" if met(measured) else "",
    )


WORK = {"curator": curator, "proposer": proposer, "executor": executor, "evaluator": evaluator}
