"""Fits of the scaling laws against laws that made the data, a general solver, and resamples counted by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares

from rlcr_core.errors import DataError
from rlcr_core.scalability import amdahl, fit_scalability, usl
from rlcr_core.throughput_fit import AMDAHL_FACES, USL_FACES, fit_throughput, predicted

SIZES = np.array([1.0, 2, 4, 8, 16, 32, 64])


def observations(*curves: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """One cluster a curve, each at all sizes."""
    names = [f"task-{k}" for k in range(len(curves)) for _ in SIZES]
    return np.tile(SIZES, len(curves)), np.concatenate(curves), names


def test_the_laws_at_points_computed_by_hand() -> None:
    # USL at n = 5, sigma .1, kappa .02: 5 / (1 + .1 * 4 + .02 * 20) = 5 / 1.8; Amdahl at n = 4, p = .9: 1 / (.1 + .225).
    assert usl(5, 2.0, 0.1, 0.02) == pytest.approx(2 * 5 / 1.8)
    assert amdahl(4, 0.9) == pytest.approx(1 / 0.325)
    assert amdahl([1, 8], 0.0).tolist() == [1.0, 1.0]  # nothing parallel: no speed-up
    assert usl(7, 3.0, 0.2, 0.0) == pytest.approx(3 * amdahl(7, 0.8))  # Amdahl is USL with kappa = 0, sigma = 1 - p


def test_a_universal_law_without_noise_is_found_with_its_peak() -> None:
    # Peak sqrt((1 - .04) / .0006) = sqrt(1600) = 40.
    found = fit_scalability(*observations(*[usl(SIZES, 3.0, 0.04, 6e-4)] * 3), resamples=50)
    fit = found.universal
    assert (fit.rate.mean, fit.sigma.mean, fit.kappa.mean) == pytest.approx((3.0, 0.04, 6e-4), rel=1e-6)
    assert (fit.rate.low, fit.sigma.high, fit.kappa.low) == pytest.approx((3.0, 0.04, 6e-4), rel=1e-6)  # equal tasks: no width
    assert fit.peak.value == pytest.approx(40.0) and fit.peak.share == 1.0 and not fit.is_extrapolated
    assert fit.r2 == pytest.approx(1.0)
    assert found.amdahl.aicc is not None and fit.aicc is not None and fit.aicc < found.amdahl.aicc - 10
    assert found.sizes == (1, 2, 4, 8, 16, 32, 64) and found.means == pytest.approx(usl(SIZES, 3.0, 0.04, 6e-4))


def test_amdahls_law_without_noise_is_found_and_has_no_peak() -> None:
    found = fit_scalability(*observations(*[5 * amdahl(SIZES, 0.95)] * 2), resamples=50)
    assert (found.amdahl.rate.mean, found.amdahl.parallel_share.mean) == pytest.approx((5.0, 0.95))
    assert found.universal.sigma.mean == pytest.approx(0.05) and found.universal.kappa.mean == pytest.approx(0, abs=1e-9)
    # Both fit exactly, so that AICc differs by the penalties 2k + 2k(k+1)/(n-k-1) alone, n = 7: k = 4: 8 + 20, k = 3: 6 + 8.
    assert found.universal.aicc is not None and found.amdahl.aicc is not None
    assert found.universal.aicc - found.amdahl.aicc == pytest.approx(14.0)


def test_throughput_that_only_falls_or_never_bends_lies_on_the_boundary() -> None:
    falling = fit_scalability(*observations(*[SIZES**-0.5] * 2), resamples=50)
    assert falling.amdahl.parallel_share.mean == pytest.approx(0.0)  # p is not negative
    assert falling.universal.peak.value == 1.0  # a team of one is best
    linear = fit_scalability(*observations(*[2 * SIZES] * 2), resamples=50)
    assert (linear.universal.sigma.mean, linear.amdahl.parallel_share.mean) == pytest.approx((0.0, 1.0), abs=1e-9)
    assert (linear.universal.peak.value, linear.universal.peak.share, linear.universal.is_extrapolated) == (None, 0.0, True)


def test_the_quality_of_a_flat_fit_by_hand() -> None:
    # Superlinear data 1, 4, 16 at sizes 1, 2, 4 fit the law rate * n at best, with rate = (1 + 8 + 64) / (1 + 4 + 16) = 73/21.
    rate = 73 / 21
    residual = ((1 - rate) ** 2 + (4 - 2 * rate) ** 2 + (16 - 4 * rate) ** 2) / 3
    found = fit_scalability([1, 2, 4] * 2, [1, 4, 16] * 2, ["a"] * 3 + ["b"] * 3, resamples=20)
    assert found.universal.rate.mean == found.universal.rate.low == pytest.approx(rate)
    assert found.universal.r2 == pytest.approx(1 - residual / 42)  # mean 7: ((6)^2 + 3^2 + 9^2) / 3 = 42
    assert (found.universal.aicc, found.amdahl.aicc) == (None, None)  # 3 sizes are too few for the correction
    five = fit_scalability([1, 2, 4, 8, 16] * 2, [1.0, 4, 16, 16, 16] * 2, ["a"] * 5 + ["b"] * 5, resamples=20)
    assert five.universal.aicc is None and five.amdahl.aicc is not None
    fit = five.amdahl.rate.mean * amdahl([1, 2, 4, 8, 16], five.amdahl.parallel_share.mean)
    assert five.amdahl.aicc == pytest.approx(5 * math.log(np.mean((fit - [1, 4, 16, 16, 16]) ** 2)) + 6 + 24 / 1)  # k = 3, n = 5


def test_the_interval_comes_from_the_clusters() -> None:
    # Rates 1 and 3 of the same law: two draws give a mean rate of 1, 2, 3 with probability 1/4, 1/2, 1/4; sigma and kappa
    # are the same in all of them. Pooled observations would give the fit without a cluster's spread.
    shape = usl(SIZES, 1.0, 0.05, 1e-3)
    fit = fit_scalability(*observations(shape, 3 * shape), resamples=200).universal
    assert (fit.rate.mean, fit.rate.low, fit.rate.high) == pytest.approx((2.0, 1.0, 3.0), rel=1e-6)
    assert (fit.sigma.low, fit.sigma.high, fit.kappa.low, fit.kappa.high) == pytest.approx((0.05, 0.05, 1e-3, 1e-3), rel=1e-5)


def test_clusters_with_different_sizes_are_drawn_apart() -> None:
    # Each task is run at one size, twice: a draw of 6 of 6 tasks would often lose a size, a stratum never does.
    n, x = [1, 1, 2, 2, 4, 4], [1.0, 1.2, 1.9, 2.1, 3.0, 4.0]
    found = fit_scalability(n, x, ["a", "b", "c", "d", "e", "f"], resamples=100)
    assert found.means == pytest.approx((1.1, 2.0, 3.5))
    # The slowest draw is (1, 1.9, 4), superlinear: rate * n fits it at best, with rate (1 + 3.8 + 16) / 21.
    assert 20.8 / 21 - 1e-9 <= found.universal.rate.low <= found.universal.rate.mean <= found.universal.rate.high <= 1.3


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10**6))
def test_the_batch_solver_is_never_worse_than_a_general_one(seed: int) -> None:
    rng = np.random.default_rng(seed)
    means = usl(SIZES, rng.uniform(0.01, 100), rng.uniform(0, 0.8), 10 ** rng.uniform(-7, -1)) * np.exp(rng.normal(0, 0.4, 7))
    weights = rng.integers(1, 9, 7).astype(np.float64)
    for faces, start, upper in ((USL_FACES, [0.1, 1e-3], np.inf), (AMDAHL_FACES, [0.1], [np.inf, 1.0])):
        (ours,) = fit_throughput(SIZES, means[None], weights, faces)

        def residuals(q: np.ndarray) -> np.ndarray:
            return np.sqrt(weights) * (usl(SIZES, q[0], q[1], q[2] if len(q) > 2 else 0.0) - means)

        first = [means[0], *start]
        theirs = least_squares(residuals, first, bounds=(0, upper), x_scale=first, xtol=1e-12, ftol=1e-12)
        loss = (weights * (predicted(SIZES, ours[None])[0] - means) ** 2).sum()
        assert loss <= 2 * theirs.cost * (1 + 1e-6) + 1e-12 * means.max() ** 2
        assert (ours >= 0).all() and (faces is USL_FACES or ours[1] <= ours[0])


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.01, 100))
def test_units_scale_the_rate_alone_and_the_order_of_observations_nothing(seed: int, unit: float) -> None:
    rng = np.random.default_rng(seed)
    n, x, names = observations(*(usl(SIZES, rng.uniform(1, 2), 0.1, 2e-3) * rng.uniform(0.8, 1.2, 7) for _ in range(4)))
    order = rng.permutation(len(n))
    plain = fit_scalability(n, x, names, resamples=20)
    assert fit_scalability(n[order], x[order], [names[i] for i in order], resamples=20) == plain
    scaled = fit_scalability(n, x * unit, names, resamples=20).universal
    assert scaled.rate.high == pytest.approx(plain.universal.rate.high * unit, rel=1e-4)
    for after, before in ((scaled.sigma, plain.universal.sigma), (scaled.kappa, plain.universal.kappa)):
        assert after.mean == pytest.approx(before.mean, abs=1e-5)


@pytest.mark.parametrize(
    ("n", "x", "clusters", "match"),
    [
        ([1, 2, 4], [1, 2, 3], "aaa", "only one with its set"),
        ([1, 2, 1, 2], [1, 2, 1, 2], "aabb", "3 or more team sizes"),
        ([2, 4, 8] * 2, [1, 2, 3] * 2, "aaabbb", "one of them 1"),
        ([1, 2, 4] * 2, [0, 2, 3] * 2, "aaabbb", "earned nothing"),
        ([1, 2, 4] * 2, [1, -2, 3] * 2, "aaabbb", "finite numbers from 0"),
        ([1, 2.5, 4] * 2, [1, 2, 3] * 2, "aaabbb", "whole numbers"),
        ([1, 2, 4], [1, 2], "aab", "Each observation"),
    ],
)
def test_observations_that_allow_no_fit_are_refused(n: list[float], x: list[float], clusters: str, match: str) -> None:
    with pytest.raises(DataError, match=match):
        fit_scalability(n, x, list(clusters))
