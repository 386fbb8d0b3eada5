"""What the signs of life cost, in percent of a training iteration: `python -m benchmarks.metrics_cost [RUN]`.

RUN is a folder under runs/: the stored rollouts of its last iterations, and their seconds as timings.json has them.
Without it one iteration of params.yaml is played here, at evaluation.limit_s: its rollouts in one process by the policy
in the folder --policy (the repository's base), and one update; its seconds are then sampling divided by the number of
workers, and the update. Taken are processor seconds, the least of several passes: of the metrics of the rollouts, the
labels of their turns, the tokens that carry them (contexts with labels less contexts without), and the update's sums by
label. Run it with OMP_NUM_THREADS=1, without a RUN on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

import envs
from rlcr_core.config import Params, load_params
from rlcr_core.contexts import Context, contexts_of
from rlcr_core.labels import label_sums, labels_of
from rlcr_core.metrics import iteration_metrics
from rlcr_core.policy import load_policy
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.store import read_rollouts
from rlcr_core.types import Rollout, RolloutKey
from rlcr_core.update import Updater
from tasks.engines import build_engine
from tasks.paths import RunFolder
from tasks.task_sets import generate_split
from tasks.update import training_contexts

ROOT = Path(__file__).resolve().parents[1]
PASSES = 7
LAST = 3  # iterations of a run that are read


class Played(NamedTuple):
    """One iteration: its rollouts, and the real seconds that it took."""

    name: str
    rollouts: list[Rollout]
    iteration_s: float


def least_s(work: Callable[[], object]) -> float:
    """Processor seconds of the fastest of several passes: what else the machine does only ever adds to them."""
    seconds = []
    for _ in range(PASSES):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return min(seconds)


def stored(run: Path) -> list[Played]:
    folders = sorted((run / "iterations").glob("*/timings.json"))[-LAST:]
    return [
        Played(
            f"iteration {int(file.parent.name)}",
            read_rollouts(RunFolder(run).iteration(int(file.parent.name)) / "rollouts"),
            float(json.loads(file.read_text(encoding="utf-8"))["time/iteration_s"]),
        )
        for file in folders
    ]


def played(params: Params, policy: Path) -> Played:
    tasks, config = generate_split(params.task_set, "train"), params.rollouts
    specs = [
        RolloutSpec(RolloutKey("cost", 0, g, r), tasks[g], params.evaluation.limit_s)
        for g in range(config.tasks_per_iteration)
        for r in range(config.group_size)
    ]
    engine, tokenizer = build_engine(policy, params, tasks[0], 0)
    updater = Updater(load_policy(policy), params.update)
    started = time.perf_counter()
    rollouts = run_rollouts(specs, envs.make, engine, tokenizer, params)
    sampling_s = time.perf_counter() - started
    started = time.perf_counter()
    updater.step(training_contexts(rollouts, params.update), 0)
    return Played(str(policy.name), rollouts, sampling_s / config.workers + time.perf_counter() - started)


def contexts(rollouts: Sequence[Rollout], labels: Sequence[dict[int, list[int]] | None]) -> list[Context]:
    pairs = enumerate(zip(rollouts, labels, strict=True))
    return [context for i, (rollout, marks) in pairs for context in contexts_of(rollout, 1.0, i, marks)]


def costs(rollouts: list[Rollout]) -> dict[str, float]:
    """Seconds of each part."""
    labels = [labels_of(rollout) for rollout in rollouts]
    plain_s = least_s(lambda: contexts(rollouts, [None] * len(rollouts)))
    marked = [c.labels[c.is_action] for c in contexts(rollouts, labels) if c.labels is not None]
    label_N = np.concatenate(marked).astype(np.int64)
    ones_N = np.ones(len(label_N), np.float32)
    return {
        "metrics": least_s(lambda: iteration_metrics(rollouts)),
        "labels": least_s(lambda: [labels_of(rollout) for rollout in rollouts]),
        "labelled tokens": max(0.0, least_s(lambda: contexts(rollouts, labels)) - plain_s),
        "sums by label": least_s(lambda: label_sums(label_N, ones_N, ones_N, ones_N)),
    }


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("run", type=Path, nargs="?", help="a folder under runs/")
    arguments.add_argument("--policy", type=Path, default=ROOT / "envs" / "workshop" / "base")
    options = arguments.parse_args()
    iterations = stored(options.run) if options.run else [played(load_params(ROOT / "params.yaml"), options.policy)]
    if not iterations:
        arguments.error(f"{options.run} has no iterations/*/timings.json")
    for name, rollouts, iteration_s in iterations:
        parts = costs(rollouts)
        whole = sum(parts.values())
        turns, events = (sum(map(len, values)) for values in ([r.turns() for r in rollouts], [r.events for r in rollouts]))
        print(f"{name}: {len(rollouts)} rollouts, {turns} turns, {events} events, {iteration_s:.2f} s")
        print("  " + ", ".join(f"{part} {1000 * seconds:.1f} ms" for part, seconds in parts.items()))
        print(f"  {1000 * whole:.1f} ms, {100 * whole / iteration_s:.2f} % of the iteration")


if __name__ == "__main__":
    main()
