"""Signatures: what a role signs, on which records, and when it declines."""

from contracts import records
from contracts.canonical import canonical
from contracts.errors import RecordsError
from contracts.events import Decided, EvaluationRecorded, HoldoutRecorded, Signed
from contracts.words import EndReason, State, Verdict
from roles.steps.lane import Lane


def _touched(item: dict[str, str]) -> int:
    return int(item.get("touched") or 0)


def _signature(item: dict[str, str], to: str, order: str, reason: EndReason, rationale: str) -> str:
    signature = records.Signature.model_validate(
        {
            "to_state": to,
            "order": order,
            "reason": reason,
            "rationale": rationale[:500],
            "evidence_revision": _touched(item),
        }
    )
    return canonical({"signature": signature.to_json_dict()})


def _retired(item: dict[str, str], reason: EndReason) -> str:
    decision = records.TerminalDecision(
        outcome="retired",
        reason=reason,
        commit=item.get("commit") or None,
        evidence_revision=_touched(item),
    )
    return canonical({"decision": decision.to_json_dict()})


def sign_retirement(lane: Lane, item: dict[str, str], reason: EndReason, rationale: str) -> None:
    """Sign a retirement first; an evaluator's signature carries the terminal decision."""
    decided = _retired(item, reason) if lane.role == "evaluator" else None
    lane.context.writer.sign(
        lane.require(),
        State.RETIRED,
        signature=_signature(item, State.RETIRED, "first", reason, rationale),
        decided=decided,
    )
    lane.drop()


def cosign_retirement(lane: Lane, item: dict[str, str]) -> None:
    """Sign second what the records bear out; decline what they do not."""
    first = _first_signature(lane, item)
    reason, why_not = first.reason, ""
    if first.evidence_revision != _touched(item):
        why_not = "the evidence has changed since the first signature"
    elif reason is EndReason.CONTRADICTED and not _is_negative(lane, item):
        why_not = "no record contradicts it"
    if why_not:
        _decline(lane, item, State.RETIRED, reason, why_not)
        return
    decided = _retired(item, reason) if lane.role == "evaluator" else None
    lane.context.writer.sign(
        lane.require(),
        State.RETIRED,
        signature=_signature(item, State.RETIRED, "second", reason, first.rationale),
        decided=decided,
    )
    lane.drop()


def _first_signature(lane: Lane, item: dict[str, str]) -> records.Signature:
    event = lane.context.follower.event(int(item["signed_rev"]))
    if not isinstance(event, Signed):
        message = f"revision {item['signed_rev']} is no signature"
        raise RecordsError(message)
    return event.signature


def _is_negative(lane: Lane, item: dict[str, str]) -> bool:
    """Tell whether an evaluation or a held-out record of the attempt speaks against it."""
    if item.get("evaluation_rev"):
        event = lane.context.follower.event(int(item["evaluation_rev"]))
        if isinstance(event, EvaluationRecorded) and event.evaluation.verdict not in {
            Verdict.IMPROVED,
            Verdict.UNSCORED,
        }:
            return True
    if item.get("holdout_rev"):
        event = lane.context.follower.event(int(item["holdout_rev"]))
        return isinstance(event, HoldoutRecorded) and item.get("holdout_pass") != "1"
    return False


def _decline(
    lane: Lane, item: dict[str, str], to: State, reason: EndReason, rationale: str
) -> None:
    signature = records.Signature.model_validate(
        {
            "to_state": to,
            "order": "second",
            "reason": reason,
            "rationale": rationale,
            "evidence_revision": _touched(item),
            "disagrees": True,
        }
    )
    lane.context.writer.decline(
        lane.require(), signature=canonical({"signature": signature.to_json_dict()})
    )
    lane.drop()


# Promotion ---------------------------------------------------------------------------------------


def sign_promotion(lane: Lane, item: dict[str, str]) -> None:
    """Sign a promotion first, with the terminal decision: which commit, on which evidence."""
    reason, measurement = EndReason.DEV_VALIDATED, None
    if item.get("holdout_rev"):
        event = lane.context.follower.event(int(item["holdout_rev"]))
        if isinstance(event, HoldoutRecorded):
            reason, measurement = EndReason.HOLDOUT_VALIDATED, event.holdout.measurement
    else:
        event = lane.context.follower.event(int(item["evaluation_rev"]))
        if isinstance(event, EvaluationRecorded):
            measurement = event.evaluation.measurement
    decision = records.TerminalDecision(
        outcome="promoted",
        reason=reason,
        commit=item["commit"],
        evidence_revision=_touched(item),
        holdout_revision=int(item["holdout_rev"]) if item.get("holdout_rev") else None,
        value=measurement.value if measurement else None,
        low=measurement.spread.low if measurement and measurement.spread else None,
        target_met=item.get("target_met") == "1",
    )
    lane.context.writer.sign(
        lane.require(),
        State.PROMOTED,
        signature=_signature(item, State.PROMOTED, "first", reason, ""),
        decided=canonical({"decision": decision.to_json_dict()}),
    )
    lane.drop()


def cosign_promotion(lane: Lane, item: dict[str, str]) -> None:
    """Sign second, as the curator: the records once more, then the word."""
    first = _first_signature(lane, item)
    event = lane.context.follower.event(int(item["decided_rev"]))
    if not isinstance(event, Decided):
        message = f"revision {item['decided_rev']} is no decision"
        raise RecordsError(message)
    decision = event.decision
    why_not = _against_promotion(lane, item, first, decision)
    if why_not:
        _decline(lane, item, State.PROMOTED, first.reason, why_not)
        return
    lane.context.writer.sign(
        lane.require(),
        State.PROMOTED,
        signature=_signature(item, State.PROMOTED, "second", first.reason, ""),
    )
    lane.drop()


def _against_promotion(  # noqa: PLR0911 - one answer per record that may be missing
    lane: Lane,
    item: dict[str, str],
    first: records.Signature,
    decision: records.TerminalDecision,
) -> str:
    """Say what speaks against a promotion, or nothing."""
    follower = lane.context.follower
    if not first.evidence_revision == decision.evidence_revision == _touched(item):
        return "the evidence has changed since the first signature"
    if decision.commit != item.get("commit"):
        return "the decision names another commit than the evidence"
    event = follower.event(int(item["evaluation_rev"]))
    if not isinstance(event, EvaluationRecorded) or event.evaluation.verdict != Verdict.IMPROVED:
        return "no evaluation supports it"
    boundary = [c for c in event.evaluation.checks if c.name == "protected_scope_clean"]
    if not boundary or not all(check.passed for check in event.evaluation.checks):
        return "a check of its evaluation fails"
    if lane.context.contract.evaluation.holdout:
        found = follower.event(int(item.get("holdout_rev") or 0) or -1)
        if not isinstance(found, HoldoutRecorded):
            return "no held-out record"
        measurement = found.holdout.measurement
        if measurement is None or measurement.commit != decision.commit:
            return "the held-out record is of another commit"
        if not all(check.passed for check in found.holdout.checks):
            return "a check of the held-out record fails"
    return ""
