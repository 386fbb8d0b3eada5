"""Time, model calls and tokens to an acceptable result, for any way to organise work.

A result is acceptable from the first moment at which the return is at least `acceptable`. Of several independent attempts
at a task, which know nothing of each other, all are paid for until one is handed over:

    by an oracle, who sees every return: the first that is acceptable, at that moment
    by their own claim: the first that says it is done (stopped as `solved`), at that moment; when none has by the limit,
    the one that claims most successes (rlcr_core/attempts.py), at the limit. What is handed over may not be acceptable.

Model calls are the turns begun by a moment, tokens those sampled by it (rlcr_core/token_budget.py); of a result that is not
acceptable by the limit they are what was spent in vain, and its time is infinite. Suffixes: _K tasks, _N rollouts a task.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rlcr_core.attempts import claimed_best
from rlcr_core.censoring import Censored, censored
from rlcr_core.clock import LatencyModel
from rlcr_core.statistics import checked
from rlcr_core.token_budget import token_times
from rlcr_core.types import EventType, Float64Array, Rollout, StopReason

_ROUNDING = 1e-9  # a return this far below is acceptable: it is a sum of rewards


class Effort(NamedTuple):
    """What it took to an acceptable result, or what was spent without one (`time_s` is then infinite)."""

    time_s: float
    calls: int
    tokens: int
    return_: float  # of what is handed over

    @property
    def is_acceptable(self) -> bool:
        return math.isfinite(self.time_s)


def time_to(rollout: Rollout, acceptable: float) -> float:
    """Seconds until the return is at least `acceptable`; infinity where it is not by the limit."""
    earned = 0.0
    for event in rollout.events:
        if event.type is EventType.REWARD and event.time_s <= rollout.limit_s:
            earned += event.value
            if earned >= acceptable - _ROUNDING:
                return event.time_s
    return 0.0 if acceptable <= _ROUNDING else math.inf


def spent_by(rollouts: Sequence[Rollout], time_s: float, latency: LatencyModel) -> tuple[int, int]:
    """Turns begun before and tokens sampled by a moment, of all these rollouts together."""
    calls = sum(turn.start_s < time_s for rollout in rollouts for turn in rollout.turns())
    tokens = sum(int(np.searchsorted(token_times(rollout, latency), time_s, side="right")) for rollout in rollouts)
    return calls, tokens


def effort(rollout: Rollout, acceptable: float, latency: LatencyModel) -> Effort:
    """What one rollout took."""
    return oracle_effort([rollout], acceptable, latency)


def oracle_effort(attempts: Sequence[Rollout], acceptable: float, latency: LatencyModel) -> Effort:
    """What independent attempts took together when an oracle stops them all at the first acceptable result."""
    times = [time_to(attempt, acceptable) for attempt in attempts]
    time_s = min(times)
    if math.isinf(time_s):
        return Effort(time_s, *spent_by(attempts, math.inf, latency), max(attempt.return_ for attempt in attempts))
    return Effort(time_s, *spent_by(attempts, time_s, latency), attempts[times.index(time_s)].return_at(time_s))


def claimed_effort(attempts: Sequence[Rollout], acceptable: float, latency: LatencyModel) -> Effort:
    """What independent attempts took together when nobody knows their returns and their own claims decide."""
    done = [attempt for attempt in attempts if attempt.stop_reason is StopReason.SOLVED]
    if done:
        handed = min(done, key=lambda attempt: (attempt.end_s, attempt.key.rollout))
        time_s = handed.end_s
    else:
        handed, time_s = claimed_best(attempts), max(attempt.limit_s for attempt in attempts)
    is_acceptable = handed.return_ >= acceptable - _ROUNDING
    return Effort(time_s if is_acceptable else math.inf, *spent_by(attempts, time_s, latency), handed.return_)


def censored_median(values_KN: Float64Array, *, resamples: int, confidence: float, seed: int = 0) -> Censored:
    """Median over all rollouts with its interval, infinite values included; tasks are resampled. Raises DataError."""
    checked(np.where(np.isinf(values_KN), 0.0, values_KN), "values_KN", 2)
    drawn_RK = np.random.default_rng(seed).integers(len(values_KN), size=(resamples, len(values_KN)))
    samples_R = _medians(values_KN[drawn_RK].reshape(resamples, -1))
    return censored(float(_medians(values_KN.reshape(1, -1))[0]), samples_R, confidence)


def _medians(values_RN: Float64Array) -> Float64Array:
    """Medians of rows in which infinity is late, not unknown: the mean of the two middle values, infinite if one is."""
    ordered, n = np.sort(values_RN, axis=1), values_RN.shape[1]
    medians: Float64Array = (ordered[:, (n - 1) // 2] + ordered[:, n // 2]) / 2
    return medians
