"""`labmates.toml` as text: strict reading, and the line on which a key stands.

Every fault of the file is named at once, with its line. Types are those of TOML: a number in
quotes is no number, true is no number, a whole number may stand for a decimal one.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from pydantic import BaseModel, ValidationError

from contracts.contract import (
    MAX_ATTEMPTS_CLAMP,
    Context,
    Environment,
    Evaluation,
    Policy,
    ResearchContract,
    Strategy,
)
from contracts.errors import UsageError

FILE = "labmates.toml"
PARTS: dict[str, type[BaseModel]] = {
    "context": Context,
    "environment": Environment,
    "evaluation": Evaluation,
    "strategy": Strategy,
    "policy": Policy,
}
_NOT_IN_FILE = {("context", "goal_id")}
_TABLE = re.compile(r"\s*\[+\s*(?P<name>[^\[\]]+?)\s*\]+\s*(?:#.*)?")
_KEY = re.compile(r"\s*(?P<name>[A-Za-z0-9_\-.\"' ]+?)\s*=")
_AT = re.compile(r"\(at line (\d+), column \d+\)")
_SHOWN = 60

Place = tuple[str, ...]


@dataclass(frozen=True)
class ContractText:
    """A contract file that was read, and not yet compared with any repository.

    Attributes:
        text: The file's content.
        parts: Its five parts as plain values, defaults not filled in.
        warnings: What was changed to fit.
    """

    text: str
    parts: dict[str, dict[str, Any]]
    warnings: tuple[str, ...] = ()

    def line_of(self, *place: str) -> int | None:
        """Give the line of a key or table, else of what holds it; None where that is absent."""
        return line_of(self.text, place)

    def refuse(
        self, place: Place, message: str, *, facts: Mapping[str, str] | None = None, hint: str = ""
    ) -> NoReturn:
        """Raise the fault of one key as a `UsageError` with its line."""
        raise _fault(self.text, [(place, message)], facts=facts, hint=hint)


def parse_contract(raw: bytes) -> ContractText:
    """Read the file strictly.

    Raises:
        UsageError: Naming the first fault with its line, and the others as facts.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        message = f"{FILE} line {line} is not UTF-8"
        raise UsageError(message, facts={"file": FILE, "line": str(line)}) from error
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _AT.search(str(error))
        line = int(found[1]) if found else text.count("\n") + 1
        what = _AT.sub("", str(error)).replace("(at end of document)", "").strip()
        message = f"{FILE} line {line} is no TOML: {what[:1].lower()}{what[1:]}"
        shown = _line(text, line)
        facts = {"file": FILE, "line": str(line)} | ({"text": shown} if shown else {})
        hint = "a key stands once, as `name = value`, below the [part] it belongs to"
        raise UsageError(message, facts=facts, hint=hint) from error
    _require_known(text, document)
    document, warnings = _clamped(text, document)
    parts = {name: dict(document.get(name, {})) for name in PARTS}
    _validate(text, parts)
    return ContractText(text, parts, warnings)


def line_of(text: str, place: Place) -> int | None:
    """Find the line of the key at `place`, else that of its table."""
    table: Place = ()
    best: tuple[int, int] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if head := _TABLE.fullmatch(line):
            table = _split(head["name"])
            here = table
        elif key := _KEY.match(line):
            here = table + _split(key["name"])
        else:
            continue
        depth = len(here)
        if here == place[:depth] and (best is None or depth > best[0]):
            best = (depth, number)
    return best[1] if best else None


def _validate(text: str, parts: dict[str, dict[str, Any]]) -> None:
    stand_in = {
        **{name: dict(part) for name, part in parts.items()},
        "base_commit": "0" * 40,
        "protected_scope_sha256": "0" * 64,
    }
    stand_in["context"] = {"goal_id": "goal", **parts["context"]}
    try:
        # Strict Python input takes no list for a tuple and no text for an enum; JSON input does.
        ResearchContract.model_validate_json(json.dumps(stand_in), strict=True)
    except ValidationError as error:
        faults: list[tuple[Place, str]] = []
        for found in error.errors(include_url=False):
            place = tuple(part for part in found["loc"] if isinstance(part, str))
            faults.append((place, _words(place, found)))
        raise _fault(text, faults) from error


def _words(place: Place, found: Mapping[str, Any]) -> str:
    """Say what is wrong with one key, as a person would."""
    name = ".".join(place)
    if found["type"] == "missing":
        return f"{name} is missing"
    what = str(found["msg"]).removeprefix("Value error, ")
    if not place:
        return what
    value = json.dumps(found.get("input"), ensure_ascii=False, default=str)
    shown = value if len(value) <= _SHOWN else f"{value[: _SHOWN - 3]}..."
    what = what.removeprefix("Input ").removeprefix("String ").removeprefix("Tuple ")
    if what.startswith("should "):
        return f"{name} {what}, not {shown}"
    return f"{name}: {what}"


def _require_known(text: str, document: Mapping[str, Any]) -> None:
    faults: list[tuple[Place, str]] = []
    for name, part in document.items():
        if name not in PARTS:
            kind = "part" if isinstance(part, dict) else "key"
            faults.append(((name,), f"{name} is no {kind} of the file{_near(name, PARTS)}"))
        elif not isinstance(part, dict):
            faults.append(((name,), f"{name} must be a table, [{name}]"))
        else:
            known = {key for key in PARTS[name].model_fields if (name, key) not in _NOT_IN_FILE}
            faults += [
                ((name, key), f"{name}.{key} is no key of [{name}]{_near(key, known)}")
                for key in part
                if key not in known
            ]
            faults += [
                ((name, key), f"{name}.{key} holds a date or time; nothing here takes one")
                for key, value in part.items()
                if key in known and not _is_plain(value)
            ]
    if faults:
        raise _fault(text, faults)


def _clamped(text: str, document: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    policy = document.get("policy", {})
    asked = policy.get("max_attempts")
    if isinstance(asked, bool) or not isinstance(asked, int) or asked <= MAX_ATTEMPTS_CLAMP:
        return document, ()
    line = line_of(text, ("policy", "max_attempts"))
    warning = f"{FILE} line {line}: policy.max_attempts {asked} is more than {MAX_ATTEMPTS_CLAMP}"
    policy = {**policy, "max_attempts": MAX_ATTEMPTS_CLAMP}
    return {**document, "policy": policy}, (f"{warning}; {MAX_ATTEMPTS_CLAMP} it is",)


def _fault(
    text: str,
    faults: list[tuple[Place, str]],
    *,
    facts: Mapping[str, str] | None = None,
    hint: str = "",
) -> UsageError:
    lined = [(line_of(text, place), message) for place, message in faults]
    lined.sort(key=lambda pair: (pair[0] is None, pair[0] or 0))
    number, message = lined[0]
    known = {"file": FILE} | ({"line": str(number)} if number else {})
    if number and (shown := _line(text, number)):
        known["text"] = shown
    if len(lined) > 1:
        known["also"] = "\n".join(
            f"line {line}: {what}" if line else what for line, what in lined[1:]
        )
    where = f"{FILE} line {number}" if number else FILE
    return UsageError(
        f"{where}: {message}",
        facts=known | dict(facts or {}),
        hint=hint or "the keys are described in docs/reference/contract-file.md",
    )


def _near(name: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; is {near[0]} meant?" if near else ""


def _is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return all(_is_plain(item) for item in value.values())
    if isinstance(value, list):
        return all(_is_plain(item) for item in value)
    return isinstance(value, str | int | float | bool)


def _split(dotted: str) -> Place:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _line(text: str, number: int) -> str:
    lines = text.splitlines()
    return lines[number - 1].strip()[:_SHOWN] if 0 < number <= len(lines) else ""
