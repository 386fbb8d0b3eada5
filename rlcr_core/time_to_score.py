"""When a mean return curve first reaches a score, and how many times as long another organisation needs for it.

Estimate: the first grid time at which the mean curve over tasks is at least the score (the curve of the mean, not the
mean of the tasks' times: a task that never gets there would make the latter infinite). The resolution is the grid's, and
a grid should end at the limit, since nothing is observed after it. Intervals: tasks are resampled, with both curves of a
comparison. A score that is not reached counts as infinitely late (rlcr_core/censoring.py).

Time ratio at equal score: time of b / time of a. Where only one of them reaches the score, the ratio is known from one
side: at least (end of b's grid) / (time of a), or at most (time of b) / (end of a's grid). The lower bound of the interval
is taken from the resamples' smallest possible ratios and the upper bound from their largest, so that it covers whatever
a longer limit would have shown. Suffixes: _K tasks, _R resamples, _T and _U grid times, _S scores.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlcr_core.censoring import Censored, censored, finite
from rlcr_core.errors import DataError
from rlcr_core.statistics import checked, checked_grid, percentile_bounds, resampled_counts
from rlcr_core.types import Float64Array

ROUNDING = 1e-9  # a mean this far below the score has reached it


@dataclass(frozen=True, slots=True)
class TimeRatio:
    """b's time over a's at one score. `value` is None unless both reach it; `at_least` and `at_most` are then what is known.

    `low` and `high` bound the ratio in the same way: 0 and None where nothing bounds it. `share_a`, `share_b`: of the
    resamples in which each reaches the score.
    """

    score: float
    time_a_s: float | None
    time_b_s: float | None
    value: float | None
    at_least: float
    at_most: float | None
    low: float
    high: float | None
    share_a: float
    share_b: float


def reaching_times(curves_RT: Float64Array, grid_s: Float64Array, score_R: Float64Array) -> Float64Array:
    """[R] first grid time at which each curve is at least its score; infinity where it never is."""
    reached_RT = curves_RT >= score_R[:, None] - ROUNDING
    found: Float64Array = np.where(reached_RT.any(axis=1), grid_s[reached_RT.argmax(axis=1)], np.inf)
    return found


def time_to_score(
    curves_KT: ArrayLike,
    grid_s: ArrayLike,
    score: float,
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Censored:
    """Seconds until the mean of [K, T] curves is at least `score`, with its interval; None where it is not by the grid's end.

    Raises DataError for K < 2, non-finite values or a grid that does not fit.
    """
    curves = checked(curves_KT, "curves_KT", 2)
    grid = checked_grid(grid_s, curves.shape[1])
    means_RT = resampled_counts(len(curves), resamples, seed) @ curves / len(curves)
    samples_R = reaching_times(means_RT, grid, np.full(resamples, score))
    value = reaching_times(curves.mean(axis=0)[None], grid, np.asarray([score]))[0]
    return censored(value, samples_R, confidence)


def ratio_range(
    time_a_R: Float64Array, time_b_R: Float64Array, end_a_s: float, end_b_s: float
) -> tuple[Float64Array, Float64Array]:
    """Smallest and largest possible b / a of times that are infinite where the observed time, until the ends, is too short.

    A score that is reached at 0 s says nothing about speed: its ratio may be anything.
    """
    has_a, has_b = np.isfinite(time_a_R) & (time_a_R > 0), np.isfinite(time_b_R)
    smallest = np.where(has_a, np.minimum(time_b_R, end_b_s) / np.where(has_a, time_a_R, 1.0), 0.0)
    longest_a = np.where(np.isinf(time_a_R), end_a_s, time_a_R)
    is_bounded = has_b & (longest_a > 0)
    largest = np.where(is_bounded, np.where(is_bounded, time_b_R, 0.0) / np.where(is_bounded, longest_a, 1.0), np.inf)
    return smallest, largest


def time_ratio_from(
    score: float,
    times: tuple[float, float],
    samples: tuple[Float64Array, Float64Array],
    ends_s: tuple[float, float],
    confidence: float,
) -> TimeRatio:
    """The ratio b / a of times to `score`, from the estimates and resamples (a, b) of the times; infinite where never."""
    smallest, largest = ratio_range(np.asarray([times[0]]), np.asarray([times[1]]), *ends_s)
    smallest_R, largest_R = ratio_range(*samples, *ends_s)
    is_known = np.isfinite(times).all() and times[0] > 0
    low, high = percentile_bounds(smallest_R, confidence)[0], percentile_bounds(largest_R, confidence)[1]
    share_a, share_b = (float(np.isfinite(sample_R).mean()) for sample_R in samples)
    return TimeRatio(
        float(score), finite(times[0]), finite(times[1]), float(smallest[0]) if is_known else None,
        float(smallest[0]), finite(largest[0]), low, finite(high), share_a, share_b,
    )  # fmt: skip


def time_ratios(
    curves_a_KT: ArrayLike,
    grid_a_s: ArrayLike,
    curves_b_KU: ArrayLike,
    grid_b_s: ArrayLike,
    scores_S: Sequence[float],
    *,
    of_own_return: bool = False,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> tuple[TimeRatio, ...]:
    """How many times as long as `a` the organisation `b` needs for each score: a TimeRatio a score, the band point by point.

    Row k of both arrays is the same task; the grids may differ, as b may have had a longer limit. A fixed score near a's
    return at its limit is missed by many resamples of a, and then bounded by nothing below; with `of_own_return` the scores
    are shares of that return, of each resample's own, which a always reaches. Raises DataError.
    """
    a, b = checked(curves_a_KT, "curves_a_KT", 2), checked(curves_b_KU, "curves_b_KU", 2)
    if len(a) != len(b):
        raise DataError(f"Paired curves need the same tasks, got {len(a)} and {len(b)}; evaluate both on the same tasks.")
    grids = checked_grid(grid_a_s, a.shape[1]), checked_grid(grid_b_s, b.shape[1])
    counts_RK = resampled_counts(len(a), resamples, seed)
    means = tuple(counts_RK @ curves / len(a) for curves in (a, b))
    points = tuple(curves.mean(axis=0)[None] for curves in (a, b))
    ends_s = float(grids[0][-1]), float(grids[1][-1])
    found = []
    for score in scores_S:
        asked_1, asked_R = (_scores(score, of_own_return, both[0]) for both in (points, means))
        times = tuple(float(reaching_times(points[i], grids[i], asked_1)[0]) for i in (0, 1))
        samples = tuple(reaching_times(means[i], grids[i], asked_R) for i in (0, 1))
        found.append(time_ratio_from(float(asked_1[0]), (times[0], times[1]), (samples[0], samples[1]), ends_s, confidence))
    return tuple(found)


def _scores(score: float, of_own_return: bool, curves_a_RT: Float64Array) -> Float64Array:
    """[R] the score asked for of each mean curve."""
    found: Float64Array = score * (curves_a_RT[:, -1] if of_own_return else np.ones(len(curves_a_RT)))
    return found
