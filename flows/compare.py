"""Compare workflows: `python -m flows.compare --environment workshop@1 --policy FOLDER --acceptable 0.8`.

Time, model calls and tokens to an acceptable result for one agent, for independent attempts of which one is picked, and for
the communicating collective, on separable and on coupled tasks; and whether its messages changed the outcome. Works for
every registered environment and every policy folder that fits the parameter file. Results: artifacts/compare/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli
from rlcr_core.config import load_params
from rlcr_core.tokens import load_tokenizer
from tasks.paths import Project
from tasks.progress import Reporter
from tasks.weight_sync import sync_folder
from tasks.workers import WorkerPool
from tasks.workflow_comparison import (
    TASK_SETS,
    Played,
    Question,
    least_times,
    play_attempts,
    play_collective,
    task_set,
    write_comparison,
)
from tasks.workflow_table import print_workflows


def compare(options: argparse.Namespace) -> None:
    """Play, write, print. Raises ConfigError, TaskError, WeightError, GateError, DataError, StoreError."""
    project, params = Project.here(), load_params(options.params)
    question = Question(
        options.environment or params.task_set.environment, options.acceptable, options.tasks, options.agents, options.limit,
        options.attempts,
    )  # fmt: skip
    sets = {name: task_set(params, question, coupling) for name, coupling in TASK_SETS.items()}
    with WorkerPool(params, next(iter(sets.values()))[0]) as pool, Reporter("compare", 1 + len(sets)) as bar:
        tokenizer = load_tokenizer(project.root / options.policy)
        sync_folder(project.root / (options.alone or options.policy), 0, pool)
        attempts = {name: play_attempts(params, question, tasks, pool) for name, tasks in sets.items()}
        bar.step("attempts")
        sync_folder(project.root / options.policy, 0, pool)
        results = {}
        for name, tasks in sets.items():
            bounds_s = least_times(params, question, tasks, tokenizer)
            results[name] = Played(attempts[name], play_collective(params, question, tasks, pool), bounds_s)
            bar.step(name)
    print_workflows(write_comparison(project.root / options.out, results, question, params))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    default = Project(Path()).trained("collective", 0) / "checkpoint"
    arguments.add_argument("--environment", default="", help="registered id (default: task_set.environment)")
    arguments.add_argument("--policy", type=Path, default=default, help="checkpoint folder (default: %(default)s)")
    arguments.add_argument("--alone", type=Path, default=None, help="checkpoint that plays alone (default: that of --policy)")
    arguments.add_argument("--acceptable", type=float, required=True, help="return from which on a result is acceptable")
    arguments.add_argument("--tasks", type=int, default=16, help="tasks of each set (default: %(default)s)")
    arguments.add_argument("--agents", type=int, default=8, help="agents that the first may hire (default: %(default)s)")
    arguments.add_argument("--limit", type=float, default=600.0, help="seconds of each rollout (default: %(default)s)")
    arguments.add_argument("--attempts", type=int, default=9, help="independent attempts a task (default: %(default)s)")
    arguments.add_argument("--out", type=Path, default=Path("artifacts/compare"), help="folder to write (default: %(default)s)")
    return cli.run(compare, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
