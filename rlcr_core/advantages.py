"""Flat collective advantage: a rollout's return minus the mean return of its group.

    A_i = R_i - mean_j R_j          (one number a rollout, given to every token of every agent of it)

The group mean as baseline is that of GRPO (Shao et al. 2024, arXiv:2402.03300); its division by the group's standard
deviation is the option `group`, none is Dr. GRPO's choice (arXiv:2503.20783). Assumption: the rollouts of a group are
independent attempts at one task under one limit. Degenerate case: equal returns give exactly zero, not a rounding
residue that a later division could blow up. Only the rollouts that are trained belong in a group.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from rlcr_core.errors import ConfigError, DataError
from rlcr_core.types import Float64Array


def group_advantages(returns_G: ArrayLike) -> Float64Array:
    """Return minus group mean, float64 [G], exactly zero when all returns are equal.

    Raises DataError for a group that is empty or not one-dimensional, or for a return that is not finite.
    """
    values_G = np.asarray(returns_G, np.float64)
    if values_G.ndim != 1 or values_G.size == 0:
        raise DataError(f"A group needs one return per rollout, got the shape {values_G.shape}; check its ledger.")
    if not np.isfinite(values_G).all():
        i = int(np.argmin(np.isfinite(values_G)))
        raise DataError(f"Rollout {i} of its group has the return {values_G[i]}, expected a finite number; exclude it.")
    if (values_G == values_G[0]).all():
        return np.zeros_like(values_G)
    # fsum rounds once, so the order of the rollouts cannot change the baseline.
    baseline = math.fsum(values_G) / values_G.size
    advantages_G: Float64Array = values_G - baseline
    return advantages_G


def permute_advantages(groups: Sequence[Float64Array], seed: int) -> list[Float64Array]:
    """The negative control: the iteration's advantages dealt to its rollouts at random, so that nothing can be learnt.

    Same values, same scale; only who earned them is lost. Equal seeds deal alike.
    """
    if not groups:
        return []
    dealt = np.random.default_rng(seed).permutation(np.concatenate(groups))
    return list(np.split(dealt, np.cumsum([len(group) for group in groups])[:-1]))


def scale_advantages(
    groups: Sequence[Float64Array], scale: Literal["none", "batch", "group"], floor: float
) -> list[Float64Array]:
    """Divide the advantages of an iteration by a population standard deviation, at least `floor`; new float64 arrays.

    `none`: by nothing. `batch`: by one std of all advantages of all groups, so that differences between tasks remain
    and the entropy bonus keeps its meaning. `group`: each group by its own. Zeros stay exactly zero. Raises ConfigError
    for a floor that is not above 0, DataError for advantages that are not finite.
    """
    if not floor > 0:
        raise ConfigError(f"The least scale of advantages must be above 0, got {floor}; raise update.scale_floor.")
    arrays = [np.asarray(group, np.float64) for group in groups]
    for g, array in enumerate(arrays):
        if not np.isfinite(array).all():
            raise DataError(f"Group {g} has advantages {array.tolist()}, expected finite numbers; exclude the rollout.")
    if scale == "none" or not arrays:
        return [array.copy() for array in arrays]
    if scale == "batch":
        std = float(np.concatenate(arrays).std())
        return [array / max(std, floor) for array in arrays]
    return [array / max(float(array.std()), floor) for array in arrays]
