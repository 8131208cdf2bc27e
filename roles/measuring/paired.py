"""Statistics of paired samples: a median with an interval that assumes nothing of the noise.

A pair is one round of the champion and one of the candidate, measured close together with the same
seed, so that most of what disturbs one disturbs the other. Pure, standard library only.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Direction = Literal["maximize", "minimize"]
Verdict = Literal["improved", "flat", "regressed"]

COVERAGE = 0.95


@dataclass(frozen=True, slots=True)
class Spread:
    """A median and an interval for it, in the unit of the samples.

    Attributes:
        value: The median of the samples.
        low: The low end of the interval.
        high: The high end of the interval.
        n: How many samples there were.
        level: The probability that such an interval holds the true median; at least `COVERAGE`
            from six samples on, less below (0.0 for one sample).
    """

    value: float
    low: float
    high: float
    n: int
    level: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """A candidate against a champion; more is better, whatever the metric's direction.

    Attributes:
        ratio: Candidate over champion (minimize: champion over candidate); None unless all samples
            are positive, since a ratio of others says nothing.
        difference: Candidate minus champion (minimize: the reverse), in the metric's unit.
        champion: The champion's own samples.
    """

    ratio: Spread | None
    difference: Spread
    champion: Spread


def interval_rank(n: int) -> tuple[int, float]:
    """Give the rank r and the coverage of the interval from the r-th smallest to r-th largest.

    r is the greatest whose coverage is at least `COVERAGE`, or 1 if there is none: fewer than half
    the samples lie below the true median like heads of n fair coins.
    """
    if n < 1:
        msg = "no samples"
        raise ValueError(msg)
    rank, tail = 1, 0.5**n
    while 2 * (rank + 1) <= n:
        more = tail + math.comb(n, rank) * 0.5**n
        if 1 - 2 * more < COVERAGE:
            break
        rank, tail = rank + 1, more
    return rank, max(0.0, 1 - 2 * tail)


def summary(samples: Sequence[float]) -> Spread:
    """Sum up samples; raises ValueError if there are none or one is not finite."""
    for sample in samples:
        if not math.isfinite(sample):
            msg = f"{sample} is no finite number"
            raise ValueError(msg)
    rank, level = interval_rank(len(samples))
    ordered = sorted(float(sample) for sample in samples)
    return Spread(
        value=statistics.median(ordered),
        low=ordered[rank - 1],
        high=ordered[-rank],
        n=len(ordered),
        level=level,
    )


def compare(
    candidate: Sequence[float], champion: Sequence[float], direction: Direction
) -> Comparison:
    """Compare pairs: the i-th sample of one belongs to the i-th of the other.

    Raises ValueError if the lengths differ, there are none, or a sample is not finite (a ratio or
    difference that overflows counts as such).
    """
    better, worse = (candidate, champion) if direction == "maximize" else (champion, candidate)
    own = summary(champion)
    difference = summary([a - b for a, b in zip(better, worse, strict=True)])
    ratio = None
    if min(*candidate, *champion) > 0:
        ratio = summary([a / b for a, b in zip(better, worse, strict=True)])
    return Comparison(ratio=ratio, difference=difference, champion=own)


def decide(comparison: Comparison, *, min_gain: float = 0.0, min_delta: float = 0.0) -> Verdict:
    """Say whether the candidate is better than the champion by what is asked, for sure.

    `min_gain` is relative (0.05 asks for 5 %), `min_delta` is in the metric's unit; both are held
    against the low end. Without a ratio, `min_gain` is a share of the champion's median. A tie is
    flat even if nothing is asked.
    """
    difference = comparison.difference
    if comparison.ratio is not None:
        gains = comparison.ratio.low >= 1 + min_gain
        loses = comparison.ratio.high < 1
    else:
        gains = difference.low >= min_gain * abs(comparison.champion.value)
        loses = difference.high < 0
    if gains and difference.low > 0 and difference.low >= min_delta:
        return "improved"
    return "regressed" if loses else "flat"


def schedule(pairs: int) -> list[str]:
    """Give the order of the rounds: A (champion) B (candidate) B A A B ..., `pairs` of each."""
    return [side for pair in range(pairs) for side in ("AB" if pair % 2 == 0 else "BA")]
