"""The ledger of an iteration: every dispatched rollout is trained or excluded for a reason, also by decile of duration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcr_core.errors import DataError
from rlcr_core.types import Rollout, StopReason

DECILES = 10


def _deciles_of(rollouts: Sequence[Rollout]) -> list[int]:
    """The decile of each rollout's duration: equal durations share the one of their middle rank."""
    ends = np.asarray([rollout.end_s for rollout in rollouts], dtype=np.float64)
    ordered = np.sort(ends)
    first, last = np.searchsorted(ordered, ends, "left"), np.searchsorted(ordered, ends, "right") - 1
    deciles: list[int] = (DECILES * (first + last) // (2 * len(ends))).tolist()
    return deciles


def _check_ledger(keys: Sequence[tuple[int, int]], failed: set[tuple[int, int]], excluded: Iterable[tuple[int, int]]) -> None:
    twice = sorted(key for key, count in Counter(keys).items() if count > 1)
    unknown = sorted(set(excluded) - set(keys))
    trained_failures = sorted(failed - set(excluded))
    for what, bad, advice in (
        ("dispatched more than once", twice, "count each rollout's last attempt only"),
        ("excluded but never dispatched", unknown, "pass every dispatched rollout, failed ones included"),
        ("failed but not excluded", trained_failures, "exclude failed rollouts before the baseline is computed"),
    ):
        if bad:
            raise DataError(
                f"The ledger does not add up: {len(bad)} (group, rollout) {what}: {bad[:5]}; expected none; {advice}."
            )


def ledger(rollouts_dispatched: Sequence[Rollout], excluded: Mapping[tuple[int, int], str]) -> dict[str, Any]:
    """Plain JSON that accounts for every rollout: dispatched = trained + the sum of excluded by reason, also by decile.

    `excluded` maps (group, rollout) to a reason. `deciles` has ten rows from the shortest rollouts to the longest, each
    with low_s and high_s (null when empty), dispatched, trained and excluded; equal durations are in one row. Raises
    DataError when a rollout is dispatched twice, excluded without having been dispatched, or failed yet not excluded.
    """
    keys = [(rollout.key.group, rollout.key.rollout) for rollout in rollouts_dispatched]
    failed = {key for key, rollout in zip(keys, rollouts_dispatched, strict=True) if rollout.stop_reason is StopReason.FAILED}
    _check_ledger(keys, failed, excluded)
    deciles = _deciles_of(rollouts_dispatched) if keys else []
    rows = []
    for decile in range(DECILES):
        members = [i for i, d in enumerate(deciles) if d == decile]
        ends = [rollouts_dispatched[i].end_s for i in members]
        out = sum(keys[i] in excluded for i in members)
        rows.append({
            "low_s": min(ends, default=None), "high_s": max(ends, default=None), "dispatched": len(members),
            "trained": len(members) - out, "excluded": out,
        })  # fmt: skip
    return {
        "dispatched": len(keys),
        "trained": len(keys) - len(excluded),
        "excluded": dict(sorted(Counter(excluded.values()).items())),
        "deciles": rows,
    }
