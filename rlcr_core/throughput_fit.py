"""Least squares for curves X(n) = n / (a + b (n - 1) + c n (n - 1)) with non-negative a, b, c; many data sets at once.

Both scaling laws are of this form (rlcr_core/scalability.py). Each step linearises X at the last solution and solves the
damped normal equations exactly under the constraints, by trying every set of constraints that may bind (they are few); the
damping falls when the sum of squares does and rises when it does not (Levenberg and Marquardt). Bootstrap resamples run
as one batch: thousands of calls of a general solver would take minutes. Suffixes: _U team sizes, _R data sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcr_core.types import Float64Array

STEPS = 200
SETTLED = 1e-14  # relative fall of the sum of squares that ends the search
DAMPING_MAX = 1e8

# Bases of the free directions of (a, b, c) under each set of constraints that may bind.
USL_FACES = tuple(np.eye(3)[:, columns] for columns in ([0, 1, 2], [0, 1], [0, 2], [0]))  # b, c >= 0
AMDAHL_FACES = (np.eye(3)[:, [0, 1]], np.eye(3)[:, [0]], np.asarray([[1.0], [1.0], [0.0]]))  # c = 0 <= b <= a


def terms(sizes_U: Float64Array) -> Float64Array:
    """[U, 3]: what a, b and c multiply in the denominator."""
    return np.stack([np.ones_like(sizes_U), sizes_U - 1, sizes_U * (sizes_U - 1)], axis=1)


def predicted(sizes_U: Float64Array, abc_R3: Float64Array) -> Float64Array:
    """[R, U] throughput of each solution at each team size."""
    found: Float64Array = sizes_U / (abc_R3 @ terms(sizes_U).T)
    return found


def _solve(gram_R33: Float64Array, target_R3: Float64Array, faces: Sequence[Float64Array]) -> Float64Array:
    """argmin of x'Gx / 2 - t'x for each data set under the constraints; NaN where no face holds an allowed solution."""
    best_R3 = np.full_like(target_R3, np.nan)
    best_R = np.full(len(target_R3), np.inf)
    for basis in faces:
        reduced_Rkk = basis.T @ gram_R33 @ basis
        scale_Rk = 1 / np.sqrt(np.diagonal(reduced_Rkk, axis1=1, axis2=2))  # terms of n and n^2 differ by orders of size
        scaled_Rkk = reduced_Rkk * scale_Rk[:, :, None] * scale_Rk[:, None, :]
        solved_Rk = np.linalg.solve(scaled_Rkk, (target_R3 @ basis * scale_Rk)[:, :, None])[:, :, 0]
        x_R3 = (solved_Rk * scale_Rk) @ basis.T
        is_allowed = (x_R3[:, 0] > 0) & (x_R3 >= 0).all(axis=1)
        if faces is AMDAHL_FACES:
            is_allowed &= x_R3[:, 1] <= x_R3[:, 0]
        value_R = np.einsum("ri,rij,rj->r", x_R3, gram_R33, x_R3) / 2 - (x_R3 * target_R3).sum(axis=1)
        is_better = is_allowed & (value_R < best_R)
        best_R3[is_better], best_R[is_better] = x_R3[is_better], value_R[is_better]
    return best_R3


def _losses(sizes_U: Float64Array, means_RU: Float64Array, weights_U: Float64Array, abc_R3: Float64Array) -> Float64Array:
    losses_R = (weights_U * (means_RU - predicted(sizes_U, abc_R3)) ** 2).sum(axis=1)
    return np.where(np.isnan(losses_R), np.inf, losses_R)


def _normal(rows_RU3: Float64Array, aims_RU: Float64Array) -> tuple[Float64Array, Float64Array]:
    """Matrix [R, 3, 3] and right-hand side [R, 3] of the normal equations."""
    return np.einsum("rui,ruj->rij", rows_RU3, rows_RU3), np.einsum("rui,ru->ri", rows_RU3, aims_RU)


def _damped_step(
    sizes_U: Float64Array, means_RU: Float64Array, roots_U: Float64Array, last_R3: Float64Array, damping_R: Float64Array,
    faces: Sequence[Float64Array],
) -> Float64Array:  # fmt: skip
    """The constrained minimum of the curve linearised at the last solution: X ~ 2 n / d - n / d^2 * (new denominator)."""
    denominators_RU = last_R3 @ terms(sizes_U).T
    rows_RU3 = (roots_U * sizes_U / denominators_RU**2)[:, :, None] * terms(sizes_U)
    gram_R33, target_R3 = _normal(rows_RU3, roots_U * (2 * sizes_U / denominators_RU - means_RU))
    damp_R3 = damping_R[:, None] * np.diagonal(gram_R33, axis1=1, axis2=2)
    return _solve(gram_R33 + damp_R3[:, :, None] * np.eye(3), target_R3 + damp_R3 * last_R3, faces)


def fit_throughput(
    sizes_U: Float64Array, means_RU: Float64Array, weights_U: Float64Array, faces: Sequence[Float64Array]
) -> Float64Array:
    """[R, 3] a, b, c that minimise the weighted sum over sizes of (mean - X(n))^2, for each data set.

    The sizes rise from 1; means are at least 0 and in each data set some are positive; weights are positive.
    """
    roots_U = np.sqrt(weights_U)
    # The start: denominators that fit n / mean, weighted so that their errors count as those of the throughput.
    gram_R33, target_R3 = _normal((roots_U * means_RU**2 / sizes_U)[:, :, None] * terms(sizes_U), roots_U * means_RU)
    gram_R33 += 1e-9 * np.eye(3) * np.diagonal(gram_R33, axis1=1, axis2=2)[:, :, None]
    abc_R3 = _solve(gram_R33, target_R3, faces)
    loss_R, damping_R = _losses(sizes_U, means_RU, weights_U, abc_R3), np.full(len(means_RU), 1e-3)
    active = np.arange(len(means_RU))
    for _ in range(STEPS):
        means, last, damping, old = means_RU[active], abc_R3[active], damping_R[active], loss_R[active]
        step_R3 = _damped_step(sizes_U, means, roots_U, last, damping, faces)
        new = _losses(sizes_U, means, weights_U, step_R3)
        is_better = new < old
        abc_R3[active[is_better]], loss_R[active[is_better]] = step_R3[is_better], new[is_better]
        damping_R[active] = np.where(is_better, np.maximum(damping / 10, 1e-12), damping * 10)
        is_done = (is_better & (old - new <= SETTLED * old)) | (damping_R[active] > DAMPING_MAX)
        active = active[~is_done]
        if not len(active):
            break
    return abc_R3
