"""The ratio of two means over the same tasks, such as tokens per return of one organisation over another's.

Estimate: mean(a) / mean(b), not the mean of the tasks' ratios, which one small denominator can make anything.
Interval: seeded percentile bootstrap in which a task is drawn with both its values. Assumption: the denominator's mean
is away from zero. Where its own interval touches zero, the set of ratios that the data allow is unbounded (Fieller,
1954), so the bounds are None; `denominator` shows why. Suffixes: _K tasks, _R resamples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlcr_core.censoring import finite
from rlcr_core.statistics import Interval, check_same_shape, checked, percentile_bounds, resampled_counts
from rlcr_core.types import Float64Array


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio with its bounds. `value` is None where the denominator's mean is 0, the bounds where it may be."""

    value: float | None
    low: float | None
    high: float | None
    denominator: Interval

    @property
    def is_bounded(self) -> bool:
        return self.low is not None and self.high is not None


def _quotients(a_R: Float64Array, b_R: Float64Array, sign: float) -> Float64Array:
    """a / b; a denominator at or past zero, seen from the side of the estimate, counts as infinitely small."""
    is_sound = b_R * sign > 0
    infinite_R = np.where(a_R == 0, 0.0, np.copysign(np.inf, a_R * sign))
    found: Float64Array = np.where(is_sound, a_R / np.where(is_sound, b_R, 1.0), infinite_R)
    return found


def ratio_of_means(a: ArrayLike, b: ArrayLike, *, resamples: int = 2000, confidence: float = 0.95, seed: int = 0) -> Ratio:
    """mean(a) / mean(b) of two [K] arrays with its interval; entry k of both belongs to the same task.

    Raises DataError for K < 2, non-finite values or unequal lengths.
    """
    a_K, b_K = checked(a, "a", 1), checked(b, "b", 1)
    check_same_shape(a_K, b_K)
    counts_RK = resampled_counts(len(a_K), resamples, seed)
    a_R, b_R = counts_RK @ a_K / len(a_K), counts_RK @ b_K / len(b_K)
    mean = float(b_K.mean())
    denominator = Interval(mean, *percentile_bounds(b_R, confidence))
    value = float(a_K.mean()) / mean if mean else None
    if not denominator.excludes_zero:
        return Ratio(value, None, None, denominator)
    low, high = percentile_bounds(_quotients(a_R, b_R, np.sign(mean)), confidence)
    return Ratio(value, finite(low), finite(high), denominator)
