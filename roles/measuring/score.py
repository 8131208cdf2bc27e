r"""Read a score from what a metric command left. Strict: a doubtful number is no number.

Channel `file`: the command writes one JSON object to `$LABMATES_RESULT`. Channel `stdout`: one
marked line `labmates: {json}`, or else the last number on stdout.

A JSON object holds `score` (a finite number, or null with `"pass": false`) and may hold `pass`
(true or false), `label` (text) and `detail` (an object). Equal keys twice, NaN, infinities,
numbers in quotes, true as a number, and any other key are refused.

The last number is the last word whose first letter or digit is a digit, or that says nan or inf;
words stand between blanks, tabs and line ends (a carriage return is one), and `name=` or `name:`
before the value is cut off. The word must be a whole number in ASCII, `[+-]?\d+(\.\d+)?` with an
exponent perhaps; `0,95`, `1,234.5`, `95%`, `12/20`, `0.9ms` and `(0.1)` are refused with the word.
Colours are removed first.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn

MARK = "labmates: "
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_BLANK = re.compile(r"[ \t\r\n\f\v]+")
_LINE_END = re.compile(r"[\r\n]+")
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_NAMED = re.compile(r"[^\W\d][^=:]*(?:[=:][^=:]*)*[=:](?P<value>[^=:]+)")
_NO_NUMBER = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_KEYS = {"pass", "score", "label", "detail"}
_TYPED: tuple[tuple[str, type, str], ...] = (
    ("pass", bool, "true or false"),
    ("label", str, "text"),
    ("detail", dict, "an object"),
)
_SHOWN = 80

Channel = Literal["file", "stdout"]


@dataclass(frozen=True)
class Score:
    """A finite number that a metric command gave.

    Attributes:
        passed: What the command says of `pass`; None where it says nothing (exit code 0 passes).
        label: A word of the command's own.
    """

    value: float
    passed: bool | None = None
    label: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class NoScore:
    """Why there is no number.

    Attributes:
        label: A few words for a table, such as `no number` or the command's own (`0/12 exact`).
        detail: The offending text, or what was expected.
        said: The command itself said so (`"pass": false` without a score); otherwise what it
            gave could not be read.
    """

    label: str
    detail: str = ""
    said: bool = False


class _OddJsonError(ValueError):
    """JSON that Python reads and that is no score."""


def parse_score(stdout: str, result_file: str | None, channel: Channel) -> Score | NoScore:
    """Read a score from text; the module says how.

    Args:
        stdout: The command's stdout; only `stdout` reads it.
        result_file: Content of the result file, None where there is none; only `file` reads it.
        channel: Where the contract says the score comes.
    """
    if channel == "file":
        if result_file is None:
            return NoScore("no result file", "the command must write to $LABMATES_RESULT")
        return _from_json(result_file)
    plain = _ANSI.sub("", stdout)
    marked = [line for line in _LINE_END.split(plain) if line.startswith(MARK + "{")]
    if marked:
        texts = {line.removeprefix(MARK).strip(): None for line in marked}
        if len(texts) > 1:
            return NoScore("two results", " and ".join(_short(text) for text in list(texts)[-2:]))
        return _from_json(next(iter(texts)))
    return _last_number(plain)


def _last_number(text: str) -> Score | NoScore:
    for word in reversed(_BLANK.split(text)):
        named = _NAMED.fullmatch(word)
        value = named["value"] if named else word
        if _NO_NUMBER.fullmatch(value):
            return NoScore("not finite", _short(word))
        if not next((char for char in value if char.isalnum()), "").isnumeric():
            continue
        if not _NUMBER.fullmatch(value):
            return NoScore("not a number", _short(word))
        number = float(value)
        if not math.isfinite(number):
            return NoScore("not finite", _short(word))
        return Score(number)
    return NoScore("no number", "stdout holds none" if text.strip() else "stdout is empty")


def _from_json(text: str) -> Score | NoScore:
    try:
        found = json.loads(
            text,
            object_pairs_hook=_once,
            parse_constant=_no_constant,
            parse_float=_finite,
            parse_int=_whole,
        )
    except _OddJsonError as error:
        return NoScore("bad result", str(error))
    except (ValueError, RecursionError) as error:
        return NoScore("no JSON", f"{error}: {_short(text)}")
    if not isinstance(found, dict):
        return NoScore("bad result", f"an object is expected, not {_short(text)}")
    if unknown := sorted(set(found) - _KEYS):
        return NoScore("bad result", f"unknown key {_short(unknown[0])!r}")
    return _from_object(found)


def _from_object(found: dict[str, Any]) -> Score | NoScore:
    for key, kind, expected in _TYPED:
        if found.get(key) is not None and not isinstance(found[key], kind):
            return NoScore("bad result", f"{key} must be {expected}, not {_json(found[key])}")
    passed, score, detail = found.get("pass"), found.get("score"), found.get("detail")
    label = _short(found.get("label") or "")
    if score is None and passed is False:
        return NoScore(label or "failed", _json(detail) if detail else "", said=True)
    if isinstance(score, bool) or not isinstance(score, int | float):
        why = f"must be a number, not {_json(score)}" if "score" in found else "is missing"
        return NoScore("bad result", f"score {why}")
    try:
        return Score(float(score), passed, label, detail or {})
    except OverflowError:
        return NoScore("bad result", f"{_json(score)} is not finite")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            msg = f"key {_short(key)!r} stands there twice"
            raise _OddJsonError(msg)
        found[key] = value
    return found


def _no_constant(text: str) -> NoReturn:
    msg = f"{text} is no JSON number"
    raise _OddJsonError(msg)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        msg = f"{_short(text)} is not finite"
        raise _OddJsonError(msg)
    return number


def _whole(text: str) -> int:
    if len(text) > 400:
        msg = f"{_short(text)} is not finite"
        raise _OddJsonError(msg)
    return int(text)


def _json(value: object) -> str:
    return _short(json.dumps(value, ensure_ascii=False))


def _short(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."
