"""What the values of imported records must be: words, references, boundary facts, numbers."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from contracts.words import Direction, EvalStatus, FailureKind, MetricStatus, Split

STATUSES = frozenset(
    {
        "proposed",
        "active",
        "running",
        "needs_retry",
        "supported",
        "contradicted",
        "promoted",
        "retired",
    }
)
_ALIAS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,199}")
_LOCAL = re.compile(r"[/\\~]|\.{1,2}(?:/|$)|[A-Za-z]:[/\\]|file:", re.IGNORECASE)
_HTTPS = re.compile(r"https://[A-Za-z0-9.-]+(?::\d+)?(?:/[^\s\x00-\x1f]*)?")
_REFS = ("artifact_refs", "grounding_refs", "source_refs", "novelty_audit_ref", "code_ref")
_WORDS: Final[dict[str, frozenset[str]]] = {
    "eval_status": frozenset(EvalStatus),
    "primary_metric_status": frozenset(MetricStatus),
    "split": frozenset(Split),
    "failure_kind": frozenset(FailureKind),
    "status": STATUSES,
    "metric/direction": frozenset(Direction),
}


@dataclass
class Checks:
    """What was found so far; a fault is a JSON pointer and what is wrong there."""

    allow_https: bool
    faults: list[tuple[str, str]] = field(default_factory=list)

    def fault(self, pointer: str, what: str) -> None:
        """Note a fault and go on, so that all are named at once."""
        self.faults.append((pointer, what))


def check_words(check: Checks, pointer: str, found: Mapping[str, Any]) -> None:
    """Refuse a word that is not in the vocabulary of its field."""
    for path, words in _WORDS.items():
        value = value_at(found, path)
        if value is not None and (not isinstance(value, str) or value not in words):
            what = f"must be one of {', '.join(sorted(words))}, not {shown(value)}"
            check.fault(f"{pointer}/{path}", what)


def check_refs(check: Checks, pointer: str, found: Mapping[str, Any]) -> None:
    """Refuse a reference that is no public alias."""
    for key in _REFS:
        value = found.get(key)
        if value is None:
            continue
        one = not isinstance(value, list)
        for number, ref in enumerate([value] if one else value):
            place = f"{pointer}/{key}" if one else f"{pointer}/{key}/{number}"
            if why := _ref_fault(ref, allow_https=check.allow_https):
                check.fault(place, why)


def _ref_fault(ref: object, *, allow_https: bool) -> str:
    if not isinstance(ref, str) or not ref:
        return f"must be a public alias, not {shown(ref)}"
    if ref.lower().startswith("https://"):
        if allow_https and _HTTPS.fullmatch(ref):
            return ""
        return "is an address; only a public alias is taken (--allow-https takes addresses)"
    if _LOCAL.match(ref) or "/" in ref or "\\" in ref:
        return "is a local path or a private address; a public alias is expected"
    return "" if _ALIAS.fullmatch(ref) else f"must be a public alias, not {shown(ref)}"


def check_boundary(check: Checks, pointer: str, found: Mapping[str, Any]) -> None:
    """Refuse evidence that says it holds what must not be shared."""
    for key in ("raw_logs_recorded", "private_artifacts_recorded", "protected_scope_clean"):
        value = found.get(key)
        if value is not None and not isinstance(value, bool):
            check.fault(f"{pointer}/{key}", f"must be true or false, not {shown(value)}")
        elif value is True and key != "protected_scope_clean":
            check.fault(f"{pointer}/{key}", "is true; such evidence is not taken")


def check_values(check: Checks, pointer: str, found: Mapping[str, Any]) -> None:
    """Refuse a number that is none, or that contradicts its label."""
    attempt = found.get("attempt")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or attempt < 1:
        what = f"must be a whole number from 1, not {shown(attempt)}"
        check.fault(f"{pointer}/attempt", what)
    value, baseline = value_at(found, "metric/value"), found.get("baseline_metric")
    for path, number in (("metric/value", value), ("baseline_metric", baseline)):
        if number is not None and not _is_number(number):
            what = f"must be a finite number or null, not {shown(number)}"
            check.fault(f"{pointer}/{path}", what)
            return
    if found.get("eval_status") == EvalStatus.SCORED and value is None:
        check.fault(f"{pointer}/metric/value", "is missing, but eval_status is scored")
    label = found.get("primary_metric_status")
    if value is None or baseline is None or label not in {"improved", "flat", "regressed"}:
        return
    gain = value - baseline
    if value_at(found, "metric/direction") == Direction.MINIMIZE:
        gain = -gain
    if (label == "improved" and gain <= 0) or (label == "regressed" and gain >= 0):
        what = f"is {label}, but {value:g} against {baseline:g} is not"
        check.fault(f"{pointer}/primary_metric_status", what)


def value_at(found: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 - a JSON value
    """Give the value at a path of keys, or None."""
    value: Any = found
    for part in path.split("/"):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 10**300


def shown(value: object) -> str:
    """Give a JSON value for a message, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."
