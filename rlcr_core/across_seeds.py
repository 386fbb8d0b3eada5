"""Means over training seeds and tasks: the policy of a seed is a sample too, so more tasks alone do not narrow an interval.

Values are [S, K]: seed s on task k, rollouts averaged. Three intervals of their grand mean answer different questions:

- `seed_interval`: Student's t over the S seed means. Right for few seeds (the usual 5), for statements about training
  again and evaluating on these very tasks. Assumption: seed means are about normal.
- `crossed_interval`: seeds and tasks both random, the same tasks for every seed: training again, and evaluating on other
  tasks. Variance from the two-way table, degrees of freedom by Satterthwaite (1946); components estimated below 0 count
  as 0 (Searle, Casella and McCulloch, Variance Components, 1992).
- `hierarchical_interval`: bootstrap of seeds, then of tasks, the same resampled tasks for every seed (Owen, Annals of Applied
  Statistics, 2007) or new ones for each. For skewed values and 20 seeds or more; with 5 it is too narrow wherever seeds
  are most of the spread, since percentiles know nothing of Student's t (docs/statistics.md has its coverage).

Pooling S x K values as if they were independent, or bootstrapping the tasks of one seed, leaves out the seeds' spread.
Suffixes: _S seeds, _K tasks, _R resamples.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from rlcr_core.errors import DataError
from rlcr_core.precision import t_quantile
from rlcr_core.statistics import Interval, percentile_bounds, resampled_counts
from rlcr_core.types import Float64Array


def _table(values: ArrayLike) -> Float64Array:
    table = np.asarray(values, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] < 2 or table.shape[1] < 2 or not np.isfinite(table).all():
        raise DataError(
            f"Expected finite values [S, K] of 2 or more seeds on the same 2 or more tasks, got shape {table.shape}; one seed "
            "says nothing about others: train more seeds."
        )
    return table


def seed_interval(values_SK: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean over seeds with Student's interval over the seed means, the tasks taken as given. Raises DataError."""
    return mean_interval(_table(values_SK).mean(axis=1), confidence=confidence)


def mean_interval(values_S: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean of one value a seed with Student's interval, such as of a figure of training curves. Raises DataError."""
    values = np.asarray(values_S, dtype=np.float64)
    if values.ndim != 1 or len(values) < 2 or not np.isfinite(values).all():
        raise DataError(f"Expected a finite value of each of 2 or more seeds, got {values.tolist()}; train more seeds.")
    mean, n = float(values.mean()), len(values)
    reach = t_quantile(confidence, n - 1) * float(values.std(ddof=1)) / math.sqrt(n)
    return Interval(mean, mean - reach, mean + reach)


def crossed_interval(values_SK: ArrayLike, *, confidence: float = 0.95) -> Interval:
    """Mean with an interval for other seeds and other tasks; column k is one task in every row. Raises DataError."""
    table = _table(values_SK)
    n_seeds, n_tasks = table.shape
    mean, by_seed, by_task = float(table.mean()), table.mean(axis=1), table.mean(axis=0)
    degrees = np.asarray([n_seeds - 1, n_tasks - 1, (n_seeds - 1) * (n_tasks - 1)], dtype=np.float64)
    rest_SK = table - by_seed[:, None] - by_task + mean
    squares = np.asarray([n_tasks * ((by_seed - mean) ** 2).sum(), n_seeds * ((by_task - mean) ** 2).sum(), (rest_SK**2).sum()])
    seeds, tasks, rest = squares / degrees  # mean squares
    parts = np.asarray([seeds * (seeds > rest), tasks * (tasks > rest), rest])
    parts[2] *= 1 - (parts[:2] > 0).sum()  # seeds + tasks - rest, where both stand out
    total = float(parts.sum())
    if total <= 0:
        return Interval(mean, mean, mean)
    freedom = max(total**2 / float((parts**2 / degrees).sum()), float(degrees.min()))
    reach = t_quantile(confidence, freedom) * math.sqrt(total / table.size)
    return Interval(mean, mean - reach, mean + reach)


def hierarchical_interval(
    values_SK: ArrayLike,
    *,
    same_tasks: bool = True,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Mean with a two-level percentile bootstrap: seeds, then tasks. `same_tasks`: column k is one task in every row.

    Raises DataError for fewer than 2 seeds or tasks, or non-finite values.
    """
    table = _table(values_SK)
    n_seeds, n_tasks = table.shape
    if same_tasks:
        seeds_RS = resampled_counts(n_seeds, resamples, seed)
        samples_R = np.einsum("rs,sk,rk->r", seeds_RS, table, resampled_counts(n_tasks, resamples, seed + 1), optimize=True)
    else:
        drawn_RS = np.random.default_rng(seed).integers(n_seeds, size=(resamples, n_seeds))
        counts_RSK = resampled_counts(n_tasks, resamples * n_seeds, seed + 1).reshape(resamples, n_seeds, n_tasks)
        samples_R = np.einsum("rsk,rsk->r", counts_RSK, table[drawn_RS])
    return Interval(float(table.mean()), *percentile_bounds(samples_R / table.size, confidence))
