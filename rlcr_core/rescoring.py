"""Stored rollouts re-scored at earlier limits: what they had earned by then, without running them again.

These are returns of agents that were told the longer limit; agents that are told a shorter one may act otherwise, so the
evaluation shows fresh rollouts beside. Suffixes: _K tasks, _L limits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcr_core.errors import DataError
from rlcr_core.statistics import clustered
from rlcr_core.types import Float64Array, Rollout, StopReason


def check_finished(rollouts: Sequence[Rollout]) -> None:
    """Raises DataError when nothing is given or a rollout is failed: its return is no measurement."""
    failed = [rollout for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if not rollouts or failed:
        first = f", the first {tuple(failed[0].key)}: {failed[0].error or 'no error'}" if failed else ""
        raise DataError(
            f"Expected finished rollouts, got {len(rollouts)} with {len(failed)} failed{first}; exclude failed rollouts, and "
            "count them."
        )


def returns_at_limits(rollouts: Sequence[Rollout], limits_s: Sequence[float]) -> tuple[tuple[str, ...], Float64Array]:
    """Mean return of each task at each limit: (K sorted task ids, [K, L]). A reward at exactly a limit counts.

    Raises DataError for a limit below 0 or beyond a rollout's own, where nothing was observed, and for failed rollouts.
    """
    check_finished(rollouts)
    shortest_s = min(rollout.limit_s for rollout in rollouts)
    wrong = [limit_s for limit_s in limits_s if not 0 <= limit_s <= shortest_s]
    if wrong or not len(limits_s):
        raise DataError(
            f"Rollouts run to {shortest_s:g} s can be re-scored at limits of 0 to {shortest_s:g} s, got {wrong or 'none'}; run "
            "them with a longer limit."
        )
    returns_NL = np.asarray([[rollout.return_at(limit_s) for limit_s in limits_s] for rollout in rollouts])
    return clustered(returns_NL, [rollout.task_id for rollout in rollouts])
