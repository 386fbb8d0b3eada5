"""What a city costs: `python -m benchmarks.city POLICY [--sizes 9,64,256,1000] [--sweep]`, one process, one thread.

Turns per second by team size, staff given, on projects that grow with the team; the network's microseconds per turn apart
from the simulator's, these also with messages that reach nobody: what a turn costs apart from reading must be flat. With
--sweep it also times 20 rollouts of the largest size on `rollouts.workers` Ray workers, as `python -m flows.city` runs them.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Sequence
from pathlib import Path

import torch

import envs
from rlcr_core.config import Params, load_params
from rlcr_core.engines.torch import TorchEngine
from rlcr_core.policy import load_policy
from rlcr_core.rollout import run_rollouts
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Sample, SampleRequest, StopReason
from tasks.city import run_cell
from tasks.city_cells import Cell, cell_params, cell_tasks
from tasks.evaluation import evaluation_specs
from tasks.paths import Project
from tasks.runtime import settle
from tasks.weight_sync import sync_folder
from tasks.workers import WorkerPool

AGENTS = 2000  # of the rollouts of one measurement together, at least one rollout


class TimedEngine(TorchEngine):
    """Counts the seconds that it samples."""

    seconds = 0.0

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        started = time.perf_counter()
        samples = super().sample(requests)
        self.seconds += time.perf_counter() - started
        return samples


def measure(params: Params, size: int, engine: TimedEngine, words: WordTokenizer, messages: str) -> tuple[int, float, float, int]:
    """(turns, network seconds, simulator seconds, message tokens read) of some rollouts of one size."""
    cell = Cell(size, "proportional", "staff", "policy", max(1, AGENTS // size))
    own = cell_params(params, cell)
    own = own.model_copy(update={"collective": own.collective.model_copy(update={"messages": messages})})
    specs = evaluation_specs("benchmark", cell_tasks(params, cell), 1, params.evaluation.limit_s)
    engine.seconds, started = 0.0, time.perf_counter()
    rollouts = run_rollouts(specs, envs.make, engine, words, own)
    seconds = time.perf_counter() - started
    failed = [rollout.error for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if failed:
        raise SystemExit(f"{len(failed)} rollouts failed, the first: {failed[0]}")
    turns = [turn for rollout in rollouts for turn in rollout.turns()]
    return len(turns), engine.seconds, seconds - engine.seconds, sum(turn.prompt_tokens for turn in turns)


def sweep(params: Params, policy: Path, size: int) -> None:
    """The slowest cell of the city as the flow runs it."""
    cell = Cell(size, "proportional", "staff", "policy", 20)
    turns = 0

    def progress(rollouts: int, some: int) -> None:
        nonlocal turns
        turns += some

    started = time.perf_counter()
    with WorkerPool(params, cell_tasks(params, cell)[0]) as pool:
        sync_folder(policy, 0, pool)
        ready = time.perf_counter()
        project = Project(Path("runs/benchmark") / str(time.time_ns()))  # a folder of its own: nothing is done there yet
        run_cell(project, params, cell, policy, pool, progress)
        now = time.perf_counter()
    print(f"\n{size} agents, 20 rollouts, {params.rollouts.workers} workers: {now - ready:.0f} s ({turns:,} turns, "
          f"{turns / (now - ready):,.0f} turns/s) after {ready - started:.0f} s of start")  # fmt: skip


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("policy", type=Path)
    arguments.add_argument("--sizes", default="9,64,256,1000")
    arguments.add_argument("--sweep", action="store_true")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    params, sizes = load_params(), [int(size) for size in options.sizes.split(",")]
    words = WordTokenizer.load(options.policy)
    example = cell_tasks(params, Cell(9, "fixed", "staff", "policy", 1))[0]
    engine = TimedEngine(load_policy(options.policy), words, envs.make(example).action_format())
    settle()
    print("µs a turn, with every message and with messages that reach nobody\n")
    print("| agents | turns | turns/s | network | simulator | messages read a turn | simulator, messages off |")
    print("|---|---|---|---|---|---|---|")
    for size in sizes:
        turns, network_s, simulator_s, tokens = measure(params, size, engine, words, "normal")
        quiet_turns, _, quiet_s, _ = measure(params, size, engine, words, "mute")
        cells = [
            str(size), f"{turns:,}", f"{turns / (network_s + simulator_s):,.0f}", f"{1e6 * network_s / turns:.0f}",
            f"{1e6 * simulator_s / turns:.0f}", f"{tokens / 2 / turns:.1f}", f"{1e6 * quiet_s / quiet_turns:.0f}",
        ]  # fmt: skip
        print("| " + " | ".join(cells) + " |", flush=True)
    print(f"\npeak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")
    if options.sweep:
        sweep(params, options.policy, sizes[-1])


if __name__ == "__main__":
    main()
