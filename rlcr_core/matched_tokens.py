"""A collective against a single agent that may spend the collective's tokens: its score then, and how much longer it takes.

Both are run on the same tasks, the single agent under a long limit. In each task every rollout of the collective gives a
budget, its tokens, to every rollout of the single agent; the task's figures are means over these pairs. Two times are
compared with the collective's: until the budget is spent (at equal tokens), and until the mean curve of the single agent
reaches the collective's mean return (at equal score, rlcr_core/time_to_score.py). Intervals: tasks are resampled with
everything that belongs to them. Suffixes: _K tasks, _R resamples, _T and _U grid times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rlcr_core.censoring import Censored, censored, mean_with_infinity
from rlcr_core.clock import LatencyModel
from rlcr_core.errors import DataError
from rlcr_core.metrics import return_curve
from rlcr_core.rescoring import check_finished
from rlcr_core.statistics import Interval, clustered, percentile_bounds, resampled_counts
from rlcr_core.time_to_score import TimeRatio, reaching_times, time_ratio_from
from rlcr_core.token_budget import at_tokens
from rlcr_core.types import Float64Array, Rollout


@dataclass(frozen=True, slots=True)
class MatchedTokens:
    """Means over tasks with intervals. The single agent ends some budgets unspent: `spent_share` of the pairs are spent.

    `time_at_tokens_s` is None, censored, where its deadline came before the budget was spent: run it with a longer limit.
    `time_ratio_at_tokens` is that time over the collective's mean end; `at_score` the ratio of times to the collective's
    own return at its limit, the single agent's over the collective's.
    """

    tokens: Interval
    collective_return: Interval
    single_return: Interval
    difference: Interval
    time_at_tokens_s: Censored
    time_ratio_at_tokens: Censored
    at_score: TimeRatio
    spent_share: float


@dataclass(frozen=True, slots=True)
class _Arm:
    """One organisation's rollouts by task, all under one limit, with the mean curve of each task on a grid."""

    by_task: Mapping[str, list[Rollout]]
    limit_s: float
    grid_T: Float64Array
    curves_KT: Float64Array


def _arm(rollouts: Sequence[Rollout], step_s: float) -> _Arm:
    check_finished(rollouts)
    limits = sorted({rollout.limit_s for rollout in rollouts})
    if len(limits) > 1:
        raise DataError(f"Rollouts that are compared have one limit, got {limits[:5]} s; compare each limit on its own.")
    grid = np.append(np.arange(0.0, limits[0], step_s), limits[0])
    tasks = [rollout.task_id for rollout in rollouts]
    names, curves = clustered(np.stack([return_curve(rollout, grid) for rollout in rollouts]), tasks)
    by_task: dict[str, list[Rollout]] = {name: [] for name in names}
    for rollout in rollouts:
        by_task[rollout.task_id].append(rollout)
    return _Arm(by_task, limits[0], grid, curves)


def _pairs(collective: _Arm, single: _Arm, latency: LatencyModel) -> Float64Array:
    """[K, 5]: mean over a task's pairs of tokens, the single agent's return, time and whether spent; the collective's end."""
    rows = []
    for task, members in collective.by_task.items():
        budgets = [float(sum(turn.n_tokens for turn in rollout.turns())) for rollout in members]
        spent = np.asarray([at_tokens(rollout, budgets, latency) for rollout in single.by_task[task]], dtype=np.float64)
        time_s, return_, is_spent = spent.mean(axis=(0, 1))
        rows.append([np.mean(budgets), return_, time_s, is_spent, np.mean([rollout.end_s for rollout in members])])
    return np.asarray(rows)


def matched_tokens(
    collective: Sequence[Rollout],
    single: Sequence[Rollout],
    latency: LatencyModel,
    *,
    step_s: float = 0.25,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> MatchedTokens:
    """Compare rollouts of a collective with longer ones of a single agent on the same tasks; times in steps of `step_s`.

    Raises DataError for failed rollouts, different tasks, fewer than 2 tasks, or several limits in one organisation.
    """
    a, b = _arm(collective, step_s), _arm(single, step_s)
    if list(a.by_task) != list(b.by_task) or len(a.by_task) < 2:
        odd = sorted(set(a.by_task) ^ set(b.by_task))
        raise DataError(
            f"Expected the same two or more tasks in both, got {len(a.by_task)} and {len(b.by_task)}, "
            f"{len(odd)} in one alone: {odd[:5]}; evaluate both on the same tasks."
        )
    n_tasks = len(a.by_task)
    tokens_K, return_K, time_K, spent_K, end_K = _pairs(a, b, latency).T
    score_K = a.curves_KT[:, -1]
    counts_RK = resampled_counts(n_tasks, resamples, seed)
    all_1K = np.ones((1, n_tasks))

    def interval(values_K: Float64Array) -> Interval:
        return Interval(float(values_K.mean()), *percentile_bounds(counts_RK @ values_K / n_tasks, confidence))

    def to_score(arm: _Arm, weights_RK: Float64Array) -> Float64Array:
        return reaching_times(weights_RK @ arm.curves_KT / n_tasks, arm.grid_T, weights_RK @ score_K / n_tasks)

    times = float(to_score(a, all_1K)[0]), float(to_score(b, all_1K)[0])
    samples = to_score(a, counts_RK), to_score(b, counts_RK)
    time_R, time_1 = mean_with_infinity(counts_RK, time_K), mean_with_infinity(all_1K, time_K)
    return MatchedTokens(
        tokens=interval(tokens_K),
        collective_return=interval(score_K),
        single_return=interval(return_K),
        difference=interval(score_K - return_K),
        time_at_tokens_s=censored(float(time_1[0]), time_R, confidence),
        time_ratio_at_tokens=censored(float(time_1[0]) / float(end_K.mean()), time_R / (counts_RK @ end_K / n_tasks), confidence),
        at_score=time_ratio_from(float(score_K.mean()), times, samples, (a.limit_s, b.limit_s), confidence),
        spent_share=float(spent_K.mean()),
    )
