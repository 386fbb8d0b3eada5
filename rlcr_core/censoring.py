"""Estimates that may lie beyond what was observed, such as the time to a score that was not reached before the limit.

Beyond is infinity while resamples are drawn and sorted, and None in what is reported, as in statistics.crossing_time: an
infinitely late resample is never dropped, so a bound is None exactly where that many resamples went beyond.
Suffixes: _R resamples, _K tasks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rlcr_core.statistics import percentile_bounds
from rlcr_core.types import Float64Array


@dataclass(frozen=True, slots=True)
class Censored:
    """A value with its bounds, None where they lie beyond. `share`: of the resamples whose value does not."""

    value: float | None
    low: float | None
    high: float | None
    share: float


def finite(value: float) -> float | None:
    """The same value, None where it is infinite."""
    return float(value) if np.isfinite(value) else None


def censored(value: float, samples_R: Float64Array, confidence: float) -> Censored:
    """The estimate with its percentile interval; infinite resamples take part."""
    low, high = percentile_bounds(samples_R, confidence)
    return Censored(finite(value), finite(low), finite(high), float(np.isfinite(samples_R).mean()))


def mean_with_infinity(weights_RK: Float64Array, values_K: Float64Array) -> Float64Array:
    """[R] weighted means of values that may be positively infinite; an infinite value of weight 0 takes no part."""
    is_infinite = np.isinf(values_K)
    means_R = weights_RK @ np.where(is_infinite, 0.0, values_K) / weights_RK.sum(axis=1)
    found: Float64Array = np.where(weights_RK @ is_infinite > 0, np.inf, means_R)
    return found
