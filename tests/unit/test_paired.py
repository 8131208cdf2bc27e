import itertools
import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roles.measuring.paired import COVERAGE, compare, decide, interval_rank, schedule, summary

positive = st.floats(min_value=1e-3, max_value=1e3)
pairs = st.lists(st.tuples(positive, positive), min_size=1, max_size=30)


@pytest.mark.parametrize("n", range(1, 15))
def test_the_stated_level_is_the_share_of_all_coin_throws_that_the_interval_covers(n: int) -> None:
    spread = summary(list(range(n)))
    covered = 0
    for throw in itertools.product((0, 1), repeat=n):
        below = sum(throw)  # the median lies between sample below-1 and sample below
        covered += spread.low < below - 0.5 and below - 0.5 < spread.high
    assert covered / 2**n == pytest.approx(spread.level)


@given(st.integers(min_value=6, max_value=300))
def test_from_six_samples_on_the_interval_covers_and_no_narrower_one_does(n: int) -> None:
    rank, level = interval_rank(n)
    assert level >= COVERAGE
    narrower = 1 - 2 * sum(math.comb(n, i) for i in range(rank + 1)) / 2**n
    assert narrower < COVERAGE


@pytest.mark.parametrize("n", range(1, 6))
def test_below_six_samples_the_interval_is_their_range_and_says_what_it_covers(n: int) -> None:
    spread = summary([float(i) for i in range(n)])
    assert (spread.low, spread.high) == (0.0, n - 1)
    assert spread.level == pytest.approx(1 - 2 / 2**n)
    assert spread.level < COVERAGE


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), st.randoms())
def test_a_summary_is_ordered_and_does_not_depend_on_the_order_of_its_samples(
    samples: list[float], random: Random
) -> None:
    spread = summary(samples)
    assert min(samples) <= spread.low <= spread.value <= spread.high <= max(samples)
    shuffled = list(samples)
    random.shuffle(shuffled)
    assert summary(shuffled) == spread


@given(pairs)
def test_changing_sides_turns_a_gain_into_a_loss(samples: list[tuple[float, float]]) -> None:
    one, two = [a for a, _ in samples], [b for _, b in samples]
    verdict = decide(compare(one, two, "maximize"))
    opposite = {"improved": "regressed", "regressed": "improved", "flat": "flat"}
    assert decide(compare(two, one, "maximize")) == opposite[verdict]
    assert decide(compare(two, one, "minimize")) == verdict
    there, back = compare(one, two, "maximize"), compare(two, one, "maximize")
    assert there.difference.low == -back.difference.high


@given(pairs, st.floats(min_value=1.0, max_value=10.0))
def test_a_better_candidate_is_never_judged_worse(
    samples: list[tuple[float, float]], factor: float
) -> None:
    one, two = [a for a, _ in samples], [b for _, b in samples]
    rank = {"regressed": 0, "flat": 1, "improved": 2}
    before = rank[decide(compare(one, two, "maximize"), min_gain=0.05)]
    after = rank[decide(compare([a * factor for a in one], two, "maximize"), min_gain=0.05)]
    assert after >= before


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=20))
def test_research_case_9_the_same_numbers_are_flat_in_both_directions(samples: list[float]) -> None:
    assert decide(compare(samples, samples, "maximize")) == "flat"
    assert decide(compare(samples, samples, "minimize")) == "flat"


def test_for_minimize_the_ratio_is_champion_over_candidate() -> None:
    comparison = compare([2.0] * 8, [6.0] * 8, "minimize")
    assert comparison.ratio is not None
    assert (comparison.ratio.value, comparison.difference.value) == (3.0, 4.0)
    assert decide(comparison, min_gain=0.05) == "improved"


@pytest.mark.parametrize(
    ("gain", "delta", "verdict"),
    [(0.09, 0.0, "improved"), (0.11, 0.0, "flat"), (0.0, 0.9, "improved"), (0.0, 1.1, "flat")],
)
def test_both_the_relative_and_the_absolute_floor_are_held_against_the_low_end(
    gain: float, delta: float, verdict: str
) -> None:
    comparison = compare([11.0, 15.0] * 4, [10.0] * 8, "maximize")
    assert decide(comparison, min_gain=gain, min_delta=delta) == verdict


def test_without_a_ratio_the_gain_is_a_share_of_the_champions_median() -> None:
    comparison = compare([-8.0] * 8, [-10.0] * 8, "maximize")
    assert comparison.ratio is None
    assert decide(comparison, min_gain=0.1) == "improved"
    assert decide(comparison, min_gain=0.3) == "flat"
    assert decide(compare([-10.0] * 8, [-8.0] * 8, "maximize")) == "regressed"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 3, 7])
def test_field_case_86_a_sample_that_is_no_finite_number_is_no_sample(
    value: float, place: int
) -> None:
    samples = [1.0] * 8
    samples[place] = value
    for call in (
        lambda: summary(samples),
        lambda: compare(samples, [1.0] * 8, "maximize"),
        lambda: compare([1.0] * 8, samples, "minimize"),
    ):
        with pytest.raises(ValueError, match="no finite number"):
            call()


def test_no_samples_and_pairs_without_a_partner_are_errors() -> None:
    with pytest.raises(ValueError, match="no samples"):
        summary([])
    with pytest.raises(ValueError, match="argument"):
        compare([1.0, 2.0], [1.0], "maximize")


def test_field_case_85_an_unchanged_candidate_with_noise_is_seldom_called_improved() -> None:
    noise = Random(85)
    wrong = 0
    for _ in range(1000):
        one = [noise.gauss(1.0, 0.02) for _ in range(8)]
        two = [noise.gauss(1.0, 0.02) for _ in range(8)]
        wrong += decide(compare(one, two, "maximize")) != "flat"
    assert wrong <= 20  # 2 of 256 expected


def test_rounds_are_interleaved_so_that_a_drift_hits_both_sides() -> None:
    assert schedule(4) == list("ABBAABBA")
    assert schedule(0) == []
    for pairs_wanted in range(1, 9):
        rounds = schedule(pairs_wanted)
        assert rounds.count("A") == rounds.count("B") == pairs_wanted
