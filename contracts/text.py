"""Text for people: inert data, durations, columns.

Standard library only and cheap to import. What comes from records, repositories or agents goes
through `inert` before it reaches a terminal, so that no data can move a cursor, hide or colour.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NONE = "none"
"""What stands where there is no number or name; never 0 or nan."""

_SMALL, _HUGE = 0.1, 1e12

LABEL_WIDTH = 11
"""Columns of the left column of facts: a label and the space after it."""


def inert(value: object, *, lines: bool = False) -> str:
    r"""Give `value` as text that a terminal only prints: controls become `\x1b`, `\u202e`.

    Args:
        value: Anything; None becomes `none`.
        lines: Keep line ends and tabs (a log); without it the text stays on one line.
    """
    text = NONE if value is None else str(value)
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or (lines and char in "\n\t") else _escaped(char)
        for char in text
    )


def _escaped(char: str) -> str:
    code = ord(char)
    if named := {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char):
        return named
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def duration(seconds: float) -> str:
    """Give a span as `33s`, `5m33s`, `6h02m` or `3d04h`; zero at the end is left out (`8h`)."""
    whole = max(0, int(seconds))
    for unit, size, below, step in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "m", 60),
        ("m", 60, "s", 1),
    ):
        if whole >= size and not (unit == "d" and whole < 2 * 86400):
            rest = whole % size // step
            return f"{whole // size}{unit}" + (f"{rest:02d}{below}" if rest else "")
    return f"{whole}s"


def score(value: float | None, unit: str = "") -> str:
    """Give a score and its unit; `none` for no number, nan and infinities.

    Two decimals from 0.1 on (`6.74x`), three significant digits below (`0.00123s`).
    """
    if value is None or not math.isfinite(value):
        return NONE
    size = abs(value)
    if 0 < size < _SMALL or size >= _HUGE:
        return f"{value:#.3g}{unit}"
    return f"{value:.2f}{unit}"


def gap(
    best: float | None,
    target: float | None,
    *,
    down: bool,
    met: bool,
    improvements: tuple[int, int] = (0, 0),
    unit: str = "",
) -> str:
    """Say what a target still lacks.

    Args:
        best: The best accepted value.
        target: What is asked for; None asks for no value.
        down: Less is better.
        met: The target's value is met, as the evaluator judged it.
        improvements: How many were accepted, and how many the contract asks for.
        unit: Of both values.
    """
    parts = []
    if not met and best is None:
        parts.append(f"all of {score(target, unit)}; nothing was accepted")
    elif not met and best is not None and target is not None:
        short = best - target if down else target - best
        end = f"the worse end of the interval has not reached {score(target, unit)}"
        parts.append(f"{score(short, unit)} of {score(target, unit)}" if short > 0 else end)
    have, wanted = improvements
    if have < wanted:
        parts.append(f"{wanted - have} of {wanted} improvements")
    whole = "no target was set" if target is None else "nothing; the target is met"
    return "; ".join(parts) or whole


def interval(low: float, high: float) -> str:
    """Give an interval as `[6.37, 7.35]`."""
    return f"[{score(low)}, {score(high)}]"


def with_interval(
    value: float | None, low: float | None, high: float | None, unit: str = ""
) -> str:
    """Give a score with its interval, `6.74x [6.37, 7.35]`, as far as they are known."""
    ends = "" if value is None or low is None or high is None else f" {interval(low, high)}"
    return f"{score(value, unit)}{ends}"


def floor(value: float) -> str:
    """Give what is asked for at least: two decimals, or as many as it was written with."""
    return f"{value:.2f}" if round(value, 2) == round(value, 9) else f"{round(value, 9):.10g}"


def plain(value: object) -> str:
    """Give a value of a check: text as it is, numbers with four significant digits."""
    if value is None:
        return NONE
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def cut(text: str, width: int) -> str:
    """Shorten text to `width` characters, with `...` where something is missing."""
    return text if len(text) <= width else text[: max(0, width - 3)].rstrip() + "..."


def wrapped(text: str, width: int) -> list[str]:
    """Break text at spaces into lines of at most `width`; a longer word gets its own line."""
    found: list[str] = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            found.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [*found, line] if line or not found else found


def fact(label: str, text: str, *, width: int = 80, label_width: int = LABEL_WIDTH) -> list[str]:
    """Give one label and its text, wrapped below itself.

    Line ends in `text` start new lines of the same fact, and are kept as they are.
    """
    lines: list[str] = []
    for part in text.split("\n") or [""]:
        lines += [part] if len(part) + label_width <= width else wrapped(part, width - label_width)
    heads = [label, *[""] * len(lines)]
    return [
        f"{head:<{label_width}}{line}".rstrip() for head, line in zip(heads, lines, strict=False)
    ]


def facts(pairs: Mapping[str, str] | Iterable[tuple[str, str]], *, width: int = 80) -> list[str]:
    """Give labels and texts in two columns; a long label widens the left one."""
    rows = list(pairs.items() if hasattr(pairs, "items") else pairs)
    left = max([LABEL_WIDTH, *(len(label) + 2 for label, _ in rows)])
    return [
        line for label, text in rows for line in fact(label, text, width=width, label_width=left)
    ]


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    width: int = 80,
    right: Sequence[int] = (),
) -> list[str]:
    """Give rows under a head, two spaces between columns, never wrapped; the last column is cut.

    Args:
        head: Column titles.
        rows: Cells; already inert.
        width: Columns of the terminal; 0 means any.
        right: Positions of columns that are set to the right.
    """
    cells = [list(head), *[list(row) for row in rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(head))]
    found = []
    for row in cells:
        parts = [
            f"{cell:>{widths[n]}}" if n in right else f"{cell:<{widths[n]}}"
            for n, cell in enumerate(row)
        ]
        line = "  ".join(parts).rstrip()
        found.append(cut(line, width) if width else line)
    return found


def ends(left: str, right: str, *, width: int = 80) -> str:
    """Put two texts at the two ends of a line, at least two spaces apart."""
    return f"{left}{' ' * max(2, width - len(left) - len(right))}{right}"
