"""Independent attempts at one task, without any communication, of which one is picked afterwards.

Two picks: by an oracle, who knows every return (the most that independence can give), and by the attempts' own claims,
which is all that somebody without an oracle has. An attempt claims one success for each of its environment calls whose
result its agents saw as neither failed nor duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcr_core.errors import DataError
from rlcr_core.metrics import return_curve, work_result
from rlcr_core.types import EventType, Float64Array, Rollout


def by_task(rollouts: Sequence[Rollout]) -> dict[str, list[Rollout]]:
    """The attempts at each task, by task id and then by rollout number. Raises DataError when their numbers differ."""
    found: dict[str, list[Rollout]] = {}
    for rollout in sorted(rollouts, key=lambda r: (r.task_id, r.key.rollout)):
        found.setdefault(rollout.task_id, []).append(rollout)
    counts = {len(attempts) for attempts in found.values()}
    if len(counts) > 1:
        raise DataError(f"Every task needs equally many attempts, got {sorted(counts)}; run the evaluation again.")
    return found


def claims(rollout: Rollout) -> int:
    """How many of its environment calls the attempt saw succeed."""
    facts = [work_result(event.text)[1] for event in rollout.events if event.type is EventType.WORK]
    return sum(not fact.get("failed") and not fact.get("duplicate") for fact in facts)


def claimed_best(attempts: Sequence[Rollout]) -> Rollout:
    """The attempt that claims most; of equal claims the first, as who knows no returns cannot tell them apart."""
    return max(attempts, key=lambda rollout: (claims(rollout), -rollout.key.rollout))


def oracle_returns(rollouts: Sequence[Rollout]) -> Float64Array:
    """The best return of each task's attempts [K], by task id."""
    return np.array([max(r.return_ for r in attempts) for attempts in by_task(rollouts).values()])


def claimed_returns(rollouts: Sequence[Rollout]) -> Float64Array:
    """The return of each task's attempt that claims most [K], by task id."""
    return np.array([claimed_best(attempts).return_ for attempts in by_task(rollouts).values()])


def mean_returns(rollouts: Sequence[Rollout]) -> Float64Array:
    """The mean return of each task's attempts [K], by task id: what one attempt gives."""
    return np.array([np.mean([r.return_ for r in attempts]) for attempts in by_task(rollouts).values()])


def oracle_curves(rollouts: Sequence[Rollout], grid_s: Float64Array) -> Float64Array:
    """What the attempt that leads at each time has earned by then [K, T]: an oracle that may change its mind."""
    return np.stack(
        [np.max([return_curve(r, grid_s) for r in attempts], axis=0) for attempts in by_task(rollouts).values()]
    )


def total_tokens(rollouts: Sequence[Rollout]) -> Float64Array:
    """Tokens that all attempts at each task have sampled [K], by task id."""
    return np.array([float(sum(t.n_tokens for r in attempts for t in r.turns())) for attempts in by_task(rollouts).values()])
