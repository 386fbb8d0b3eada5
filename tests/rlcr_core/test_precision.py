"""Planning of tasks against values of Student's t from printed tables, and against the bootstrap."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.precision import expanded_confidence, half_width, tasks_needed
from rlcr_core.statistics import paired_difference

PILOT = [-1.0, 1.0] * 8  # standard deviation sqrt(16 / 15)


def test_the_half_width_of_a_plan_by_hand() -> None:
    # t(0.975, 15) = 2.131, t(0.975, 3) = 3.182 in the tables.
    assert half_width(PILOT, 16) == pytest.approx(2.1314 * math.sqrt(16 / 15) / 4, abs=1e-4)
    assert half_width(PILOT, 4) == pytest.approx(3.1824 * math.sqrt(16 / 15) / 2, abs=1e-4)


def test_the_number_of_tasks_by_hand() -> None:
    # s = 2, wanted 1: the normal answer is (1.96 * 2)^2 = 15.4; with t: 17 tasks give 2.120 * 2 / sqrt(17) = 1.028, 18 give
    # 2.110 * 2 / sqrt(18) = 0.995.
    pilot = 2 / math.sqrt(16 / 15) * np.asarray(PILOT)
    assert tasks_needed(pilot, 1.0) == 18
    assert half_width(pilot, 17) > 1.0 >= half_width(pilot, 18)


def test_an_assured_plan_takes_the_spread_that_the_pilot_may_have_hidden() -> None:
    # chi2 with 15 degrees is above 10.307 with probability 0.8: the spread grows by sqrt(15 / 10.307) = 1.2064.
    assert half_width(PILOT, 16, assurance=0.8) == pytest.approx(1.2064 * half_width(PILOT, 16), rel=1e-4)
    assert tasks_needed(PILOT, 0.2, assurance=0.8) > tasks_needed(PILOT, 0.2)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=2, max_size=20), st.floats(0.05, 5), st.sampled_from([None, 0.5, 0.9]))
def test_planning_is_the_inverse_of_predicting(pilot: list[float], wanted: float, assurance: float | None) -> None:
    if np.std(pilot) < 1e-3:
        return
    tasks = tasks_needed(pilot, wanted, assurance=assurance)
    assert half_width(pilot, tasks, assurance=assurance) <= wanted
    assert tasks == 2 or half_width(pilot, tasks - 1, assurance=assurance) > wanted
    assert tasks_needed(np.multiply(pilot[::-1], 4), 4 * wanted, assurance=assurance) == tasks  # unit and order do not matter


def test_the_bootstrap_of_the_planned_tasks_has_about_the_planned_width() -> None:
    # 64 tasks: the percentile interval is narrower than Student's by about sqrt(63 / 64) * 1.960 / 1.998 = 0.973; the sample's
    # own spread is what the pilot's is, as the pilot is that sample. Monte Carlo: 2 % at 4,000 resamples.
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.6, 0.1, 64), rng.normal(0.5, 0.1, 64)
    interval = paired_difference(a, b, resamples=4000)
    assert (interval.high - interval.low) / 2 == pytest.approx(0.973 * half_width(a - b, 64), rel=0.04)
    wide = paired_difference(a, b, resamples=4000, confidence=expanded_confidence(0.95, 64))
    assert (wide.high - wide.low) / 2 == pytest.approx(half_width(a - b, 64), rel=0.04)


def test_the_expanded_confidence_by_hand() -> None:
    # 16 tasks: sqrt(16 / 15) * 2.1314 = 2.2013 standard errors, beyond which the normal has 2 * 0.01386 of its mass.
    assert expanded_confidence(0.95, 16) == pytest.approx(1 - 2 * 0.01386, abs=2e-5)
    assert expanded_confidence(0.95, 10**6) == pytest.approx(0.95, abs=1e-5)


def test_plans_that_mean_nothing_are_refused() -> None:
    for call, match in (
        (lambda: tasks_needed([1.0, 1.0], 0.1), "pilot with spread"),
        (lambda: tasks_needed(PILOT, 0.0), "half width above 0"),
        (lambda: tasks_needed(PILOT, 1e-5), "want less"),
        (lambda: half_width(PILOT, 1), "2 or more tasks"),
        (lambda: half_width(PILOT, 9, assurance=1.0), "assurance is a probability"),
        (lambda: half_width(PILOT, 9, confidence=95.0), r"confidence in \(0, 1\)"),
        (lambda: expanded_confidence(0.95, 1), "2 or more tasks"),
        (lambda: half_width([0.0], 9), "raise task_set.test"),
    ):
        with pytest.raises(DataError, match=match):
            call()
