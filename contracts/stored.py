"""Derived state as it was read: plain text fields, no judgement."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DerivedState:
    """What the store acts on, at one revision; a key of a foreign kind reads as empty.

    Attributes:
        ready: Class -> todo -> rank.
        texts: Digest of a hypothesis text -> hypothesis.
        hypotheses: Hypothesis -> todo.
        open_gates: Gate -> revision it was opened at.
    """

    goal: dict[str, str]
    items: dict[str, dict[str, str]]
    agents: dict[str, dict[str, str]]
    gates: dict[str, dict[str, str]]
    roster: frozenset[str]
    hypotheses: dict[str, str]
    texts: dict[str, str]
    ready: dict[str, dict[str, float]]
    open_gates: dict[str, float]
