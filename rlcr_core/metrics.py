"""Metrics of rollouts as `family/name`, return curves, and the ledger. Keys are the same in files, MLflow and docs.

The caller chooses the rollouts: an iteration logs all that were dispatched (prefix "all") beside those trained, because
a metric over the survivors alone rises when bad rollouts are dropped. Counts are means per rollout, unless the name is
`total` or the family `stop`. Rates and shares are pooled: sum over sum, not the mean of each rollout's. A key whose
denominator is zero (no message was judged, nobody hired) is absent, never 0 or NaN. Useful work is the tokens of `work`
turns; seconds are seconds of rollouts (end_s), not of agents.

The environment reports through WORK events: text `done duplicate=1 received_key=0` is the result's code, then facts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rlcr_core.errors import DataError
from rlcr_core.types import EventType, Float64Array, Rollout, StopReason, TurnKind

TEAM_SIZES = ((0, 0), (1, 2), (3, 4), (5, 8))
DECILES = 10


def return_curve(rollout: Rollout, grid_s: Float64Array) -> Float64Array:
    """The return earned by each time of a grid, flat after the rollout's limit. [T] seconds -> [T] returns."""
    rewards = [(e.time_s, e.value) for e in rollout.events if e.type is EventType.REWARD]
    rewards.sort(key=lambda reward: reward[0])
    earned = np.concatenate([[0.0], np.cumsum([value for _, value in rewards])])
    times = np.asarray([time_s for time_s, _ in rewards], dtype=np.float64)
    grid = np.minimum(np.asarray(grid_s, dtype=np.float64), rollout.limit_s)
    curve: Float64Array = earned[np.searchsorted(times, grid, side="right")]
    return curve


def team_size_bucket(n_hires: int) -> str:
    """The bucket of a number of hires: `0`, `1_2`, `3_4`, `5_8`, or `9_up` beyond what training allows."""
    for low, high in TEAM_SIZES:
        if low <= n_hires <= high:
            return f"{low}" if low == high else f"{low}_{high}"
    return "9_up"


def team_size_buckets(rollouts: Iterable[Rollout]) -> dict[str, list[Rollout]]:
    """The rollouts of each bucket of team sizes; empty buckets are absent."""
    found: dict[str, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        found[team_size_bucket(rollout.n_hires)].append(rollout)
    return dict(found)


def work_result(text: str) -> tuple[str, dict[str, float]]:
    """Code and facts of a WORK event's text: `bad received_key=1` -> ("bad", {"received_key": 1.0}).

    Raises DataError when a word `key=value` has no number.
    """
    words = text.split()
    facts: dict[str, float] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if equals:
            try:
                facts[key] = float(value)
            except ValueError:
                raise DataError(
                    f"The work event {text!r} gives {key} the value {value!r}, expected a number; "
                    "correct the info of the environment's CallResult."
                ) from None
    return (words[0] if words else ""), facts


def tokens_by_kind(rollouts: Iterable[Rollout]) -> Counter[TurnKind]:
    """Sampled tokens of the turns of each kind."""
    counts: Counter[TurnKind] = Counter()
    for rollout in rollouts:
        for turn in rollout.turns():
            counts[turn.kind] += turn.n_tokens
    return counts


def _ratio(key: str, numerator: float, denominator: float) -> dict[str, float]:
    return {key: float(numerator / denominator)} if denominator else {}


def _seconds(rollouts: Iterable[Rollout]) -> float:
    return sum(rollout.end_s for rollout in rollouts)


def _reward(rollouts: Sequence[Rollout]) -> dict[str, float]:
    groups: dict[tuple[str, int, int], list[float]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.key[:3]].append(rollout.return_)
    returns = np.asarray([rollout.return_ for rollout in rollouts])
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
        **_ratio("roster/time_of_first_hire_s", sum(first), len(first)),
    }


def _work(rollouts: Sequence[Rollout], useful: int) -> dict[str, float]:
    n = len(rollouts)
    facts = [work_result(e.text)[1] for rollout in rollouts for e in rollout.events if e.type is EventType.WORK]
    duplicate, failed, received = (sum(fact.get(name, 0.0) for fact in facts) for name in ("duplicate", "failed", "received_key"))
    found = {
        "work/useful_tokens": useful / n,
        "work/calls": len(facts) / n,
        "work/received_key_mean": received / n,
        **_ratio("work/useful_tokens_per_s", useful, _seconds(rollouts)),
        **_ratio("work/duplicate_share", duplicate, len(facts)),
        **_ratio("work/failed_share", failed, len(facts)),
        **_ratio("work/received_key_share", received, len(facts)),
    }
    for bucket, members in team_size_buckets(rollouts).items():
        tokens = tokens_by_kind(members)[TurnKind.WORK]
        found |= _ratio(f"work/useful_tps_hires_{bucket}", tokens, _seconds(members))
    return found


def _talk(rollouts: Sequence[Rollout], tokens: int) -> dict[str, float]:
    truths = [e.value for rollout in rollouts for e in rollout.events if e.type is EventType.MESSAGE]
    judged = [truth for truth in truths if truth >= 0]
    return {
        "talk/messages": len(truths) / len(rollouts),
        **_ratio("talk/true_share", sum(judged), len(judged)),
        **_ratio("talk/intensity_tps", tokens, _seconds(rollouts)),
    }


def _volume(rollouts: Sequence[Rollout], tokens: Counter[TurnKind]) -> dict[str, float]:
    n = len(rollouts)
    total = sum(tokens.values())
    cuts = [turn.cut for rollout in rollouts for turn in rollout.turns()]
    found = {
        "tokens/total": float(total),
        "tokens/per_rollout": total / n,
        "turns/total": float(len(cuts)),
        **_ratio("turns/cut_share", sum(cuts), len(cuts)),
        "time/limit_s": sum(rollout.limit_s for rollout in rollouts) / n,
        "time/end_s": _seconds(rollouts) / n,
    }
    for kind in TurnKind:
        found |= _ratio(f"tokens/share_{kind.value}", tokens[kind], total)
    stops = Counter(rollout.stop_reason for rollout in rollouts)
    return found | {f"stop/{reason.value}": float(stops[reason]) for reason in StopReason}


def iteration_metrics(rollouts: Sequence[Rollout], prefix: str = "") -> dict[str, float]:
    """All metrics of these rollouts, `family/name` or `prefix/family/name`; {} for no rollouts.

    Standard deviations are of the population; group_std is the mean over groups of the one within a group.
    """
    if not rollouts:
        return {}
    tokens = tokens_by_kind(rollouts)
    found = {
        **_reward(rollouts),
        **_roster(rollouts),
        **_work(rollouts, tokens[TurnKind.WORK]),
        **_talk(rollouts, tokens[TurnKind.TALK]),
        **_volume(rollouts, tokens),
    }
    return {f"{prefix.rstrip('/')}/{key}" if prefix else key: value for key, value in found.items()}


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
