"""Which tokens a rollout has sampled by when, and what it had earned once it had spent a budget of them.

Rule: token k (of 1 to n) of a turn is sampled at first_s + k (spoken_s - first_s) / n, where first_s is the moment at which
the clock has read the turn's prompt (start_s + turn_overhead_s + prompt_tokens / prefill_tps) and spoken_s the moment at
which its tool begins (end_s - tool_s). On the derived clock these are the very times at which the deadline counts tokens,
shared serving capacity included; a turn that the deadline cut has its tokens spread until the cut, which is late by at
most one token. On the wall clock the constants come from a calibration and the moments are the model's; where the model
reads slower than the engine did, the whole turn's tokens fall on spoken_s. Tokens of all agents count, also those fired.

A budget is spent at the moment of its last token. The return then holds what has landed by then: the effects of calls
still running come later, as they do at a deadline. Suffixes: _N tokens, _T grid times, _B budgets.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from rlcr_core.clock import LatencyModel
from rlcr_core.errors import DataError
from rlcr_core.types import Float64Array, Rollout, StopReason, Turn


class Spent(NamedTuple):
    """A rollout at a budget of tokens. `is_spent` is false when it ended before: then `return_` is its final one.

    `time_s` of an unspent budget is the rollout's end where nothing was left to do (solved, stalled), and infinite where
    the deadline came first: a longer limit would have shown more.
    """

    time_s: float
    return_: float
    is_spent: bool


def _turn_times(turn: Turn, latency: LatencyModel) -> Float64Array:
    """[n] moments of the turn's tokens, whole nanoseconds."""
    spoken_s = turn.end_s - turn.tool_s
    first_s = min(latency.first_token_s(turn.start_s, turn.prompt_tokens), spoken_s)
    shares_N = np.arange(1, turn.n_tokens + 1) / max(1, turn.n_tokens)
    times_N: Float64Array = np.round(first_s + shares_N * (spoken_s - first_s), 9)
    return times_N


def token_times(rollout: Rollout, latency: LatencyModel) -> Float64Array:
    """[N] moments in seconds at which each token of the rollout was sampled, in order of time."""
    times = [_turn_times(turn, latency) for turn in rollout.turns()]
    return np.sort(np.concatenate([np.empty(0), *times]))


def tokens_curve(rollout: Rollout, grid_s: ArrayLike, latency: LatencyModel) -> Float64Array:
    """Tokens sampled at or before each time of a grid. [T] seconds -> [T] whole tokens."""
    grid = np.asarray(grid_s, dtype=np.float64)
    return np.searchsorted(token_times(rollout, latency), grid, side="right").astype(np.float64)


def at_tokens(rollout: Rollout, budgets: Sequence[float], latency: LatencyModel) -> tuple[Spent, ...]:
    """The rollout when it has spent each budget of tokens; a fraction of a token counts as a whole one.

    Raises DataError for a failed rollout and for budgets that are negative or not finite.
    """
    if rollout.stop_reason is StopReason.FAILED:
        raise DataError(f"Rollout {tuple(rollout.key)} failed ({rollout.error}); exclude failed rollouts, and count them.")
    wrong = [budget for budget in budgets if not 0 <= budget < math.inf]
    if wrong:
        raise DataError(f"A budget is a finite number of tokens from 0 on, got {wrong[:5]}.")
    times_N = token_times(rollout, latency)
    found = []
    for budget in budgets:
        n = math.ceil(budget - 1e-9)
        if n <= len(times_N):
            time_s = float(times_N[n - 1]) if n else 0.0
            found.append(Spent(time_s, rollout.return_at(time_s), True))
        else:
            time_s = math.inf if rollout.stop_reason is StopReason.DEADLINE else rollout.end_s
            found.append(Spent(time_s, rollout.return_, False))
    return tuple(found)


def time_of_tokens(rollout: Rollout, budget: float, latency: LatencyModel) -> float:
    """Seconds until the rollout has spent this many tokens; see Spent for one that ends before. Raises DataError."""
    return at_tokens(rollout, [budget], latency)[0].time_s


def return_at_tokens(rollout: Rollout, budget: float, latency: LatencyModel) -> tuple[float, bool]:
    """The return when this many tokens are spent, and whether they were. Raises DataError."""
    spent = at_tokens(rollout, [budget], latency)[0]
    return spent.return_, spent.is_spent
