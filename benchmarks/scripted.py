"""What scripted players reach beside the analytic bounds: `python -m benchmarks.scripted [--limits 16 32 48 64 84]`.

Mean returns on the test tasks of params.yaml under each limit, with their standard errors; once as they are and once without
a parallel share (p = 0). The last rows are the means of the tasks' bounds. `--parallel-share` chooses other tasks.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

import envs
from rlcr_core.config import Params, load_params
from rlcr_core.rollout import RolloutSpec
from rlcr_core.scripted import scripted_rollouts, terms_of
from rlcr_core.types import RolloutKey, Task
from tasks.task_sets import generate_split
from tasks.warm_start import make_tokenizer

SHOWN_BOUNDS = ("work", "critical_path", "amdahl")


def cell(values: Sequence[float]) -> str:
    return f"{np.mean(values):.3f} ± {np.std(values) / len(values) ** 0.5:.3f}"


def rows(tasks: Sequence[Task], limits: Sequence[float], params: Params) -> list[list[str]]:
    """A row a player with a cell a limit and its mean end at the last, then a row a bound."""
    environment_id, tokenizer = tasks[0].environment, make_tokenizer(tasks[0])
    found = []
    for name, player in envs.players(environment_id).items():
        row, hires = [name], 0.0
        for limit_s in limits:
            specs = [RolloutSpec(RolloutKey("scripted", 0, g, 0), task, limit_s) for g, task in enumerate(tasks)]
            rollouts = scripted_rollouts(specs, envs.make, player, tokenizer, params)
            row.append(cell([rollout.return_ for rollout in rollouts]))
            hires = float(np.mean([rollout.n_hires for rollout in rollouts]))
        found.append([*row, f"{np.mean([rollout.end_s for rollout in rollouts]):.1f}", f"{hires:.1f}"])
    environments = [envs.make(task) for task in tasks]
    bounds = [envs.bounds(environment, terms_of(environment, tokenizer, params)) for environment in environments]
    for name in SHOWN_BOUNDS:
        means = [f"{np.mean([getattr(bound.returns(limit_s), name) for bound in bounds]):.3f}" for limit_s in limits]
        least_s = f"{np.mean([bound.least_time_s(1.0) for bound in bounds]):.1f}" if name == "amdahl" else ""
        found.append([f"bound: {name}", *means, least_s, ""])
    return found


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--params", default="params.yaml")
    arguments.add_argument("--limits", type=float, nargs="+", default=[16.0, 32.0, 48.0, 64.0, 84.0])
    arguments.add_argument("--parallel-share", type=float, nargs="+", default=[1.0, 0.0])
    options = arguments.parse_args()
    params = load_params(options.params)
    for share in options.parallel_share:
        tasks = generate_split(params.task_set.model_copy(update={"parallel_share": share}), "test")
        print(f"\n{len(tasks)} test tasks, parallel share {share:g}\n")
        header = ["player", *[f"{limit_s:g} s" for limit_s in options.limits], "mean end, s", "hires"]
        for row in [header, ["---"] * len(header), *rows(tasks, options.limits, params)]:
            print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
