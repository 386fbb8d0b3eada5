"""Ratios of means against cases derived by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.ratios import Ratio, ratio_of_means
from rlcr_core.statistics import Interval


def test_the_ratio_of_two_tasks_is_known_exactly() -> None:
    # Two draws from tasks (a, b) = (1, 1), (6, 2): sums (2, 2), (7, 3), (12, 4) with probability 1/4, 1/2, 1/4, so ratios
    # 1, 7/3, 3. The estimate is (7/2) / (3/2) = 7/3; the mean of the tasks' own ratios 1 and 3 would be 2.
    ratio = ratio_of_means([1.0, 6.0], [1.0, 2.0])
    assert ratio == Ratio(pytest.approx(7 / 3), 1.0, 3.0, Interval(1.5, 1.0, 2.0))
    assert ratio.is_bounded


def test_a_constant_ratio_has_no_width_however_much_the_tasks_differ() -> None:
    b = np.random.default_rng(0).uniform(1, 100, 20)
    ratio = ratio_of_means(2.5 * b, b)
    assert (ratio.value, ratio.low, ratio.high) == pytest.approx((2.5, 2.5, 2.5))


@pytest.mark.parametrize(("b", "value"), [([1.0, -1.0], None), ([0.0, 1.0], 4.0), ([0.0, -1.0], -4.0)])
def test_a_denominator_that_may_be_zero_bounds_nothing(b: list[float], value: float | None) -> None:
    # The interval of two values is their range: it touches 0 in all three. Mean of a: 2; means of b: 0, 1/2, -1/2.
    ratio = ratio_of_means([2.0, 2.0], b)
    assert (ratio.value, ratio.low, ratio.high) == (value, None, None)
    assert not ratio.is_bounded and ratio.denominator.low <= 0 <= ratio.denominator.high


def test_resamples_whose_denominator_changes_its_sign_are_infinite_and_not_negative() -> None:
    # Denominators -1, 3, 3, 3 (mean 2): a mean of 0 or less takes 3 or 4 draws of the first: 13/256 = 5.1 %. The
    # denominator's 80 % interval (10 % to each side) is above 0; the ratios' upper 5.1 % are infinite, so at 80 % the upper
    # bound is finite. All ratios to a = 1 lie at or above 1/3, none is negative.
    ratio = ratio_of_means(np.ones(4), [-1.0, 3, 3, 3], confidence=0.8, resamples=4000)
    # Two draws of the first (54/256 = 21 %): mean 1, ratio 1. No draw (81/256): ratio 1/3.
    assert (ratio.value, ratio.low, ratio.high) == (0.5, pytest.approx(1 / 3), 1.0)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.floats(-5, 5), st.floats(1, 9)), min_size=2, max_size=12), st.floats(0.125, 8))
def test_units_cancel_or_scale(pairs: list[tuple[float, float]], unit: float) -> None:
    a, b = np.asarray(pairs).T
    plain = ratio_of_means(a, b, resamples=100)
    scaled, both = ratio_of_means(a * unit, b, resamples=100), ratio_of_means(a * unit, b * unit, resamples=100)
    assert (both.value, both.low, both.high) == pytest.approx((plain.value, plain.low, plain.high))
    assert plain.value is not None and plain.low is not None and plain.high is not None
    assert (scaled.value, scaled.low, scaled.high) == pytest.approx((plain.value * unit, plain.low * unit, plain.high * unit))
    assert ratio_of_means(a[::-1], b[::-1], resamples=100).value == pytest.approx(plain.value)


def test_arrays_of_different_tasks_are_refused() -> None:
    with pytest.raises(DataError, match="same tasks"):
        ratio_of_means([1.0, 2.0], [1.0, 2.0, 3.0])
