"""Budgets for people: one line, and which of them are used up. Pure and cheap to import."""

from __future__ import annotations

from typing import TYPE_CHECKING

from contracts.text import duration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def cost_text(cost: Mapping[str, Any]) -> str:
    """Give `5.97 of 20.00 USD`, or what was spent where there is no limit."""
    if cost["limit"] is None:
        return f"{cost['used']:.2f} USD"
    return f"{cost['used']:.2f} of {cost['limit']:.2f} USD"


def line(budget: Mapping[str, Any], *, parallel: bool = True) -> str:
    """Give all budgets of a decision in one line."""
    attempts, lanes = budget["attempts"], budget["parallel"]
    parts = [f"attempts {attempts['used']} of {attempts['limit']}"]
    if parallel:
        parts.append(f"parallel {lanes['used']} of {lanes['limit']}")
    parts.append(cost_text(budget["cost_usd"]))
    if budget["seconds_left"] is not None:
        parts.append(f"{duration(budget['seconds_left'])} left")
    return ", ".join(parts)


def exhausted(budget: Mapping[str, Any]) -> list[str]:
    """Say which budgets allow no new attempt, each in a few words."""
    attempts, cost = budget["attempts"], budget["cost_usd"]
    found = []
    if attempts["used"] >= attempts["limit"]:
        found.append(f"attempts {attempts['used']} of {attempts['limit']} are used")
    elif attempts["used"] + attempts["reserved"] >= attempts["limit"]:
        taken = attempts["used"] + attempts["reserved"]
        found.append(f"attempts {taken} of {attempts['limit']} are used or reserved")
    if cost["limit"] is not None and cost["used"] >= cost["limit"]:
        found.append(f"{cost_text(cost)} are spent")
    if budget["seconds_left"] == 0:
        found.append("the deadline is over")
    return found
