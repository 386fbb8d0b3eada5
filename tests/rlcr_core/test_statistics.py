"""Bootstrap statistics against cases whose answer is known by hand, and the interval's coverage by simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.statistics import (
    Crossing,
    Interval,
    bootstrap_mean,
    clustered,
    crossing_time,
    paired_difference,
)

GRID = np.array([0.0, 10.0, 20.0, 30.0])


def test_the_interval_of_two_values_is_known_exactly() -> None:
    # Two draws from {0, 1}: the mean is 0, 1/2, 1 with probability 1/4, 1/2, 1/4. Percentiles 2.5 and 97.5 lie in the
    # outer quarters, percentiles 30 and 70 in the middle half.
    assert bootstrap_mean([0.0, 1.0], resamples=4000) == Interval(0.5, 0.0, 1.0)
    assert bootstrap_mean([0.0, 1.0], resamples=4000, confidence=0.4) == Interval(0.5, 0.5, 0.5)


def test_equal_values_have_an_interval_of_no_width() -> None:
    interval = bootstrap_mean([0.25] * 8)
    assert interval == Interval(0.25, 0.25, 0.25)
    assert interval.excludes_zero


def test_the_width_is_that_of_the_normal_approximation_for_many_values() -> None:
    # 200 zeros and 200 ones: standard error 0.5 / sqrt(400) = 0.025, so 0.5 +- 1.96 * 0.025 = 0.451, 0.549.
    interval = bootstrap_mean([0.0, 1.0] * 200, resamples=4000)
    assert interval.mean == 0.5
    assert interval.low == pytest.approx(0.451, abs=0.004)
    assert interval.high == pytest.approx(0.549, abs=0.004)


def test_the_interval_covers_the_true_mean_about_as_often_as_it_says() -> None:
    # 600 experiments of 40 normal values with true mean 3. Percentile intervals at K = 40 cover about 94%; the standard
    # error of the share is sqrt(.94 * .06 / 600) = 0.01, so 0.91 to 0.97 is three of them.
    samples = np.random.default_rng(1).normal(3.0, 2.0, size=(600, 40))
    intervals = [bootstrap_mean(row, resamples=400, seed=i) for i, row in enumerate(samples)]
    assert 0.91 <= np.mean([interval.low <= 3.0 <= interval.high for interval in intervals]) <= 0.97


def test_the_seed_decides_the_interval() -> None:
    values = np.random.default_rng(0).normal(size=20)
    assert bootstrap_mean(values, seed=3) == bootstrap_mean(values, seed=3)
    assert bootstrap_mean(values, seed=3) != bootstrap_mean(values, seed=4)


@given(st.lists(st.floats(-10, 10), min_size=2, max_size=12), st.integers(0, 5))
def test_bounds_lie_around_the_mean_and_inside_the_range(values: list[float], seed: int) -> None:
    interval = bootstrap_mean(values, resamples=200, seed=seed)
    assert min(values) - 1e-9 <= interval.low <= interval.high <= max(values) + 1e-9
    negated = bootstrap_mean([-value for value in values], resamples=200, seed=seed)
    assert (negated.low, negated.high) == pytest.approx((-interval.high, -interval.low))


def test_pairing_removes_what_tasks_have_in_common() -> None:
    # Tasks differ by up to 9, the difference is 0.1 in every one: the paired interval has no width, and with the
    # second half of the tasks at 0.3 the mean is (0.1 + 0.3) / 2 = 0.2.
    base = np.arange(10.0)
    assert paired_difference(base + 0.125, base) == Interval(0.125, 0.125, 0.125)
    interval = paired_difference(base + np.repeat([0.1, 0.3], 5), base)
    assert interval.mean == pytest.approx(0.2)
    assert interval.excludes_zero
    assert not bootstrap_mean(base - 4.5).excludes_zero


def test_rollouts_of_a_task_are_averaged_before_tasks_are_resampled() -> None:
    # Task a has three rollouts (mean 2), task b one (6): the mean over tasks is 4, over rollouts it would be 3.
    tasks, values = clustered([1.0, 6.0, 2.0, 3.0], ["a", "b", "a", "a"])
    assert tasks == ("a", "b")
    assert values.tolist() == [2.0, 6.0]
    assert bootstrap_mean(values).mean == 4.0
    assert clustered([[0.0, 2.0], [4.0, 4.0]], ["z", "z"])[1].tolist() == [[2.0, 3.0]]
    with pytest.raises(DataError, match="got 2 rollouts and 1 tasks"):
        clustered([1.0, 2.0], ["a"])


def test_the_crossing_is_where_the_lead_begins_that_lasts() -> None:
    # Means of a: 0 2 1 4, of b: 0 1 2 3 (two equal tasks each). a leads at 10 s, no longer at 20 s, again at 30 s.
    a, b = np.array([[0.0, 2, 1, 4]] * 2), np.array([[0.0, 1, 2, 3]] * 2)
    assert crossing_time(a, b, GRID) == Crossing(30.0, 30.0, 30.0, 1.0)
    a[:, 2] = 2.5  # now a leads from 10 s on; equal returns at 0 s are no lead
    assert crossing_time(a, b, GRID) == Crossing(10.0, 10.0, 10.0, 1.0)


def test_a_curve_that_never_stays_above_has_no_crossing() -> None:
    a, b = np.array([[0.0, 2, 1, 3]] * 2), np.array([[0.0, 1, 2, 3]] * 2)
    assert crossing_time(a, b, GRID) == Crossing(None, None, None, 0.0)  # equal at the end
    assert crossing_time(a, a, GRID) == Crossing(None, None, None, 0.0)


def test_a_curve_that_leads_throughout_crosses_at_the_first_time() -> None:
    b = np.array([[0.0, 1, 2, 3]] * 2)
    assert crossing_time(b + 1, b, GRID) == Crossing(0.0, 0.0, 0.0, 1.0)


def test_the_interval_of_a_crossing_comes_from_the_tasks() -> None:
    # Task 1: a - b = -1 1 1 1 (crosses at 10 s); task 2: -1 -2 -2 3 (at 30 s). Mean -1 -.5 -.5 2: crosses at 30 s.
    # Two draws: both task 1 (1/4) gives 10 s; both task 2 (1/4) or one each (1/2) gives 30 s. All cross.
    a = np.array([[-1.0, 1, 1, 1], [-1, -2, -2, 3]])
    assert crossing_time(a, np.zeros((2, 4)), GRID) == Crossing(30.0, 10.0, 30.0, 1.0)


def test_resamples_that_never_cross_count_as_infinitely_late() -> None:
    # Task 1 crosses at 10 s, task 2 never; the mean -1 .5 .5 .5 crosses at 10 s. Both draws task 2 (1/4): never.
    a = np.array([[-1.0, 2, 2, 2], [-1, -1, -1, -1]])
    crossing = crossing_time(a, np.zeros((2, 4)), GRID, resamples=4000)
    assert (crossing.time_s, crossing.low_s, crossing.high_s) == (10.0, 10.0, None)
    assert crossing.share == pytest.approx(0.75, abs=0.03)  # standard error sqrt(.75 * .25 / 4000) = 0.007


@pytest.mark.parametrize(
    ("values", "match"),
    [
        ([], "shape"),
        ([1.0], "raise task_set.test"),
        ([[1.0, 2.0]], "shape"),
        ([1.0, float("nan")], "not finite for 1 of 2"),
    ],
)
def test_values_that_allow_no_interval_are_refused(values: list[float], match: str) -> None:
    with pytest.raises(DataError, match=match):
        bootstrap_mean(values)


def test_arrays_of_different_tasks_or_grids_are_refused() -> None:
    with pytest.raises(DataError, match=r"equal shapes, got \(2,\) and \(3,\)"):
        paired_difference([1.0, 2.0], [1.0, 2.0, 3.0])
    curves = np.zeros((2, 4))
    for grid in (GRID[:3], GRID[::-1]):
        with pytest.raises(DataError, match="strictly rising"):
            crossing_time(curves, curves, grid)
