"""The order in which the frontier is taken: a pure function of what the records say."""

CONFIDENT = 0.7
"""Entries below this confidence go to the end of the queue; they are not removed."""


def rank(*, priority: int, confidence: float | None, position: int) -> tuple[float, str]:
    """Give a hypothesis' place in the frontier, smaller is earlier, and why.

    Args:
        priority: From the source; 1 is highest.
        confidence: From 0 to 1, or None where the source has none.
        position: Line in the source, from 1; it decides between equals.
    """
    late = confidence is not None and confidence < CONFIDENT
    score = (1_000_000 if late else 0) + priority + position / 100_000
    why = f"priority {priority} of its source"
    return score, f"{why}, after all confident ones ({confidence:g})" if late else why
