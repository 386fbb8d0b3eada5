"""Whether a policy can take more names without training: `python -m benchmarks.growth POLICY [--tasks 128]`.

The training's team on the same tasks: the policy as it was trained; with its vocabulary grown to 1,596 words in each way of
rlcr_core/vocabulary.py, called by trained names and by grown ones; and with nicknames, which need no new words. Prints mean
returns with the paired difference to the policy as trained, and the probability that goes to new names where a package is
to be written and none of the new ones is in view.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import envs
from envs.workshop import language as lang
from envs.workshop.city import NamesEnvironment
from envs.workshop.names import CITY
from envs.workshop.tasks import generate
from rlcr_core.config import Params, load_params
from rlcr_core.engines.torch import TorchEngine
from rlcr_core.policy import decoder_hidden, head, load_policy
from rlcr_core.rollout import run_rollouts
from rlcr_core.statistics import paired_difference
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Environment, Float64Array, Rollout, StopReason, Task
from rlcr_core.vocabulary import METHODS, grow
from tasks.city_cells import cell_params, cell_tasks, packages, reference
from tasks.evaluation import evaluation_specs

NEW_AGENTS, NEW_PACKAGES = CITY.agents[len(lang.AGENTS) : -1], CITY.packages[len(lang.PACKAGES) : 2 * len(lang.PACKAGES)]


def called(names: Sequence[str]) -> Callable[[Task], Environment]:
    """Environments with full names whose agents are called by these alone."""
    allowed = frozenset(names)

    def make(task: Task) -> Environment:
        environment = NamesEnvironment(task)
        environment._names = tuple(name for name in environment._names if name in allowed)
        return environment

    return make


def play(
    params: Params, tasks: Sequence[Task], engine: TorchEngine, words: WordTokenizer, make: Callable[[Task], Environment]
) -> list[Rollout]:
    specs = evaluation_specs("growth", tasks, 1, params.evaluation.limit_s)
    rollouts = run_rollouts(specs, make, engine, words, cell_params(params, reference(params)))
    failed = [rollout.error for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if failed:
        raise SystemExit(f"{len(failed)} rollouts failed, the first: {failed[0]}")
    return rollouts


def returns(rollouts: Sequence[Rollout]) -> Float64Array:
    return np.array([rollout.return_ for rollout in rollouts])


@torch.no_grad()
def leak(model: Any, rollouts: Sequence[Rollout], n_trained: int) -> float:
    """Mean probability of all new names where a `work` turn writes its package; the situations show trained names only."""
    turns = [turn for rollout in rollouts[:16] for turn in rollout.turns() if turn.tool == "work" and turn.n_tokens == 4]
    ids = torch.tensor([[*turn.observation_ids, turn.action_ids[0]] for turn in turns])
    probability = head(model, decoder_hidden(model, ids, ids.shape[1] - 1)[:, 0]).softmax(-1)
    return float(probability[:, n_trained:].sum(-1).mean())


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("policy", type=Path)
    arguments.add_argument("--tasks", type=int, default=128)
    options = arguments.parse_args()
    torch.set_num_threads(1)
    params = load_params()
    cell = replace(reference(params), n_tasks=options.tasks)
    tasks = cell_tasks(params, cell)
    config = params.task_set
    # As many new package names as trained ones, so that the same draws give the same tasks under other names.
    renamed = generate(
        CITY.id, families=config.families, split="city", count=options.tasks, seed=config.seed, packages=packages(params, cell),
        modules=config.modules, parallel_share=config.parallel_share, coupling=config.coupling, pool=NEW_PACKAGES,
    )  # fmt: skip
    words = WordTokenizer.load(options.policy)
    action_format = envs.make(tasks[0]).action_format()
    own = TorchEngine(load_policy(options.policy), words, action_format)
    as_trained = play(params, tasks, own, words, envs.make)
    expected = returns(as_trained)
    print(f"as trained: return {expected.mean():.3f} on {len(expected)} tasks, {cell.size} agents, CEO hires\n")
    print("| names | return | minus as trained | on new names, share |\n|---|---|---|---|")

    def line(name: str, got: Float64Array, share: str = "") -> None:
        d = paired_difference(got, expected)
        print(f"| {name} | {got.mean():.3f} | {d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}] | {share} |", flush=True)

    nicknamed = [replace(task, environment="workshop-city@1") for task in tasks]
    line("nicknames", returns(play(params, nicknamed, own, words, envs.make)))
    full = [replace(task, environment=CITY.id) for task in tasks]
    for method in METHODS:
        model: Any = load_policy(options.policy)
        larger = grow(model, words, CITY.vocabulary, CITY.exchangeable, method)
        engine = TorchEngine(model, larger, action_format)
        share = f"{leak(model, as_trained, len(words)):.2f}"
        line(f"{method}, trained names", returns(play(params, full, engine, larger, called(lang.AGENTS))), share)
        line(f"{method}, new names", returns(play(params, renamed, engine, larger, called(NEW_AGENTS))))


if __name__ == "__main__":
    main()
