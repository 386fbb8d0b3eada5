"""What the grid shows beyond one limit and one task set: tidy rows of figures with intervals, paired by task.

Each function takes the grid and gives plain rows for summary.json; an empty list where its cells were not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlcr_core import attempts as independent
from rlcr_core.censoring import Censored
from rlcr_core.clock import LatencyModel, calibrated
from rlcr_core.config import EvaluationConfig, Params
from rlcr_core.frontier import Point, frontier
from rlcr_core.matched_tokens import matched_tokens
from rlcr_core.metrics import return_curve
from rlcr_core.rescoring import returns_at_limits
from rlcr_core.statistics import bootstrap_mean, clustered, paired_difference
from rlcr_core.time_to_score import TimeRatio, time_ratios
from rlcr_core.token_budget import tokens_curve
from rlcr_core.types import Float64Array, Rollout
from tasks.grid import MAIN, Grid
from tasks.intervals import entry, options

Row = dict[str, Any]
SINGLES = ("solo_long", "alone_long")
SCORES = 20  # of the curve of time ratios, from a twentieth of the collective's own return to all of it
STEPS = 40  # of the curves of return against tokens


def censored_entry(value: Censored, prefix: str) -> dict[str, float | None]:
    """A censored estimate's fields; None where it lies beyond what was observed."""
    return {f"{prefix}mean": value.value, f"{prefix}low": value.low, f"{prefix}high": value.high, f"{prefix}share": value.share}


def ratio_entry(ratio: TimeRatio, prefix: str) -> dict[str, float | None]:
    fields = {"mean": ratio.value, "low": ratio.low, "high": ratio.high, "at_least": ratio.at_least, "time_s": ratio.time_b_s}
    return {f"{prefix}{name}": value for name, value in fields.items()}


def returns_at(rollouts: Sequence[Rollout], limit_s: float) -> Float64Array:
    """Mean return at a limit of each task [K], by task id."""
    return returns_at_limits(rollouts, [limit_s])[1][:, 0]


def limits(grid: Grid, config: EvaluationConfig) -> list[Row]:
    """Each swept organisation under each limit: `fresh` rollouts that were told it, `rescored` ones of the longest limit,
    whose agents thought they had more time, and fresh minus rescored.
    """
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        longest = grid.get((name, config.limit_s, MAIN, seed))
        if family != MAIN or longest is None or limit_s >= config.limit_s or name not in config.swept:
            continue
        fresh, rescored = returns_at(rollouts, limit_s), returns_at(longest, limit_s)
        hires = float(np.mean([r.n_hires for r in rollouts]))
        rows.append(
            {"organisation": name, "seed": seed, "limit_s": limit_s, "hires": hires}
            | entry(bootstrap_mean(fresh, **options(config)), "fresh_")
            | entry(bootstrap_mean(rescored, **options(config)), "rescored_")
            | entry(paired_difference(fresh, rescored, **options(config)), "difference_")
        )
    return sorted(rows, key=lambda row: (row["organisation"], row["seed"], row["limit_s"]))


def families(grid: Grid, config: EvaluationConfig) -> list[Row]:
    """Each swept organisation on each family of tasks, and by how much the trained collective is ahead of it there."""
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        if limit_s != config.limit_s or name not in config.swept:
            continue
        returns = returns_at(rollouts, limit_s)
        row = {"family": family, "organisation": name, "seed": seed, "tasks": len(returns)}
        row |= entry(bootstrap_mean(returns, **options(config)))
        collective = grid.get(("collective", limit_s, family, seed))
        if collective is not None and name != "collective":
            row |= entry(paired_difference(returns_at(collective, limit_s), returns, **options(config)), "behind_")
        rows.append(row)
    return sorted(rows, key=lambda row: (row["family"], row["organisation"], row["seed"]))


def attempts(grid: Grid, config: EvaluationConfig) -> list[Row]:
    """Independent attempts: what one gives, what an oracle and what the attempts' own claims pick, and the collective's lead."""
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        if name != "attempts":
            continue
        row: Row = {"family": family, "seed": seed, "limit_s": limit_s, "attempts": config.attempts}
        row["tokens"] = float(independent.total_tokens(rollouts).mean())
        collective = grid.get(("collective", limit_s, family, seed))
        for pick, returns in (
            ("one", independent.mean_returns(rollouts)),
            ("oracle", independent.oracle_returns(rollouts)),
            ("claimed", independent.claimed_returns(rollouts)),
        ):
            row |= entry(bootstrap_mean(returns, **options(config)), f"{pick}_")
            if collective is not None:
                lead = paired_difference(returns_at(collective, limit_s), returns, **options(config))
                row |= entry(lead, f"collective_minus_{pick}_")
        rows.append(row)
    return sorted(rows, key=lambda row: (row["family"], row["seed"], row["limit_s"]))


def matched(grid: Grid, params: Params) -> list[Row]:
    """The single agent, given the collective's tokens: its return then, and how much longer it takes, at equal tokens and at
    equal score.
    """
    config, latency = params.evaluation, LatencyModel(calibrated(params.latency))
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        collective = grid.get(("collective", limit_s, family, seed))
        if name not in SINGLES or collective is None:
            continue
        found = matched_tokens(collective, rollouts, latency, **options(config))
        rows.append(
            {"single": name, "family": family, "seed": seed, "limit_s": limit_s, "spent_share": found.spent_share}
            | entry(found.tokens, "tokens_")
            | entry(found.single_return, "return_")
            | entry(found.difference, "behind_")
            | censored_entry(found.time_at_tokens_s, "time_at_tokens_s_")
            | censored_entry(found.time_ratio_at_tokens, "time_ratio_at_tokens_")
            | ratio_entry(found.at_score, "time_ratio_at_score_")
        )
    return rows


def time_curve(grid: Grid, config: EvaluationConfig) -> list[Row]:
    """How many times as long as the collective a single agent needs for each score, up to what the collective earns."""
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        collective = grid.get(("collective", limit_s, family, seed))
        if name not in SINGLES or collective is None:
            continue
        ours_s, theirs_s = _times(limit_s), _times(rollouts[0].limit_s)
        ours, theirs = _curves(collective, ours_s), _curves(rollouts, theirs_s)
        shares = [(i + 1) / SCORES for i in range(SCORES)]
        for ratio in time_ratios(ours, ours_s, theirs, theirs_s, shares, of_own_return=True, **options(config)):
            rows.append({"single": name, "family": family, "seed": seed, "score": ratio.score} | ratio_entry(ratio, ""))
    return rows


def points(grid: Grid, config: EvaluationConfig) -> list[Row]:
    """Latency and return of every way of working on the test tasks, and which of them no other beats in both."""
    found: list[Row] = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        if family != MAIN or name in (*SINGLES, "attempts"):
            continue
        returns = bootstrap_mean(returns_at(rollouts, limit_s), **options(config))
        end_s, hires = (float(np.mean([getattr(r, what) for r in rollouts])) for what in ("end_s", "n_hires"))
        found.append({"organisation": name, "seed": seed, "limit_s": limit_s, "end_s": end_s, "hires": hires} | entry(returns))
    for seed in {row["seed"] for row in found}:
        members = [row for row in found if row["seed"] == seed]
        best = {p.name for p in frontier(Point(row["end_s"], row["mean"], str(i)) for i, row in enumerate(members))}
        for i, row in enumerate(members):
            row["is_best"] = str(i) in best
    return found


def token_curves(grid: Grid, params: Params) -> list[Row]:
    """Mean tokens and mean return by each time: what more inference buys, organisation by organisation on the test tasks."""
    latency = LatencyModel(calibrated(params.latency))
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        if family != MAIN or limit_s != params.evaluation.limit_s or name == "attempts":
            continue
        grid_s = np.linspace(0.0, rollouts[0].limit_s, STEPS + 1)
        tokens = np.mean([tokens_curve(r, grid_s, latency) for r in rollouts], axis=0)
        returns = np.mean([return_curve(r, grid_s) for r in rollouts], axis=0)
        rows += [
            {"organisation": name, "seed": seed, "time_s": float(t), "tokens": float(n), "return": float(value)}
            for t, n, value in zip(grid_s, tokens, returns, strict=True)
        ]
    return rows


def _times(limit_s: float) -> Float64Array:
    return np.append(np.arange(0.0, limit_s, 0.5), limit_s)


def _curves(rollouts: Sequence[Rollout], grid_s: Float64Array) -> Float64Array:
    return clustered(np.stack([return_curve(r, grid_s) for r in rollouts]), [r.task_id for r in rollouts])[1]


def evidence(grid: Grid, params: Params) -> dict[str, list[Row]]:
    """All rows, by kind."""
    config = params.evaluation
    return {
        "limits": limits(grid, config),
        "families": families(grid, config),
        "attempts": attempts(grid, config),
        "matched": matched(grid, params),
        "time_curve": time_curve(grid, config),
        "points": points(grid, config),
        "token_curves": token_curves(grid, params),
    }
