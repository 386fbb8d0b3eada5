"""Intervals over seeds and tasks: variances and quantiles computed by hand, resamples counted."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.across_seeds import crossed_interval, hierarchical_interval, mean_interval, seed_interval
from rlcr_core.errors import DataError
from rlcr_core.statistics import Interval


def reach(interval: Interval) -> float:
    assert interval.high - interval.mean == pytest.approx(interval.mean - interval.low)
    return (interval.high - interval.low) / 2


def test_five_seeds_have_students_interval() -> None:
    # Seed means 1 2 3 4 5 whatever the tasks: mean 3, standard deviation sqrt(2.5), t(0.975, 4) = 2.7764.
    table = np.arange(1.0, 6)[:, None] + [-0.5, 0.0, 0.5]
    interval = seed_interval(table)
    assert interval.mean == 3.0
    assert reach(interval) == pytest.approx(2.7764 * math.sqrt(2.5 / 5), abs=1e-4)
    assert mean_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == interval  # one figure a seed has the same
    with pytest.raises(DataError, match="2 or more seeds"):
        mean_interval([1.0])


def test_seeds_and_tasks_without_interaction_add_their_variances() -> None:
    # 3 seeds 0 1 2 and 4 tasks 0 1 2 3 that add up: MS of seeds 4 * 2 / 2 = 4, of tasks 3 * 5 / 3 = 5, rest 0. Variance of
    # the mean (4 + 5) / 12 = 0.75 (= 1/3 + 5/12, the means' own); degrees 81 / (16 / 2 + 25 / 3) = 4.959. t(0.975, 5) = 2.571,
    # t(0.975, 4) = 2.776; at 4.959 between them.
    table = np.arange(3.0)[:, None] + np.arange(4.0)
    interval = crossed_interval(table)
    assert interval.mean == 2.5
    assert 2.571 < reach(interval) / math.sqrt(0.75) < 2.60


def test_a_part_without_variance_leaves_the_others_interval() -> None:
    # Tasks all alike: what is left is Student's interval over seeds; and the other way round it is that over tasks.
    table = np.repeat(np.arange(1.0, 6)[:, None], 4, axis=1)
    for one, other in ((crossed_interval(table), seed_interval(table)), (crossed_interval(table.T), seed_interval(table))):
        assert (one.mean, one.low, one.high) == pytest.approx((other.mean, other.low, other.high))
    assert crossed_interval(np.ones((3, 4))) == Interval(1.0, 1.0, 1.0)
    # Only interaction: +-1 in a 2 x 2 table, MS of seeds and tasks 0, rest 4 with 1 degree: sqrt(4 / 4) * 12.706.
    assert reach(crossed_interval([[1.0, -1.0], [-1.0, 1.0]])) == pytest.approx(12.706, abs=1e-3)


def test_the_hierarchical_bootstrap_of_a_small_table_by_counting() -> None:
    # Seeds 0 and 1 with all tasks alike: means 0, 1/2, 1 with probability 1/4, 1/2, 1/4, whatever tasks are drawn.
    by_seed = [[0.0, 0.0], [1.0, 1.0]]
    for same in (True, False):
        assert hierarchical_interval(by_seed, same_tasks=same) == Interval(0.5, 0.0, 1.0)
        assert hierarchical_interval(by_seed, same_tasks=same, confidence=0.4) == Interval(0.5, 0.5, 0.5)
    # Tasks 0 and 1 with all seeds alike. The same draw for both seeds: 0 or 1 with probability 1/4 each. A draw for each
    # seed: 4 of 4 equal needs 1/16 each, so percentiles 10 and 90 are 1/4 and 3/4 (probability 4/16 each).
    by_task = [[0.0, 1.0], [0.0, 1.0]]
    assert hierarchical_interval(by_task, confidence=0.8) == Interval(0.5, 0.0, 1.0)
    assert hierarchical_interval(by_task, same_tasks=False, confidence=0.8) == Interval(0.5, 0.25, 0.75)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(2, 6), st.integers(0, 10**6), st.floats(0.1, 10))
def test_units_scale_and_order_does_not_matter(seeds: int, tasks: int, key: int, unit: float) -> None:
    rng = np.random.default_rng(key)
    table = rng.normal(size=(seeds, tasks))
    mixed = table[rng.permutation(seeds)][:, rng.permutation(tasks)]
    for make in (seed_interval, crossed_interval):
        plain, scaled, other = make(table), make(table * unit), make(mixed)
        assert (scaled.low, scaled.high) == pytest.approx((plain.low * unit, plain.high * unit), abs=1e-9)
        assert (other.mean, other.low, other.high) == pytest.approx((plain.mean, plain.low, plain.high), abs=1e-9)
    assert reach(crossed_interval(table.T)) == pytest.approx(reach(crossed_interval(table)))  # the parts are treated alike
    assert hierarchical_interval(mixed, resamples=20).mean == pytest.approx(table.mean())


@pytest.mark.parametrize("values", [[[1.0, 2.0]], [[1.0], [2.0]], [1.0, 2.0], [[1.0, float("nan")], [1.0, 2.0]]])
def test_tables_that_allow_no_interval_are_refused(values: list[object]) -> None:
    for make in (seed_interval, crossed_interval, hierarchical_interval):
        with pytest.raises(DataError, match="train more seeds"):
            make(values)  # type: ignore[operator]
