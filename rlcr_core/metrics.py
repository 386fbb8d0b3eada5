"""Metrics of rollouts as `family/name`, and return curves. Keys are the same in files, MLflow and docs/metrics.md.

The caller chooses the rollouts: an iteration logs all that were dispatched (prefix "all") beside those trained, because
a metric over the survivors alone rises when bad rollouts are dropped. Counts are means per rollout, unless the name is
`total` or the family `stop`. Rates and shares are pooled: sum over sum, not the mean of each rollout's. A key whose
denominator is zero (no message was judged, nobody hired) is absent, never 0 or NaN. Useful work is the tokens of `work`
turns; seconds are seconds of rollouts (end_s), not of agents. What a collective does is read by `rlcr_core.signs`; its
share of the update's gradients is in `rlcr_core.update`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np

from rlcr_core.facts import work_result
from rlcr_core.signs import Signs, ratio, team_size_bucket
from rlcr_core.types import EventType, Float64Array, Rollout, StopReason

__all__ = ["iteration_metrics", "return_curve", "team_size_bucket", "work_result"]


def return_curve(rollout: Rollout, grid_s: Float64Array) -> Float64Array:
    """The return earned by each time of a grid, flat after the rollout's limit. [T] seconds -> [T] returns."""
    rewards = [(e.time_s, e.value) for e in rollout.events if e.type is EventType.REWARD]
    rewards.sort(key=lambda reward: reward[0])
    earned = np.concatenate([[0.0], np.cumsum([value for _, value in rewards])])
    times = np.asarray([time_s for time_s, _ in rewards], dtype=np.float64)
    grid = np.minimum(np.asarray(grid_s, dtype=np.float64), rollout.limit_s)
    curve: Float64Array = earned[np.searchsorted(times, grid, side="right")]
    return curve


def _reward(rollouts: Sequence[Rollout]) -> dict[str, float]:
    groups: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    returns = np.asarray([rollout.return_ for rollout in rollouts])
    for rollout, value in zip(rollouts, returns.tolist(), strict=True):
        groups[rollout.key[:3]].append(value)
    spreads = [0.0 if min(group) == max(group) else float(np.std(group)) for group in groups.values()]
    return {
        "reward/return_mean": float(returns.mean()),
        "reward/return_std": float(returns.std()),
        "reward/return_min": float(returns.min()),
        "reward/return_max": float(returns.max()),
        "reward/group_std": float(np.mean(spreads)),
        "reward/zero_variance_groups": float(np.mean([spread == 0.0 for spread in spreads])),
    }


def _roster(rollouts: Sequence[Rollout]) -> dict[str, float]:
    n = len(rollouts)
    fires = sum(agent.fired_s is not None for rollout in rollouts for agent in rollout.agents)
    first = [min(agent.hired_s for agent in rollout.agents[1:]) for rollout in rollouts if rollout.n_hires > 0]
    return {
        "roster/hires": sum(rollout.n_hires for rollout in rollouts) / n,
        "roster/fires": fires / n,
        **ratio("roster/time_of_first_hire_s", sum(first), len(first)),
    }


def _ends(rollouts: Sequence[Rollout]) -> dict[str, float]:
    n = len(rollouts)
    stops = Counter(rollout.stop_reason for rollout in rollouts)
    return {
        "time/limit_s": sum(rollout.limit_s for rollout in rollouts) / n,
        "time/end_s": sum(rollout.end_s for rollout in rollouts) / n,
        **{f"stop/{reason.value}": float(stops[reason]) for reason in StopReason},
    }


def iteration_metrics(rollouts: Sequence[Rollout], prefix: str = "") -> dict[str, float]:
    """All metrics of these rollouts, `family/name` or `prefix/family/name`; {} for no rollouts.

    Standard deviations are of the population; group_std is the mean over groups of the one within a group. Raises
    DataError for a fact of a rollout's work that is no number.
    """
    if not rollouts:
        return {}
    signs = Signs()
    for rollout in rollouts:
        signs.add(rollout)
    found = {**_reward(rollouts), **_roster(rollouts), **signs.metrics(), **_ends(rollouts)}
    return {f"{prefix.rstrip('/')}/{key}" if prefix else key: value for key, value in found.items()}
