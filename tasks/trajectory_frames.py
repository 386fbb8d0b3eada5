"""Trajectory tables as data frames of scalars, the form in which Great Expectations can judge them.

Lists become counts, rules between rows become one number in each row, and whatever cannot be computed because a value
is NaN becomes infinity on the wrong side, so that no rule passes for lack of a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rlcr_core.contexts import MAX_LOGPROB
from rlcr_core.store import Tables
from rlcr_core.types import EventType

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Frames:
    """One row per turn and one per rollout; the column `row` numbers them."""

    turns: pd.DataFrame
    rollouts: pd.DataFrame


def _array(table: pa.Table, name: str) -> NDArray[Any]:
    return table[name].combine_chunks().to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _lengths(table: pa.Table, name: str) -> IntArray:
    return pc.list_value_length(table[name]).combine_chunks().to_numpy(zero_copy_only=False).astype(np.int64)  # type: ignore[no-any-return]


def _bad_logprobs(table: pa.Table) -> IntArray:
    """How many logprobs of each turn are not finite or above 0."""
    column = table["logprobs"].combine_chunks()
    flat, ends = column.values.to_numpy(zero_copy_only=False), column.offsets.to_numpy()
    bad = np.concatenate([[0], np.cumsum(~(np.isfinite(flat) & (flat <= MAX_LOGPROB)))])
    return bad[ends[1:]] - bad[ends[:-1]]  # type: ignore[no-any-return]


def _worst(values: FloatArray, worst: float) -> FloatArray:
    return np.where(np.isnan(values), worst, values)


def _locate(table: pa.Table, codes: IntArray) -> IntArray:
    """For each row the position of its rollout in sorted `codes`, -1 where there is none."""
    own = _codes(table)
    if not len(codes):
        return np.full(len(own), -1, np.int64)
    place = np.minimum(np.searchsorted(codes, own), len(codes) - 1)
    return np.where(codes[place] == own, place, -1).astype(np.int64)


def _codes(table: pa.Table) -> IntArray:
    return (_array(table, "group").astype(np.int64) << 32) + _array(table, "rollout").astype(np.int64)


def _turn_frame(tables: Tables, version: int) -> pd.DataFrame:
    turns = tables.turns
    codes = _codes(tables.rollouts)
    order = np.argsort(codes, kind="stable")
    place = _locate(turns, codes[order])
    limits = _array(tables.rollouts, "limit_s")[order]
    limit = np.where(place >= 0, limits[place] if len(limits) else np.nan, np.nan)
    agents = set(zip(_codes(tables.agents).tolist(), _array(tables.agents, "agent").tolist(), strict=True))
    own, agent = _codes(turns), _array(turns, "agent")
    start, end = _array(turns, "start_s"), _array(turns, "end_s")
    index, context = _array(turns, "index"), _array(turns, "context")
    later = np.zeros(len(own), bool)  # a turn that follows another one of the same agent
    later[1:] = (own[1:] == own[:-1]) & (agent[1:] == agent[:-1])
    return pd.DataFrame(
        {
            "row": np.arange(len(own)),
            "n_tokens": _lengths(turns, "action_ids"),
            "n_logprobs": _lengths(turns, "logprobs"),
            "n_bad_logprobs": _bad_logprobs(turns),
            "duration_s": _worst(end - start, -np.inf),
            "left_at_start_s": _worst(limit - start, -np.inf),
            "overtime_s": np.where(_array(turns, "cut"), 0.0, _worst(end - limit, np.inf)),
            "kind": _array(turns, "kind"),
            "version_gap": _array(turns, "policy_version") - version,
            "index_step": np.where(later, np.diff(index, prepend=0), index + 1),
            "context_step": np.where(later, np.diff(context, prepend=0), context),
            "idle_s": _worst(np.where(later, start - np.concatenate([[0.0], end[:-1]]), start), -np.inf),
            "is_employed": np.array([pair in agents for pair in zip(own.tolist(), agent.tolist(), strict=True)], bool),
        }
    )


def _rollout_frame(tables: Tables, limit_s: float) -> pd.DataFrame:
    rollouts, events = tables.rollouts, tables.events
    codes = _codes(rollouts)
    order = np.argsort(codes, kind="stable")
    place = _locate(events, codes[order])
    known = place >= 0
    owner = order[place[known]]
    time, value = _array(events, "time_s")[known], _array(events, "value")[known]
    is_reward = _array(events, "type")[known] == EventType.REWARD.value
    finite = np.isfinite(time) & np.isfinite(value)
    _, which, counts = np.unique(codes, return_inverse=True, return_counts=True)
    limits, returns = _array(rollouts, "limit_s"), _array(rollouts, "return")
    counted = is_reward & finite & (time <= limits[owner])
    earned = np.bincount(owner[counted], weights=value[counted], minlength=len(codes))
    return pd.DataFrame(
        {
            "row": np.arange(len(codes)),
            "group": _array(rollouts, "group"),
            "rollout": _array(rollouts, "rollout"),
            "n_occurrences": counts[which],
            "return": _worst(returns, np.inf),
            "return_gap": np.abs(_worst(returns - earned, np.inf)),
            "limit_gap_s": np.abs(_worst(limits - limit_s, np.inf)),
            "overtime_s": _worst(_array(rollouts, "end_s") - limits, np.inf),
            "n_bad_events": np.bincount(owner[~finite], minlength=len(codes)),
            "stop_reason": _array(rollouts, "stop_reason"),
        }
    )


def frames_of(tables: Tables, version: int, limit_s: float) -> Frames:
    """Derived scalars of every turn and rollout; `version` and `limit_s` are what the iteration's plan says."""
    return Frames(_turn_frame(tables, version), _rollout_frame(tables, limit_s))
