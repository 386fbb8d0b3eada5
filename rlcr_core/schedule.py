"""The time limit of each iteration: it grows over training, so short-horizon coordination is learnt before long.

`constant`: `start_s`. `linear`: from `start_s` at iteration 0 to `end_s` at iteration `growth_iterations`.
`exponential`: the same with equal ratios instead of equal differences. `piecewise`: straight lines between `points`.
Each stays at its last value afterwards.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from rlcr_core.config import ScheduleConfig
from rlcr_core.errors import ConfigError, StoreError
from rlcr_core.types import Float64Array


def limit_at(config: ScheduleConfig, iteration: int) -> float:
    """The limit in seconds at an iteration, counted from 0. Raises ConfigError for a negative iteration."""
    if iteration < 0:
        raise ConfigError(f"Iterations are counted from 0, got {iteration}; check the iteration's plan.")
    if config.kind == "constant":
        return config.start_s
    if config.kind == "piecewise":
        iterations, limits_s = zip(*config.points, strict=True)
        return float(np.interp(iteration, iterations, limits_s))
    if iteration >= config.growth_iterations:
        return config.end_s
    share = iteration / config.growth_iterations
    if config.kind == "linear":
        return config.start_s + (config.end_s - config.start_s) * share
    return float(config.start_s * (config.end_s / config.start_s) ** share)


def limits(config: ScheduleConfig, iterations: int) -> Float64Array:
    """The limits in seconds of iterations 0 … `iterations` - 1, float64 [iterations]."""
    return np.array([limit_at(config, iteration) for iteration in range(iterations)], np.float64)


def write_schedule_csv(config: ScheduleConfig, iterations: int, path: str | Path) -> None:
    """Write columns iteration, limit_s; limits read back exactly. Raises StoreError when the file cannot be written."""
    rows = [f"{i},{float(limit_s)!r}" for i, limit_s in enumerate(limits(config, iterations))]
    try:
        Path(path).write_text("\n".join(["iteration,limit_s", *rows]) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}; free the disk or name another path.") from error
