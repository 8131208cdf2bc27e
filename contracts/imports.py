"""Records of another implementation in the public vocabulary, read and mapped to ours.

Tolerant of fields it does not know, which are named one by one; strict about values, since a
wrong word or a private path that comes in once is in the records for ever. Pure.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from contracts import records
from contracts.errors import UsageError
from contracts.import_checks import (
    Checks,
    check_boundary,
    check_refs,
    check_values,
    check_words,
    shown,
)
from contracts.models import Record

KNOWN = "decentralized_auto_research_fixture_v0"
_FAULTS_SHOWN = 10

_CONTRACT: Final = {
    "goal_id": "context.goal_id",
    "research_objective": "context.objective",
    "editable_scope": "context.editable",
    "protected_scope": "context.protected",
    "metric/name": "evaluation.metric",
    "metric/direction": "evaluation.direction",
    "dev_eval": "evaluation.dev",
    "holdout_eval": "evaluation.holdout",
    "budget/max_attempts": "policy.max_attempts",
    "budget/max_parallel_lanes": "policy.max_parallel",
}
_HYPOTHESIS: Final = {
    "hypothesis_id": "(event) hypothesis_id",
    "todo_id": "(event) todo_id",
    "parent_hypothesis_id": "parent_hypothesis_id",
    "mechanism_family": "mechanism_family",
    "hypothesis": "hypothesis",
    "frontier_rank": "frontier_rank",
    "source_refs": "source_refs",
    "grounding_refs": "grounding_refs",
    "novelty_audit_ref": "novelty_audit_ref",
}
_EVIDENCE: Final = {
    "hypothesis_id": "(event) hypothesis_id",
    "todo_id": "(event) todo_id",
    "agent_id": "(event) agent_id",
    "attempt": "attempt",
    "split": "split",
    "metric/name": "metric.name",
    "metric/value": "metric.value",
    "metric/direction": "metric.direction",
    "baseline_metric": "baseline_metric",
    "eval_status": "eval_status",
    "primary_metric_status": "primary_metric_status",
    "code_ref": "code_ref",
    "artifact_refs": "artifact_refs",
    "protected_scope_clean": "protected_scope_clean",
    "raw_logs_recorded": "raw_logs_recorded",
    "private_artifacts_recorded": "private_artifacts_recorded",
}


@dataclass(frozen=True)
class Mapped:
    """One record as far as it can be one of ours.

    Attributes:
        record: Our name of it.
        pointer: Where it stands in the file (JSON Pointer).
        fields: Our field names with their values; `(event)` marks what an event's envelope holds.
        lacks: Fields that ours must have and the file does not give.
    """

    record: str
    pointer: str
    fields: Mapping[str, Any]
    lacks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unplaced:
    """A field of the file that has no place here."""

    pointer: str
    kind: str


@dataclass
class Imported:
    """What was read: records in the file's order, and every field without a place."""

    schema_version: str
    goal_id: str = ""
    mapped: list[Mapped] = field(default_factory=list)
    unplaced: list[Unplaced] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """Count the records by name."""
        found: dict[str, int] = {}
        for record in self.mapped:
            found[record.record] = found.get(record.record, 0) + 1
        return found


@dataclass
class _Reading(Checks):
    """The state of one reading."""

    result: Imported = field(default_factory=lambda: Imported(KNOWN))


def parse_import(text: str, *, allow_https: bool = False) -> Imported:
    """Read a file's content and map it.

    Args:
        text: JSON.
        allow_https: Take `https://` addresses as references; otherwise only public aliases.

    Raises:
        UsageError: It is no such file, or values do not validate; the first ten are named.
    """
    document = _load(text)
    if not isinstance(document, dict) or not isinstance(document.get("schema_version"), str):
        message = "the file is no JSON object with a schema_version"
        raise UsageError(message, facts={"known": KNOWN})
    version = document["schema_version"]
    if version != KNOWN:
        message = f"records of the kind {version[:80]!r} are not known here"
        raise UsageError(message, facts={"known": KNOWN})
    reading = _Reading(allow_https)
    readers: dict[str, Callable[[_Reading, Any], None]] = {
        "research_contract": _contract,
        "agents": _agents,
        "hypotheses": _hypotheses,
        "evidence_events": _evidence,
    }
    for key, value in document.items():
        if key in readers:
            readers[key](reading, value)
        elif key != "schema_version":
            reading.result.unplaced.append(Unplaced(_pointer(key), _kind(value)))
    _check_links(reading, document)
    if reading.faults:
        raise _refusal(reading.faults)
    if not reading.result.mapped:
        message = "the file holds no record"
        raise UsageError(message)
    return reading.result


def _contract(reading: _Reading, value: object) -> None:
    found = _object(reading, "/research_contract", value)
    if found is None:
        return
    mapped = _map(reading, "/research_contract", found, "research_contract_v0", _CONTRACT)
    check_words(reading, "/research_contract", found)
    reading.result.goal_id = str(mapped.get("context.goal_id", ""))
    needed = ("evaluation.dev", "base_commit", "protected_scope_sha256")
    lacks = tuple(name for name in needed if name not in mapped)
    reading.result.mapped.append(
        Mapped("research_contract_v0", "/research_contract", mapped, lacks)
    )


def _agents(reading: _Reading, value: object) -> None:
    for number, name in enumerate(_list(reading, "/agents", value)):
        pointer = f"/agents/{number}"
        if not isinstance(name, str) or not name:
            reading.fault(pointer, f"must be the name of an agent, not {shown(name)}")
            continue
        fields = {"agent_id": name}
        reading.result.mapped.append(
            Mapped("agent_registration_v0", pointer, fields, lacks=("roles",))
        )


def _hypotheses(reading: _Reading, value: object) -> None:
    required = _required(records.Hypothesis) - {"frontier_rank"}
    for number, item in enumerate(_list(reading, "/hypotheses", value)):
        pointer = f"/hypotheses/{number}"
        found = _object(reading, pointer, item)
        if found is None:
            continue
        mapped = _map(reading, pointer, found, "research_hypothesis_v0", _HYPOTHESIS)
        for key in ("hypothesis_id", "hypothesis"):
            if not isinstance(found.get(key), str) or not found[key]:
                reading.fault(f"{pointer}/{key}", f"must be text, not {shown(found.get(key))}")
        check_words(reading, pointer, found)
        check_refs(reading, pointer, found)
        mapped.setdefault("frontier_rank", number + 1)
        lacks = tuple(sorted(required - set(mapped)))
        if not found.get("grounding_refs"):
            lacks += ("grounding_refs or no_grounding_reason",)
        reading.result.mapped.append(Mapped("research_hypothesis_v0", pointer, mapped, lacks))


def _evidence(reading: _Reading, value: object) -> None:
    required = _required(records.Evidence) - {"metric"}
    for number, item in enumerate(_list(reading, "/evidence_events", value)):
        pointer = f"/evidence_events/{number}"
        found = _object(reading, pointer, item)
        if found is None:
            continue
        mapped = _map(reading, pointer, found, "research_evidence_event_v0", _EVIDENCE)
        check_words(reading, pointer, found)
        for key in ("eval_status", "split"):
            if key not in found:
                reading.fault(f"{pointer}/{key}", "is missing")
        check_refs(reading, pointer, found)
        check_boundary(reading, pointer, found)
        check_values(reading, pointer, found)
        lacks = tuple(sorted(required - set(mapped)))
        reading.result.mapped.append(Mapped("research_evidence_event_v0", pointer, mapped, lacks))


def _map(
    reading: _Reading,
    pointer: str,
    found: Mapping[str, Any],
    record: str,
    places: Mapping[str, str],
) -> dict[str, Any]:
    """Give what has a place; name what has none."""
    version = found.get("schema_version", record)
    if version != record:
        reading.fault(f"{pointer}/schema_version", f"must be {record}, not {shown(version)}")
    mapped: dict[str, Any] = {}
    for key, value in found.items():
        if key == "schema_version":
            continue
        inner = isinstance(value, dict) and any(place.startswith(f"{key}/") for place in places)
        rows = {f"{key}/{name}": below for name, below in value.items()} if inner else {key: value}
        for path, below in rows.items():
            if path in places:
                mapped[places[path]] = below
            else:
                parts = path.split("/", 1) if inner else [path]
                reading.result.unplaced.append(Unplaced(pointer + _pointer(*parts), _kind(below)))
    return mapped


def _check_links(reading: _Reading, document: Mapping[str, Any]) -> None:
    known: dict[str, str] = {}
    for record in reading.result.mapped:
        name = record.fields.get("(event) hypothesis_id")
        if record.record != "research_hypothesis_v0" or not isinstance(name, str):
            continue
        if name in known:
            what = f"stands there twice; the first is {known[name]}"
            reading.fault(f"{record.pointer}/hypothesis_id", what)
        known.setdefault(name, record.pointer)
    if "hypotheses" not in document:
        return
    for record in reading.result.mapped:
        parent = record.fields.get("parent_hypothesis_id")
        if parent is not None and not _is_known(parent, known):
            what = f"names {shown(parent)}, which is no hypothesis of the file"
            reading.fault(f"{record.pointer}/parent_hypothesis_id", what)
        name = record.fields.get("(event) hypothesis_id")
        if record.record == "research_evidence_event_v0" and not _is_known(name, known):
            what = f"names {shown(name)}, which is no hypothesis of the file"
            reading.fault(f"{record.pointer}/hypothesis_id", what)


def _is_known(name: object, known: Mapping[str, str]) -> bool:
    return isinstance(name, str) and name in known


def _load(text: str) -> object:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            message = f"the file has the key {twice[:60]!r} twice in one object"
            raise UsageError(message)
        return found

    def constant(word: str) -> NoReturn:
        message = f"the file holds {word}, which is no JSON number"
        raise UsageError(message)

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=constant)
    except RecursionError as error:
        message = "the file is nested too deeply"
        raise UsageError(message) from error
    except ValueError as error:
        message = f"the file is no JSON: {error}"
        raise UsageError(message) from error


def _refusal(faults: Sequence[tuple[str, str]]) -> UsageError:
    pointer, what = faults[0]
    shown = "\n".join(f"{place} {why}" for place, why in faults[1:_FAULTS_SHOWN])
    facts = {"also": shown} if shown else {}
    if len(faults) > _FAULTS_SHOWN:
        facts["more"] = str(len(faults) - _FAULTS_SHOWN)
    return UsageError(f"{pointer} {what}", facts=facts, tail="Nothing was written.")


def _object(reading: _Reading, pointer: str, value: object) -> dict[str, Any] | None:
    if isinstance(value, dict):
        return value
    reading.fault(pointer, f"must be an object, not {shown(value)}")
    return None


def _list(reading: _Reading, pointer: str, value: object) -> list[Any]:
    if isinstance(value, list):
        return value
    reading.fault(pointer, f"must be an array, not {shown(value)}")
    return []


def _required(model: type[Record]) -> set[str]:
    return {name for name, info in model.model_fields.items() if info.is_required()}


def _pointer(*parts: str) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in parts)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case str():
            return "string"
        case list():
            return f"array of {len(value)}"
        case _:
            return "object"
