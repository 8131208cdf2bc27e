"""The evidence names of the table's rows: each check gives what is missing, or None.

Pure; see `contracts.guards`, which walks them in the order of a row.
"""

import re
from collections.abc import Callable

from contracts import records as rec
from contracts.events import Assessed
from contracts.guard_context import (
    Context,
    decision_of,
    evaluation_of,
    evidence_of,
    holdout_of,
    holdout_passes,
    hypothesis_of,
    retries_left,
    retry_of,
    start_of,
)
from contracts.labels import CONTRADICTING, measurement_problem, target_met, verdict_problem
from contracts.replay_state import is_closed
from contracts.transitions import GUARDS
from contracts.words import EndReason, MetricStatus, Split, State, Verdict

_COMMIT = re.compile(r"[0-9a-f]{40,64}")


def _family(ctx: Context) -> str | None:
    found = hypothesis_of(ctx)
    return None if found and found.mechanism_family.strip() else "a mechanism family"


def _grounding(ctx: Context) -> str | None:
    found = hypothesis_of(ctx)
    if found is None or not (found.grounding_refs or found.no_grounding_reason):
        return "grounding refs or a no-grounding reason"
    audit = found.novelty_audit_ref
    return "a novelty audit apart from the grounding" if audit in found.grounding_refs else None


def _changed_mechanism(ctx: Context) -> str | None:
    found, parent = hypothesis_of(ctx), ctx.item.hypothesis
    if found is None or parent is None:
        return "a changed mechanism"
    if found.parent_hypothesis_id != ctx.item.hypothesis_id:
        return f"the parent {ctx.item.hypothesis_id}"
    same_text = found.hypothesis.split() == parent.hypothesis.split()
    if same_text or found.mechanism_family == parent.mechanism_family:
        return "a changed mechanism (text and family)"
    return None


def _cites_negative(ctx: Context) -> str | None:
    found = hypothesis_of(ctx)
    cited = found.cites_negative if found else ()
    return None if ctx.item.hypothesis_id in cited else "the negative evidence, cited"


def _worktree(ctx: Context) -> str | None:
    start = start_of(ctx)
    return None if start and start.worktree and start.branch else "the worktree and its branch"


def _base_commit(ctx: Context) -> str | None:
    start, champion = start_of(ctx), ctx.goal.champion
    if start is None or champion is None or start.base_commit != champion.commit:
        return "the champion's commit as the base"
    return None


def _scope(ctx: Context) -> str | None:
    start, contract = start_of(ctx), ctx.goal.contract
    if start is None or contract is None:
        return "the protected scope's hash"
    same = start.scope_sha256 == contract.protected_scope_sha256
    return None if same else "the protected scope's hash of the contract"


def _confirmation_reason(ctx: Context) -> str | None:
    start = start_of(ctx)
    wanted = ctx.item.wants_confirm
    return None if start and start.confirmation == wanted else f"the reason {wanted}"


def _split(ctx: Context) -> str | None:
    found = evidence_of(ctx)
    return None if found and found.split == Split.DEV else "evidence on the dev split"


def _metric_status(ctx: Context) -> str | None:
    found = evidence_of(ctx)
    unmeasured = (MetricStatus.INCONCLUSIVE, MetricStatus.FAILED)
    if found is None or found.metric.value is not None:
        return "a metric without a value: the executor's own number is self_reported"
    return None if found.primary_metric_status in unmeasured else "a label without a claim"


def _code_ref(ctx: Context) -> str | None:
    found, attempt = evidence_of(ctx), ctx.attempt()
    if found is None or not _COMMIT.fullmatch(found.code_ref):
        return "the commit of the attempt"
    if attempt is None or found.attempt != attempt.number or found.branch != attempt.start.branch:
        return "the branch of this attempt"
    return None


def _scope_facts(ctx: Context) -> str | None:
    found = evidence_of(ctx)
    if found is None or found.protected_scope_clean == bool(found.scope_violations):
        return "protected_scope_clean as the violations say"
    return None


def _has_evidence(ctx: Context) -> str | None:
    return None if evidence_of(ctx) else "the evidence of this attempt"


def _manifest(ctx: Context) -> str | None:
    found = evidence_of(ctx)
    return None if found and found.manifest.argv else "the process manifest"


def _stop_reason(ctx: Context) -> str | None:
    return None if retry_of(ctx) else "a stop reason"


def _attempt_number(ctx: Context) -> str | None:
    found = retry_of(ctx)
    return None if found and found.attempt == ctx.item.attempt else "the attempt's number"


def _retry_ref(ctx: Context) -> str | None:
    found = retry_of(ctx)
    there = found and (found.resumable_ref or found.retry_reason)
    return None if there else "a resumable ref or a bounded retry reason"


def _dev_measurement(ctx: Context) -> str | None:
    found, evidence, contract = evaluation_of(ctx), evidence_of(ctx), ctx.goal.contract
    if found is None or evidence is None or contract is None:
        return "the evaluator's own measurement of the dev split"
    if found.measurement.split != Split.DEV or found.attempt != ctx.item.attempt:
        return "the evaluator's own measurement of the dev split of this attempt"
    if found.evidence_revision != ctx.item.evidence_revision:
        return f"an evaluation of the evidence at revision {ctx.item.evidence_revision}"
    return verdict_problem(found, evidence, contract.evaluation) or _against(ctx, found.measurement)


def _against(ctx: Context, measured: rec.Measurement) -> str | None:
    if measured.against_commit is None:
        return None
    known = {champion.commit for champion in ctx.goal.champions}
    return None if measured.against_commit in known else "a comparison with a champion"


def _checks(ctx: Context) -> str | None:
    found = evaluation_of(ctx)
    return None if found and found.checks else "every check of the contract"


def _measured_commit(ctx: Context) -> str | None:
    found, evidence = evaluation_of(ctx), evidence_of(ctx)
    same = found and evidence and found.measurement.commit == evidence.code_ref
    return None if same else "a measurement of the commit named in the evidence"


def _verdict(ctx: Context) -> Verdict | None:
    found = evaluation_of(ctx)
    return found.verdict if found else None


def _dev_checks_pass(ctx: Context) -> str | None:
    return None if _verdict(ctx) == Verdict.IMPROVED else "the verdict improved"


def _failure_by_name(ctx: Context) -> str | None:
    return None if _verdict(ctx) in CONTRADICTING else "a failure by name"


def _unscored(ctx: Context) -> str | None:
    found = evaluation_of(ctx)
    rework = found and found.verdict == Verdict.GUARD and found.stop_reason == "guard_rework"
    return None if rework or _verdict(ctx) == Verdict.UNSCORED else "the verdict unscored"


def _retry_reason(ctx: Context) -> str | None:
    found = evaluation_of(ctx)
    there = found and (found.retry_reason or found.stop_reason)
    return None if there else "a resumable ref or a bounded retry reason"


def _clean_boundary(ctx: Context) -> str | None:
    found = evidence_of(ctx)
    clean = found and found.protected_scope_clean and not found.scope_violations
    return None if clean else "a clean boundary"


def _flat_or_refused(ctx: Context) -> str | None:
    flat = _verdict(ctx) == Verdict.FLAT
    return None if flat or ctx.item.doomed else "a flat evaluation, or the operator's refusal"


def holdout_problem(  # noqa: PLR0911 - one sentence per problem
    ctx: Context, found: rec.Holdout | None
) -> str | None:
    """Say what is wrong with a held-out record of the item's attempt; None if nothing is."""
    evidence, contract = evidence_of(ctx), ctx.goal.contract
    if found is None or found.measurement is None or contract is None or evidence is None:
        return "the held-out record of this attempt"
    if found.attempt != ctx.item.attempt or found.status != "measured":
        return "the held-out record of this attempt"
    if found.measurement.split != Split.HOLDOUT:
        return "a measurement of the held-out split"
    if found.measurement.commit != evidence.code_ref:
        return "a held-out measurement of the commit named in the evidence"
    if problem := measurement_problem(found.measurement, contract.evaluation):
        return problem
    met = target_met(found.measurement, contract.evaluation)
    if found.target_met is not None and found.target_met != met:
        return f"target_met {str(met).lower()}, which the values give"
    return _against(ctx, found.measurement)


def _holdout_or_none(ctx: Context) -> str | None:
    return holdout_problem(ctx, holdout_of(ctx)) if ctx.goal.holdout_required else None


def _holdout_passed(ctx: Context) -> str | None:
    if not ctx.goal.holdout_required:
        return None
    if problem := holdout_problem(ctx, holdout_of(ctx)):
        return problem
    return None if holdout_passes(holdout_of(ctx), ctx.goal) else GUARDS["holdout_passed"]


def _terminal_decision(ctx: Context) -> str | None:
    decision, evidence, contract = decision_of(ctx), evidence_of(ctx), ctx.goal.contract
    if decision is None or evidence is None or contract is None:
        return "the terminal decision"
    if decision.outcome != "promoted" or decision.commit != evidence.code_ref:
        return "a decision on the commit named in the evidence"
    required = ctx.goal.holdout_required
    if decision.holdout_revision != (ctx.item.holdout_revision if required else None):
        return f"a decision on the held-out record at revision {ctx.item.holdout_revision}"
    wanted = EndReason.HOLDOUT_VALIDATED if required else EndReason.DEV_VALIDATED
    if decision.reason != wanted:
        return f"a decision with the reason {wanted}"
    return _decided_values(ctx, decision)


def _decided_values(ctx: Context, decision: rec.TerminalDecision) -> str | None:
    found, evaluation, contract = holdout_of(ctx), evaluation_of(ctx), ctx.goal.contract
    measured = found.measurement if found else None
    if not ctx.goal.holdout_required and evaluation:
        measured = evaluation.measurement
    if measured is None or measured.spread is None or contract is None:
        return "the measurement decided on"
    if decision.value not in {None, measured.value} or decision.low not in {
        None,
        measured.spread.low,
    }:
        return "the values of the measurement decided on"
    met = target_met(measured, contract.evaluation)
    return None if decision.target_met == met else f"target_met {str(met).lower()}"


def _is_contradicted(ctx: Context) -> bool:
    """Tell whether a verdict, a held-out record or a peer's assessment speaks against the item."""
    found = holdout_of(ctx)
    measured = found is not None and found.measurement is not None
    seen = (ctx.goal.events.get(revision) for revision in ctx.item.assessments)
    return (
        _verdict(ctx) in CONTRADICTING
        or (measured and not holdout_passes(found, ctx.goal))
        or any(isinstance(each, Assessed) and each.verdict == "falsifies" for each in seen)
    )


def _retirement_reason(ctx: Context) -> str | None:  # noqa: PLR0911 - one sentence per reason
    reason = ctx.signature.reason if ctx.signature else ctx.end_reason
    if not reason:
        return "a reason for the retirement"
    if reason in {EndReason.HOLDOUT_VALIDATED, EndReason.DEV_VALIDATED}:
        return "a reason for a retirement, not for a promotion"
    if reason == EndReason.OPERATOR_REJECTED:
        return None if ctx.item.doomed else "the operator's refusal"
    if reason == EndReason.CONTRADICTED and not _is_contradicted(ctx):
        return "a record that contradicts it"
    if reason == EndReason.DUPLICATE and ctx.signature is None:
        known = ctx.duplicate_of in ctx.goal.hypotheses
        return None if known else "the id of the equal hypothesis"
    if reason == EndReason.NO_FOLLOW_UP and not (
        ctx.note or (ctx.signature and ctx.signature.rationale)
    ):
        return "a no-follow-up rationale"
    if reason == EndReason.RETRY_EXHAUSTED and ctx.item.state == State.NEEDS_RETRY:
        over = not retries_left(ctx) or is_closed(ctx.goal, ctx.at)
        return None if over else "retries that are used up"
    if reason == EndReason.NO_MEASURABLE_GAIN and _verdict(ctx) in CONTRADICTING:
        return "a measurement without gain"
    return None


EVIDENCE_CHECKS: dict[str, Callable[[Context], str | None]] = {
    "mechanism_family": _family,
    "grounding": _grounding,
    "changed_mechanism": _changed_mechanism,
    "cites_negative": _cites_negative,
    "worktree": _worktree,
    "base_commit": _base_commit,
    "scope_sha256": _scope,
    "confirmation_reason": _confirmation_reason,
    "split": _split,
    "metric_status": _metric_status,
    "code_ref": _code_ref,
    "protected_scope_clean": _scope_facts,
    "raw_logs_recorded": _has_evidence,
    "private_artifacts_recorded": _has_evidence,
    "process_manifest": _manifest,
    "stop_reason": _stop_reason,
    "attempt_number": _attempt_number,
    "retry_ref_or_reason": _retry_ref,
    "dev_measurement": _dev_measurement,
    "checks": _checks,
    "measured_commit": _measured_commit,
    "dev_checks_pass": _dev_checks_pass,
    "failure_by_name": _failure_by_name,
    "unscored": _unscored,
    "retry_reason": _retry_reason,
    "clean_boundary": _clean_boundary,
    "flat_or_refused": _flat_or_refused,
    "holdout_or_none_required": _holdout_or_none,
    "holdout_passed": _holdout_passed,
    "terminal_decision": _terminal_decision,
    "retirement_reason": _retirement_reason,
}
