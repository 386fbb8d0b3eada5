"""How throughput grows with the size of a team: fits of the universal scalability law and of Amdahl's.

Universal scalability law (Gunther, A General Theory of Computational Scalability, 2008):
    X(n) = rate n / (1 + sigma (n - 1) + kappa n (n - 1)),
`sigma` contention (what has to queue), `kappa` coherence (what every pair of agents exchanges); for kappa > 0 it peaks
at n = sqrt((1 - sigma) / kappa). Amdahl (1967), scaled by the throughput of one agent: X(n) = rate / ((1 - p) + p / n), `p`
the parallel share; it is the case kappa = 0, sigma = 1 - p. Both are least squares of X with non-negative parameters
(p in [0, 1]) on the mean throughput of each size, weighted by how many clusters have that size.

Intervals: clusters (tasks) are resampled with all their sizes; clusters with different sets of sizes are strata, drawn
apart, so that no size is lost. A parameter on its boundary has an interval that begins there. Assumptions: one law holds
over all sizes; on projects that grow with the team, x is the throughput of the whole team. R^2 and AICc are those of the
curve through the sizes' means, so tasks do not pose as independent observations of a size; the lower AICc is the better
law, by as much as it differs, and `kappa` with a lower bound above 0 says the same through the tasks.
Suffixes: _N observations, _K clusters, _U team sizes, _R resamples.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from rlcr_core.censoring import Censored, censored
from rlcr_core.errors import DataError
from rlcr_core.statistics import Interval, percentile_bounds, resampled_counts
from rlcr_core.throughput_fit import AMDAHL_FACES, USL_FACES, fit_throughput, predicted
from rlcr_core.types import Float64Array

SIZES_MIN = 3  # as many as the larger law has parameters
KAPPA_ROUNDING = 1e-12  # a peak past a million agents is none
RELATIVE_ROUNDING = 1e-14  # of the sum of squares: residuals below are rounding


@dataclass(frozen=True, slots=True)
class UniversalFit:
    """The universal scalability law. `peak` is None where throughput still grows; `is_extrapolated`: past every size seen.

    `r2` is None without spread between sizes, `aicc` with too few sizes for its correction (5 or fewer).
    """

    rate: Interval
    sigma: Interval
    kappa: Interval
    peak: Censored
    is_extrapolated: bool
    r2: float | None
    aicc: float | None


@dataclass(frozen=True, slots=True)
class AmdahlFit:
    """Amdahl's law with its parallel share; `r2` and `aicc` as in UniversalFit (None for 4 sizes or fewer)."""

    rate: Interval
    parallel_share: Interval
    r2: float | None
    aicc: float | None


@dataclass(frozen=True, slots=True)
class Scalability:
    """Both fits of the same data, with the mean throughput of each size that they went through."""

    sizes: tuple[int, ...]
    means: tuple[float, ...]
    universal: UniversalFit
    amdahl: AmdahlFit


def usl(n: ArrayLike, rate: float, sigma: float, kappa: float) -> Float64Array:
    """Throughput of teams of n agents by the universal scalability law."""
    sizes = np.asarray(n, dtype=np.float64)
    return np.asarray(rate * sizes / (1 + sigma * (sizes - 1) + kappa * sizes * (sizes - 1)))


def amdahl(n: ArrayLike, p: float) -> Float64Array:
    """Speed-up of n agents when a share p of the work is parallel."""
    return np.asarray(1 / ((1 - p) + p / np.asarray(n, dtype=np.float64)))


def _cells(n_N: Float64Array, x_N: Float64Array, clusters: Sequence[Hashable]) -> tuple[Float64Array, Float64Array]:
    """(sizes [U], mean throughput of each cluster at each size [K, U], NaN where it was not run), clusters sorted by name."""
    sizes_U, column_N = np.unique(n_N, return_inverse=True)
    _, row_N = np.unique(np.asarray([str(cluster) for cluster in clusters]), return_inverse=True)
    shape = (int(row_N.max()) + 1, len(sizes_U))
    flat_N = row_N * shape[1] + column_N
    counts_KU = np.bincount(flat_N, minlength=shape[0] * shape[1]).reshape(shape)
    sums_KU = np.bincount(flat_N, weights=x_N, minlength=shape[0] * shape[1]).reshape(shape)
    return sizes_U, np.where(counts_KU > 0, sums_KU / np.maximum(counts_KU, 1), np.nan)


def _resampled_means(cells_KU: Float64Array, resamples: int, seed: int) -> Float64Array:
    """[1 + R, U] mean throughput of each size: first as observed, then with clusters drawn anew within each stratum."""
    has_KU = ~np.isnan(cells_KU)
    _, stratum_K = np.unique(has_KU, axis=0, return_inverse=True)
    weights_RK = np.ones((resamples + 1, len(cells_KU)))
    for stratum in range(int(stratum_K.max()) + 1):
        members = np.flatnonzero(stratum_K.ravel() == stratum)
        if len(members) < 2:
            raise DataError(
                "A cluster is the only one with its set of team sizes, expected 2 or more with each set: one has no spread to "
                "resample; run every size on the same tasks."
            )
        weights_RK[1:, members] = resampled_counts(len(members), resamples, seed + stratum)
    means_RU: Float64Array = weights_RK @ np.where(has_KU, cells_KU, 0.0) / has_KU.sum(axis=0)
    return means_RU


def _quality(
    means_U: Float64Array, fitted_U: Float64Array, weights_U: Float64Array, parameters: int
) -> tuple[float | None, float | None]:
    """(R^2, AICc) of a curve through the sizes' means; the error's variance is one more parameter (Hurvich and Tsai, 1989)."""
    shares_U = weights_U / weights_U.sum()
    total = float(shares_U @ (means_U - shares_U @ means_U) ** 2)
    residual = max(float(shares_U @ (means_U - fitted_U) ** 2), RELATIVE_ROUNDING * float(shares_U @ means_U**2))
    n, k = len(means_U), parameters + 1
    aicc = n * math.log(residual) + 2 * k + 2 * k * (k + 1) / (n - k - 1) if n > k + 1 else None
    return (1 - residual / total if total > RELATIVE_ROUNDING else None), aicc


def _peaks(sigma_R: Float64Array, kappa_R: Float64Array) -> Float64Array:
    """Team size of the highest throughput, at least 1; infinite where throughput never falls."""
    has_peak = kappa_R > KAPPA_ROUNDING
    inside_R = np.maximum(1 - sigma_R, 0.0) / np.where(has_peak, kappa_R, 1.0)
    endless_R = np.where(sigma_R < 1, np.inf, 1.0)
    return np.where(has_peak, np.maximum(1.0, np.sqrt(inside_R)), endless_R)


def _interval(samples_R: Float64Array, confidence: float) -> Interval:
    """The first entry is the estimate, the rest its resamples."""
    return Interval(float(samples_R[0]), *percentile_bounds(samples_R[1:], confidence))


def _universal(sizes_U: Float64Array, means_RU: Float64Array, weights_U: Float64Array, confidence: float) -> UniversalFit:
    abc_R3 = fit_throughput(sizes_U, means_RU, weights_U, USL_FACES)
    rate_R, sigma_R, kappa_R = 1 / abc_R3[:, 0], abc_R3[:, 1] / abc_R3[:, 0], abc_R3[:, 2] / abc_R3[:, 0]
    peak_R = _peaks(sigma_R, kappa_R)
    r2, aicc = _quality(means_RU[0], predicted(sizes_U, abc_R3[:1])[0], weights_U, 3)
    return UniversalFit(
        _interval(rate_R, confidence), _interval(sigma_R, confidence), _interval(kappa_R, confidence),
        censored(float(peak_R[0]), peak_R[1:], confidence), bool(peak_R[0] > sizes_U[-1]), r2, aicc,
    )  # fmt: skip


def _amdahl(sizes_U: Float64Array, means_RU: Float64Array, weights_U: Float64Array, confidence: float) -> AmdahlFit:
    abc_R3 = fit_throughput(sizes_U, means_RU, weights_U, AMDAHL_FACES)
    r2, aicc = _quality(means_RU[0], predicted(sizes_U, abc_R3[:1])[0], weights_U, 2)
    rate, share = (_interval(samples_R, confidence) for samples_R in (1 / abc_R3[:, 0], 1 - abc_R3[:, 1] / abc_R3[:, 0]))
    return AmdahlFit(rate, share, r2, aicc)


def fit_scalability(
    n: ArrayLike,
    x: ArrayLike,
    clusters: Sequence[Hashable],
    *,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Scalability:
    """Fit both laws to observations (team size n from 1, throughput x >= 0, cluster), [N] each.

    Raises DataError for unequal lengths, values that are no team size or throughput, fewer than 3 sizes, no team of one
    (whose throughput the laws are relative to), nothing earned by it, or a cluster whose set of sizes is its own.
    """
    n_N, x_N = np.asarray(n, dtype=np.float64), np.asarray(x, dtype=np.float64)
    if not len(n_N) == len(x_N) == len(clusters) or n_N.ndim != 1 or x_N.ndim != 1:
        raise DataError(
            f"Each observation is (n, x, cluster), got {n_N.shape} sizes, {x_N.shape} throughputs, {len(clusters)} clusters."
        )
    if not (np.isfinite(x_N) & (x_N >= 0) & (n_N >= 1) & (n_N == np.round(n_N))).all():
        raise DataError("Team sizes are whole numbers from 1 and throughputs finite numbers from 0; got others.")
    sizes_U, cells_KU = _cells(n_N, x_N, clusters)
    if len(sizes_U) < SIZES_MIN or sizes_U[0] != 1:
        raise DataError(f"A fit needs {SIZES_MIN} or more team sizes, one of them 1, got {sizes_U.astype(int).tolist()}.")
    means_RU = _resampled_means(cells_KU, resamples, seed)
    if not means_RU[0, 0] > 0 or not (means_RU > 0).any(axis=1).all():
        raise DataError("A team of one earned nothing, so nothing scales; run it with a longer limit.")
    weights_U = (~np.isnan(cells_KU)).sum(axis=0).astype(np.float64)
    return Scalability(
        tuple(int(size) for size in sizes_U), tuple(float(mean) for mean in means_RU[0]),
        _universal(sizes_U, means_RU, weights_U, confidence), _amdahl(sizes_U, means_RU, weights_U, confidence),
    )  # fmt: skip
