"""Calibration: the latency model's constants from rollouts on the wall clock, and how far the model is off.

A turn's cost is the time from its start to the agent's next start, less the tool time that the derived clock charges too:

    cost = turn_overhead_s + prompt_tokens / prefill_tps + sampled_tokens * max(1, busy / shared_capacity) / decode_tps

For a given capacity this is linear in turn_overhead_s, 1 / prefill_tps and 1 / decode_tps, none of them negative; the
capacity is the whole number with the least squared error, or none where it explains less than a hundredth of that error.
Whatever a turn costs besides tokens (hand-overs, the lateness of tools) is part of turn_overhead_s.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest

import numpy as np

from rlcr_core.clock import LatencyModel
from rlcr_core.config import LatencyConfig
from rlcr_core.errors import DataError
from rlcr_core.types import Float64Array, Rollout, StopReason, TurnKind

LEAST_TURNS = 30
LEAST_GAIN = 0.01  # of the squared error, for a capacity to be believed
UNMEASURABLE_TPS = 1e9  # tokens that cost no time one could tell from the rest
OFF = 0.2  # a relative error that is worth a warning
LEAST_GROUP = 10  # turns of a kind for a word about it


@dataclass(frozen=True, slots=True)
class Timings:
    """Complete turns of wall-clock rollouts, [N] each; `rollout_N` numbers their rollouts from 0."""

    rollout_N: Float64Array
    prompt_N: Float64Array
    tokens_N: Float64Array
    busy_N: Float64Array  # agents of the rollout that did not sleep when the turn started
    measured_s_N: Float64Array  # from its start to the agent's next start, its end for the last
    tool_s_N: Float64Array  # tool time as the derived clock has it
    tool_late_s_N: Float64Array  # by how much the tool took longer

    def of(self, mask_N: Float64Array) -> Timings:
        """The turns where the mask holds."""
        return Timings(*(getattr(self, name)[mask_N] for name in self.__slots__))

    def __len__(self) -> int:
        return len(self.rollout_N)


def busy_agents(rollout: Rollout, time_s: float) -> int:
    """Agents employed at this time and not asleep in a wait, as the rollout loop counts them."""
    employed = [a.id for a in rollout.agents if a.hired_s <= time_s and (a.fired_s is None or time_s < a.fired_s)]
    asleep = sum(
        any(t.kind is TurnKind.WAIT and t.end_s - t.tool_s <= time_s < t.end_s for t in rollout.trajectories.get(agent, []))
        for agent in employed
    )
    return len(employed) - asleep


def timings(rollouts: Sequence[Rollout], latency: LatencyConfig, waits_sleep: bool = False) -> Timings:
    """The complete turns of these rollouts; `latency` is what their `derived_s` was computed with.

    `waits_sleep`: waiting is for a message (collective.wait_s null), so that who waits is not busy. Failed rollouts are
    left out: nobody knows what held them up.
    """
    model = LatencyModel(latency)
    rows: list[tuple[float, ...]] = []
    for number, rollout in enumerate(r for r in rollouts if r.stop_reason is not StopReason.FAILED):
        awake = rollout if waits_sleep else Rollout(rollout.key, "", 0.0, 0, agents=rollout.agents)
        for turns in rollout.trajectories.values():
            for turn, following in zip_longest(turns, turns[1:]):
                if turn.cut:
                    continue
                busy = busy_agents(awake, turn.start_s)
                tool_s = turn.derived_s - model.spoken_s(0.0, turn.prompt_tokens, turn.n_tokens, busy)
                end_s = turn.end_s if following is None else following.start_s
                rows.append((number, turn.prompt_tokens, turn.n_tokens, busy, end_s - turn.start_s, tool_s, turn.tool_s - tool_s))
    if len(rows) < LEAST_TURNS:
        raise DataError(
            f"{len(rows)} complete turns are too few to fit the latency model, at least {LEAST_TURNS} are needed; run more "
            "rollouts or under a longer limit."
        )
    return Timings(*np.array(rows, dtype=np.float64).T)


def fit(turns: Timings) -> LatencyConfig:
    """The constants with the least squared error of a turn's cost."""
    cost_N = turns.measured_s_N - turns.tool_s_N
    best, least = _fit(turns, cost_N, 0)
    for capacity in range(1, int(turns.busy_N.max())):
        found, error = _fit(turns, cost_N, capacity)
        if error < least * (1 - LEAST_GAIN):
            best, least = found, error
    return best


def _fit(turns: Timings, cost_N: Float64Array, capacity: int) -> tuple[LatencyConfig, float]:
    slow_N = np.maximum(1.0, turns.busy_N / capacity) if capacity else np.ones_like(cost_N)
    columns_NC = np.stack([np.ones_like(cost_N), turns.prompt_N, turns.tokens_N * slow_N], 1)
    (overhead_s, per_prompt_s, per_token_s), error = _nonnegative(columns_NC, cost_N)
    config = LatencyConfig(
        turn_overhead_s=overhead_s,
        prefill_tps=1 / max(per_prompt_s, 1 / UNMEASURABLE_TPS),
        decode_tps=1 / max(per_token_s, 1 / UNMEASURABLE_TPS),
        shared_capacity=capacity,
    )
    return config, error


def _nonnegative(columns_NC: Float64Array, target_N: Float64Array) -> tuple[list[float], float]:
    """Exact non-negative least squares for a few columns: the best unconstrained fit of any subset that is not negative."""
    n_columns = columns_NC.shape[1]
    best, least = [0.0] * n_columns, float(np.sum(target_N**2))
    for size in range(1, n_columns + 1):
        for chosen in map(list, combinations(range(n_columns), size)):
            solution, _, rank, _ = np.linalg.lstsq(columns_NC[:, chosen], target_N, rcond=None)
            error = float(np.sum((columns_NC[:, chosen] @ solution - target_N) ** 2))
            if rank == size and solution.min() >= 0 and error < least:
                best, least = [0.0] * n_columns, error
                for place, value in zip(chosen, solution.tolist(), strict=True):
                    best[place] = value
    return best, least


def derived_s(turns: Timings, config: LatencyConfig) -> Float64Array:
    """What the latency model says that each turn takes, tools included. [N]"""
    model = LatencyModel(config)
    rows = zip(turns.prompt_N.tolist(), turns.tokens_N.tolist(), turns.busy_N.tolist(), turns.tool_s_N.tolist(), strict=True)
    return np.array([model.spoken_s(0.0, int(p), int(n), int(busy)) + tool_s for p, n, busy, tool_s in rows])


def rollout_sums(turns: Timings, value_N: Float64Array) -> Float64Array:
    """The sum of a value over each rollout's turns: agent-seconds. [R]"""
    _, place_N = np.unique(turns.rollout_N, return_inverse=True)
    sums = np.zeros(int(place_N.max()) + 1)
    np.add.at(sums, place_N, value_N)
    return sums


def relative_errors(derived_X: Float64Array, measured_X: Float64Array) -> Float64Array:
    """|derived - measured| / measured, element by element; measured times are positive."""
    return np.abs(derived_X - measured_X) / measured_X


def warnings_of(turns: Timings, derived_s_N: Float64Array) -> list[str]:
    """Where the model is off by more than a fifth: turns of a kind whose mean is, and rollouts if a tenth of them are."""
    found = []
    for name, value_N in (("busy agents", turns.busy_N), ("prompt tokens", turns.prompt_N), ("sampled tokens", turns.tokens_N)):
        for low, high, mask_N in _bins(value_N):
            measured_s, model_s = float(turns.measured_s_N[mask_N].mean()), float(derived_s_N[mask_N].mean())
            if abs(model_s / measured_s - 1) > OFF:
                size = f"{low:g}" if low == high else f"{low:g} to {high:g}"
                found.append(
                    f"turns with {size} {name} take {measured_s:.3g} s, the model says {model_s:.3g} s "
                    f"({100 * (model_s / measured_s - 1):+.0f} %, {int(mask_N.sum())} turns)"
                )
    off_R = relative_errors(rollout_sums(turns, derived_s_N), rollout_sums(turns, turns.measured_s_N)) > OFF
    if off_R.mean() > 0.1:
        found.append(f"{int(off_R.sum())} of {len(off_R)} rollouts are off by more than {100 * OFF:g} %")
    return found


def _bins(value_N: Float64Array) -> list[tuple[float, float, Float64Array]]:
    """Up to four bins of about equally many turns: least and greatest value, and which turns."""
    edges = np.unique(np.quantile(value_N, [0.0, 0.25, 0.5, 0.75], method="lower"))
    place_N = np.searchsorted(edges, value_N, side="right")
    masks = [place_N == place for place in range(1, len(edges) + 1)]
    return [(float(value_N[m].min()), float(value_N[m].max()), m) for m in masks if m.sum() >= LEAST_GROUP]


@dataclass(frozen=True, slots=True)
class Calibration:
    """Fitted constants, and the errors of rollouts and turns that the fit has not seen."""

    constants: LatencyConfig
    tool_overhead_s: float  # of turn_overhead_s, what tools are late on average
    errors: dict[str, float]
    warnings: list[str]
    unseen: Timings
    derived_s_N: Float64Array  # of the unseen turns


def calibrate(turns: Timings) -> Calibration:
    """Fit on every other rollout, tell the errors on the rest. Raises DataError for less than two rollouts."""
    even_N = turns.rollout_N % 2 == 0
    seen, unseen = turns.of(even_N), turns.of(~even_N)
    if not len(unseen) or not len(seen):
        raise DataError("A calibration needs the turns of at least two rollouts, to fit on one and check on the other.")
    constants = fit(seen)
    model_s_N = derived_s(unseen, constants)
    late_s = float(turns.tool_late_s_N.mean())
    errors, warnings = errors_of(unseen, model_s_N), warnings_of(unseen, model_s_N)
    for name in ("prefill_tps", "decode_tps"):
        if getattr(constants, name) > UNMEASURABLE_TPS / 2:
            warnings.append(f"{name} could not be told from turn_overhead_s: those tokens cost next to nothing here")
    return Calibration(constants, late_s, errors, warnings, unseen, model_s_N)


def errors_of(turns: Timings, derived_s_N: Float64Array) -> dict[str, float]:
    """Median and 90th percentile of the relative error of rollouts, of turns, and of rollouts without their tool time."""
    spoken_s_N = np.maximum(turns.measured_s_N - turns.tool_s_N, 1e-9)
    pairs = {
        "rollout": (rollout_sums(turns, derived_s_N), rollout_sums(turns, turns.measured_s_N)),
        "turn": (derived_s_N, turns.measured_s_N),
        "rollout_without_tools": (rollout_sums(turns, derived_s_N - turns.tool_s_N), rollout_sums(turns, spoken_s_N)),
    }
    errors = {}
    for name, (model_X, measured_X) in pairs.items():
        error_X = relative_errors(model_X, measured_X)
        errors[f"{name}_median"], errors[f"{name}_p90"] = (float(q) for q in np.quantile(error_X, [0.5, 0.9]))
    return errors
