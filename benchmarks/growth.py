"""Which way of growing a vocabulary keeps a policy's return: `python -m benchmarks.growth POLICY [--tasks 256]`.

The same tasks for the training's team, called by trained and by grown names, with each method of rlcr_core/vocabulary.py, and
the policy with its own vocabulary as the reference. Prints the mean return and the paired difference to that reference.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

import envs
from envs.workshop.names import CITY
from rlcr_core.config import Params, load_params
from rlcr_core.engines.torch import TorchEngine
from rlcr_core.policy import load_policy
from rlcr_core.rollout import run_rollouts
from rlcr_core.statistics import paired_difference
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Float64Array, StopReason
from rlcr_core.vocabulary import METHODS, grow
from tasks.city_cells import Cell, cell_params, cell_tasks, reference
from tasks.evaluation import evaluation_specs


def returns(params: Params, cell: Cell, engine: TorchEngine, tokenizer: WordTokenizer) -> Float64Array:
    specs = evaluation_specs("growth", cell_tasks(params, cell), 1, params.evaluation.limit_s)
    rollouts = run_rollouts(specs, envs.make, engine, tokenizer, cell_params(params, cell))
    failed = [rollout.error for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if failed:
        raise SystemExit(f"{len(failed)} rollouts failed, the first: {failed[0]}")
    return np.array([rollout.return_ for rollout in rollouts])


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("policy", type=Path)
    arguments.add_argument("--tasks", type=int, default=256)
    arguments.add_argument("--seeds", type=int, default=2, help="draws of the new names of each method")
    options = arguments.parse_args()
    torch.set_num_threads(1)
    params = load_params()
    own = replace(reference(params), names="own", n_tasks=options.tasks)
    trained, grown = (replace(own, names=names) for names in ("trained", "grown"))
    action_format = envs.make(cell_tasks(params, own)[0]).action_format()

    def engine_of(model: object, tokenizer: WordTokenizer) -> TorchEngine:
        return TorchEngine(model, tokenizer, action_format)  # type: ignore[arg-type]

    tokenizer = WordTokenizer.load(options.policy)
    expected = returns(params, own, engine_of(load_policy(options.policy), tokenizer), tokenizer)
    print(f"policy as trained: return {expected.mean():.3f} on {len(expected)} tasks, {own.size} agents\n")
    print("| new names | seed | trained names | minus as trained | grown names | minus as trained |\n|---|---|---|---|---|---|")
    for method in METHODS:
        for seed in range(options.seeds):
            model = load_policy(options.policy)
            larger = grow(model, tokenizer, CITY.vocabulary, CITY.exchangeable, method, seed)
            engine = engine_of(model, larger)
            cells = []
            for cell in (trained, grown):
                got = returns(params, cell, engine, larger)
                d = paired_difference(got, expected)
                cells += [f"{got.mean():.3f}", f"{d.mean:+.3f} [{d.low:+.3f}, {d.high:+.3f}]"]
            print("| " + " | ".join([method, str(seed), *cells]) + " |", flush=True)


if __name__ == "__main__":
    main()
