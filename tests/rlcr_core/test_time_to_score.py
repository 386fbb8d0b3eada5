"""Times to a score and their ratios on curves small enough to resample by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.censoring import Censored, mean_with_infinity
from rlcr_core.errors import DataError
from rlcr_core.time_to_score import TimeRatio, time_ratios, time_to_score

GRID = np.array([0.0, 10.0, 20.0, 30.0])


def test_the_time_is_the_first_at_which_the_mean_has_the_score() -> None:
    # Mean curve: 0 1 2 3. A score between two grid times takes the later one, a score on a grid time takes that.
    curves = np.array([[0.0, 2, 2, 2], [0, 0, 2, 4]])
    assert [time_to_score(curves, GRID, score).value for score in (-1, 0.5, 1, 1.5, 3, 3.01)] == [0, 10, 10, 20, 30, None]


def test_a_mean_that_misses_the_score_by_rounding_has_reached_it() -> None:
    curves = np.full((3, 1), 0.1) * 3  # 0.30000000000000004, whose resampled means may come out as 0.3 or below
    assert time_to_score(curves - 1e-16, GRID[:1], 0.3) == Censored(0.0, 0.0, 0.0, 1.0)


def test_a_curve_that_falls_again_has_reached_the_score_before() -> None:
    assert time_to_score([[0.0, 3, 1, 1]] * 2, GRID, 2.0).value == 10.0


def test_resamples_that_never_reach_the_score_are_infinitely_late() -> None:
    # Score 2. Task 1 has it at 10 s, task 2 never (0 0 0 1), their mean 0 2 2 2.5 at 10 s. Two draws: both task 1 (1/4)
    # and one each (1/2) give 10 s, both task 2 (1/4) never.
    curves = np.array([[0.0, 4, 4, 4], [0, 0, 0, 1]])
    found = time_to_score(curves, GRID, 2.0, resamples=4000)
    assert (found.value, found.low, found.high) == (10.0, 10.0, None)
    assert found.share == pytest.approx(0.75, abs=0.03)  # standard error 0.007


def test_the_ratio_of_times_at_each_score() -> None:
    # a rises by 1 every 10 s to 3, b by 1 every 20 s and is watched until 80 s: twice as long at 1, 2 and 3. Score 4 is
    # reached by b alone, at 80 s; a would need more than its 30 s: at most 80/30. Nobody reaches 5.
    a = np.array([[0.0, 1, 2, 3]] * 2)
    grid_b = np.arange(0.0, 81, 20)
    b = np.array([[0.0, 1, 2, 3, 4]] * 2)
    one, three, four, five = time_ratios(a, GRID, b, grid_b, [1, 3, 4, 5])
    assert one == TimeRatio(1.0, 10.0, 20.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0)
    assert three == TimeRatio(3.0, 30.0, 60.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.0, 1.0)
    assert four == TimeRatio(4.0, None, 80.0, None, 0.0, pytest.approx(80 / 30), 0.0, pytest.approx(80 / 30), 0.0, 1.0)
    assert five == TimeRatio(5.0, None, None, None, 0.0, None, 0.0, None, 0.0, 0.0)
    # The other way round b reaches 4 and a does not within 30 s: at least 30/80 as long.
    (reverse,) = time_ratios(b, grid_b, a, GRID, [4])
    assert (reverse.value, reverse.at_least, reverse.at_most, reverse.low, reverse.high) == (None, 30 / 80, None, 30 / 80, None)


def test_a_score_that_is_there_from_the_start_has_no_ratio() -> None:
    (ratio,) = time_ratios([[1.0, 2]] * 2, [0, 5], [[0.0, 2]] * 2, [0, 5], [1.0])
    assert (ratio.time_a_s, ratio.value, ratio.low, ratio.high) == (0.0, None, 0.0, None)


def test_the_band_draws_a_task_with_both_its_curves() -> None:
    # Score 1. Task 1: a at 10 s, b at 30 s; task 2: a at 10 s, b not within 30 s (0). Mean of b: 0 0 0 1: at 30 s.
    # Both draws task 2 (1/4): at least 30/10. So every resample's smallest ratio is 3; the largest is infinite in 1/4.
    a = np.array([[0.0, 2, 2, 2], [0, 2, 2, 2]])
    b = np.array([[0.0, 0, 0, 2], [0, 0, 0, 0]])
    (ratio,) = time_ratios(a, GRID, b, GRID, [1.0], resamples=4000)
    assert (ratio.value, ratio.low, ratio.high, ratio.share_a) == (3.0, 3.0, None, 1.0)
    assert ratio.share_b == pytest.approx(0.75, abs=0.03)
    (narrow,) = time_ratios(a, GRID, b, GRID, [1.0], resamples=4000, confidence=0.4)  # percentiles 30 and 70
    assert (narrow.low, narrow.high) == (3.0, 3.0)


def test_shares_of_its_own_return_are_always_reached_by_the_first() -> None:
    # a's returns at 30 s are 3 and 1.5 (mean 2.25), b's curves are a's, twice as slow: whatever the resample, half its own
    # final return takes a between 10 s and 20 s and b twice that. At the fixed score 2.25, 1/4 of the resamples (1.5) fail.
    a = np.array([[0.0, 1, 2, 3], [0, 0.5, 1, 1.5]])
    half, whole = time_ratios(a, GRID, a, GRID * 2, [0.5, 1.0], of_own_return=True)
    assert (half.score, half.value, half.low, half.high, half.share_a) == (1.125, 2.0, 2.0, 2.0, 1.0)
    assert (whole.score, whole.value, whole.low, whole.high, whole.share_a) == (2.25, 2.0, 2.0, 2.0, 1.0)
    (fixed,) = time_ratios(a, GRID, a, GRID * 2, [2.25], resamples=4000)
    assert (fixed.value, fixed.low, fixed.high) == (2.0, 0.0, None)
    assert fixed.share_a == pytest.approx(0.75, abs=0.03)


def test_a_mean_over_infinite_values_is_infinite_only_where_they_are_drawn() -> None:
    weights = np.array([[2.0, 0.0, 1.0], [0.0, 1.0, 2.0]])
    assert mean_with_infinity(weights, np.array([3.0, np.inf, 6.0])).tolist() == [4.0, np.inf]


steps = st.lists(st.lists(st.floats(0, 1), min_size=6, max_size=6), min_size=3, max_size=8)


@settings(max_examples=30, deadline=None)
@given(steps, st.floats(0.25, 4), st.floats(0.1, 3))
def test_scaling_time_scales_times_and_permuting_tasks_changes_no_estimate(
    rows: list[list[float]], unit: float, score: float
) -> None:
    curves, grid = np.cumsum(np.asarray(rows), axis=1), np.arange(1.0, 7.0)
    options = {"resamples": 60}
    plain, scaled = time_to_score(curves, grid, score, **options), time_to_score(curves, grid * unit, score, **options)
    for before, after in ((plain.value, scaled.value), (plain.low, scaled.low), (plain.high, scaled.high)):
        assert after == (None if before is None else before * unit)
    assert scaled.share == plain.share
    assert time_to_score(curves[::-1], grid, score, **options).value == plain.value
    (same,) = time_ratios(curves, grid, curves, grid * unit, [score], **options)
    if same.value is not None:
        assert same.value == pytest.approx(unit)
    (turned,) = time_ratios(curves[::-1], grid, curves[::-1], grid * unit, [score], **options)
    assert (turned.value, turned.at_least, turned.at_most) == (same.value, same.at_least, same.at_most)
    assert same.high is None or same.low <= same.high


def test_curves_of_other_tasks_or_grids_are_refused() -> None:
    curves = np.zeros((2, 4))
    with pytest.raises(DataError, match="same tasks, got 2 and 3"):
        time_ratios(curves, GRID, np.zeros((3, 4)), GRID, [1.0])
    with pytest.raises(DataError, match="strictly rising"):
        time_to_score(curves, GRID[::-1], 1.0)
