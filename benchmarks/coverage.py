"""How often the 95 % intervals of the evaluation hold the truth, by simulation: `python -m benchmarks.coverage`.

Each case draws tasks (and seeds) from a population whose answer is known, builds the interval as the evaluation does, and
counts how often it holds that answer. Printed is a Markdown table: coverage with its Monte Carlo standard error for 16 and
64 tasks. The same command prints the same table; --repetitions and --resamples trade time for precision.
"""

from __future__ import annotations

import argparse
import math
import zlib
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np

from rlcr_core.across_seeds import crossed_interval, hierarchical_interval, seed_interval
from rlcr_core.clock import LatencyModel
from rlcr_core.config import LatencyConfig
from rlcr_core.matched_tokens import matched_tokens
from rlcr_core.precision import expanded_confidence, half_width, tasks_needed
from rlcr_core.ratios import ratio_of_means
from rlcr_core.scalability import amdahl, fit_scalability, usl
from rlcr_core.statistics import bootstrap_mean, crossing_time, paired_difference
from rlcr_core.time_to_score import time_ratios, time_to_score
from rlcr_core.types import Event, EventType, Float64Array, Rollout, RolloutKey, StopReason, Turn, TurnKind

TASKS = (16, 64)
Outcomes = dict[str, bool]
Simulation = Callable[[np.random.Generator, int, int], Outcomes]  # (generator, tasks, resamples)
CLOCK = LatencyModel(LatencyConfig(turn_overhead_s=1.0, prefill_tps=10.0, decode_tps=1.0))
SIZES = np.asarray([1.0, 2, 4, 8, 16, 32, 64])


def holds(low: float | None, high: float | None, truth: float) -> bool:
    """Whether the bounds, infinite where None, hold the truth; equality counts but for rounding."""
    low, high = (math.inf if bound is None else bound for bound in (low, high))
    return low - 1e-9 <= truth <= high + 1e-9


def within(interval: Any, truth: float) -> bool:
    return holds(interval.low, interval.high, truth)


def difficulty(rng: np.random.Generator, tasks: int) -> Float64Array:
    """[K] factors that a task's values have in common: log-normal, mean 1, coefficient of variation about 0.4."""
    return np.asarray(rng.lognormal(-0.08, 0.4, tasks))


def curves(rng: np.random.Generator, rate_K: Float64Array, grid_s: Float64Array) -> Float64Array:
    """[K, T] rising curves of irregular steps whose mean at t is rate * t."""
    steps = np.diff(grid_s, prepend=0.0)
    return np.asarray(rate_K[:, None] * np.cumsum(rng.gamma(0.5, 2.0, (len(rate_K), len(grid_s))) * steps, axis=1))


def means(rng: np.random.Generator, tasks: int, resamples: int) -> Outcomes:
    """Returns of a team and of one agent, correlated by task, and a heavy-tailed count."""
    shared = difficulty(rng, tasks)
    a, b = 0.6 * shared * rng.uniform(0.7, 1.3, tasks), 0.2 * shared * rng.uniform(0.7, 1.3, tasks)
    skewed = rng.exponential(1.0, tasks)
    wide = expanded_confidence(0.95, tasks)
    mean, difference = partial(bootstrap_mean, resamples=resamples), partial(paired_difference, resamples=resamples)
    ratio = partial(ratio_of_means, resamples=resamples)
    return {
        "mean": within(mean(a), 0.6),
        "mean, expanded": within(mean(a, confidence=wide), 0.6),
        "mean of exponential values": within(mean(skewed), 1.0),
        "mean of exponential values, expanded": within(mean(skewed, confidence=wide), 1.0),
        "paired difference": within(difference(a, b), 0.4),
        "paired difference, expanded": within(difference(a, b, confidence=wide), 0.4),
        "ratio of means": within(ratio(a, b), 3.0),
        "ratio of means, expanded": within(ratio(a, b, confidence=wide), 3.0),
    }


def times(rng: np.random.Generator, tasks: int, resamples: int) -> Outcomes:
    """One organisation earns 0.01 a second, the other a quarter of it; a third starts at 19.9 s and earns 0.02."""
    grid, long_grid, wide = np.arange(0.5, 80.1, 0.5), np.arange(1.0, 320.1, 1.0), expanded_confidence(0.95, tasks)
    shared = difficulty(rng, tasks)
    fast = curves(rng, 0.01 * shared, grid)
    slow = curves(rng, 0.0025 * shared * rng.uniform(0.5, 1.5, tasks), long_grid)
    late = curves(rng, 0.02 * shared * rng.uniform(0.5, 1.5, tasks), grid) - 0.398
    cut = long_grid <= 160  # the mean of `slow` reaches 0.4 at 160 s: about half of all samples do not within that
    found: Outcomes = {}
    for name, confidence in (("", 0.95), (", expanded", wide)):
        options: dict[str, Any] = {"resamples": resamples, "confidence": confidence}
        (ratio,) = time_ratios(fast, grid, slow, long_grid, [0.4], **options)
        (censored,) = time_ratios(fast, grid, slow[:, cut], long_grid[cut], [0.4], **options)
        # An interval for a ratio that was not seen whole must hold the true one: bounds of nothing (None) do.
        found |= {
            f"time to a score{name}": within(time_to_score(fast, grid, 0.4, **options), 40.0),
            f"time ratio at equal score{name}": within(ratio, 4.0),
            f"time ratio, half of the samples censored{name}": within(censored, 4.0),
        }
    crossing = crossing_time(late, fast, grid, resamples=resamples)
    return found | {"crossing time": holds(crossing.low_s, crossing.high_s, 40.0)}


def rollout(task: int, limit_s: float, tokens: int, rewards: Iterable[tuple[float, float]]) -> Rollout:
    """One agent that reads for a second, then speaks its tokens, one a second."""
    turn = Turn(0, 0, 0, (), (0,) * tokens, (0.0,) * tokens, 0.0, 1.0 + tokens, TurnKind.WORK, 0)
    events = [Event(time_s, EventType.REWARD, 0, value=value) for time_s, value in rewards]
    return Rollout(
        RolloutKey("coverage", 0, task, 0), f"{task:04}", limit_s, 0, trajectories={0: [turn]}, events=events,
        stop_reason=StopReason.DEADLINE, end_s=limit_s,
    )  # fmt: skip


def matched(rng: np.random.Generator, tasks: int, resamples: int) -> Outcomes:
    """Collectives that spend 30 to 50 tokens in 41 s and earn 0.8, single agents that earn 0.01 a token.

    At 40 tokens on average the single agent has 0.4; the collective's return at 41 s takes it 1 + 80 s.
    """
    shared = difficulty(rng, tasks)
    spent, lucky = rng.integers(30, 51, tasks), shared * rng.uniform(0.5, 1.5, tasks)
    gains = 0.01 * shared[:, None] * rng.gamma(0.5, 2.0, (tasks, 240))
    collective = [rollout(k, 41.0, int(spent[k]), [(20.0, 0.4 * lucky[k]), (41.0, 0.4 * lucky[k])]) for k in range(tasks)]
    single = [rollout(k, 241.0, 240, ((2.0 + i, gain) for i, gain in enumerate(gains[k]))) for k in range(tasks)]
    found = matched_tokens(collective, single, CLOCK, step_s=1.0, resamples=resamples)
    return {
        "return at matched tokens": within(found.single_return, 0.4),
        "collective minus single at matched tokens": within(found.difference, 0.4),
        "time at matched tokens": within(found.time_at_tokens_s, 41.0),
        "time ratio at the collective's score": within(found.at_score, 81 / 41),
    }


def scaling(rng: np.random.Generator, tasks: int, resamples: int) -> Outcomes:
    """Each task at every team size: a task's level, noise of 10 %, and a law."""
    level = difficulty(rng, tasks)[:, None] * rng.uniform(0.8, 1.2, (tasks, len(SIZES)))
    names = [f"{k:04}" for k in range(tasks) for _ in SIZES]
    universal, parallel = (
        fit_scalability(np.tile(SIZES, tasks), (level * law).ravel(), names, resamples=resamples)
        for law in (usl(SIZES, 2.0, 0.05, 1e-3), 2.0 * amdahl(SIZES, 0.9))
    )
    return {
        "USL: sigma": within(universal.universal.sigma, 0.05),
        "USL: kappa": within(universal.universal.kappa, 1e-3),
        "USL: peak team size": within(universal.universal.peak, math.sqrt(0.95 / 1e-3)),
        "Amdahl: parallel share": within(parallel.amdahl.parallel_share, 0.9),
    }


def seeds(rng: np.random.Generator, tasks: int, resamples: int, *, n_seeds: int) -> Outcomes:
    """Returns of policies (standard deviation 0.05) on tasks (0.2), with 0.1 of their own: for both as drawn, and anew."""
    by_seed, by_task = rng.normal(0.5, 0.05, n_seeds), rng.normal(0.0, 0.2, tasks)
    table = by_seed[:, None] + by_task + rng.normal(0.0, 0.1, (n_seeds, tasks))
    same_tasks = 0.5 + float(by_task.mean())
    other = by_seed[:, None] + rng.normal(0.0, math.hypot(0.2, 0.1), (n_seeds, tasks))  # each seed has its own tasks
    bootstrap = partial(hierarchical_interval, resamples=resamples)
    label = f"{n_seeds} seeds: "
    return {
        f"{label}t over seed means, for these tasks": within(seed_interval(table), same_tasks),
        f"{label}bootstrap of seed means, for these tasks": within(
            bootstrap_mean(table.mean(axis=1), resamples=resamples), same_tasks
        ),
        f"{label}t over seed means, for other tasks": within(seed_interval(table), 0.5),
        f"{label}crossed, for other tasks": within(crossed_interval(table), 0.5),
        f"{label}hierarchical bootstrap, for other tasks": within(bootstrap(table), 0.5),
        f"{label}t over seed means, own tasks each": within(seed_interval(other), 0.5),
        f"{label}hierarchical bootstrap, own tasks each": within(bootstrap(other, same_tasks=False), 0.5),
        f"{label}bootstrap of tasks, seeds averaged (wrong)": within(
            bootstrap_mean(table.mean(axis=0), resamples=resamples), 0.5
        ),
    }


def plans(rng: np.random.Generator, tasks: int, resamples: int) -> Outcomes:
    """Whether the interval on as many new tasks as a pilot planned is as narrow as was wanted, a tenth of the spread."""
    pilot = rng.normal(0.0, 1.0, tasks)
    found: Outcomes = {}
    for name, assurance in (("", None), (", assured 0.8", 0.8)):
        planned = tasks_needed(pilot, 0.1, assurance=assurance)
        found[f"plan kept{name}"] = half_width(rng.normal(0.0, 1.0, planned), planned) <= 0.1
    return found


SIMULATIONS: dict[str, Simulation] = {
    "means": means, "times": times, "matched": matched, "scaling": scaling,
    "five": partial(seeds, n_seeds=5), "twenty": partial(seeds, n_seeds=20), "plans": plans,
}  # fmt: skip


def coverage(name: str, tasks: int, repetitions: int, resamples: int) -> dict[str, float]:
    """Share of the repetitions of one simulation in which each interval holds the truth."""
    outcomes = []
    for repetition in range(repetitions):
        rng = np.random.default_rng([zlib.crc32(name.encode()), tasks, repetition])
        outcomes.append(SIMULATIONS[name](rng, tasks, resamples))
    return {interval: float(np.mean([outcome[interval] for outcome in outcomes])) for interval in outcomes[0]}


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--repetitions", type=int, default=400)
    arguments.add_argument("--resamples", type=int, default=400)
    options = arguments.parse_args()
    print("| interval | " + " | ".join(f"{tasks} tasks" for tasks in TASKS) + " |\n|---|" + "---|" * len(TASKS))
    for name in SIMULATIONS:
        columns = [coverage(name, tasks, options.repetitions, options.resamples) for tasks in TASKS]
        for interval in columns[0]:
            shares = [column[interval] for column in columns]
            errors = [math.sqrt(share * (1 - share) / options.repetitions) for share in shares]
            cells = " | ".join(f"{share:.3f} ± {error:.3f}" for share, error in zip(shares, errors, strict=True))
            print(f"| {interval} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
