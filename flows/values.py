"""What messages were worth, by counterfactual replay: `python -m flows.values artifacts/…/rollouts --group 0 --rollout 0`.

A rollout is played again from the moment of a message, with and without it, under the same seeds and with fresh ones. The
policy, tasks and parameters must be those that made the rollouts. docs/comparing.md says how to read the result.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli
from rlcr_core.config import load_params
from rlcr_core.store import read_rollouts
from tasks.message_values import chosen, known_tasks, measure_values, write_values
from tasks.paths import SPLITS, Project
from tasks.runtime import keep_memory
from tasks.value_table import print_values


def values(options: argparse.Namespace) -> None:
    """Measure, write, print. Raises ConfigError, DataError, StoreError, TaskError, WeightError."""
    project, params = Project.here(), load_params(options.params)
    keep_memory()
    rollouts = chosen(read_rollouts(options.rollouts), options.group, options.rollout)
    tasks = known_tasks([options.tasks] if options.tasks else [project.tasks(split) for split in SPLITS])
    found = measure_values(rollouts, tasks, project.root / options.policy, params, options.messages, options.continuations)
    print_values(write_values(project.root / options.out, found, params))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    arguments.add_argument("rollouts", type=Path, help="folder of stored rollouts")
    default = Project(Path()).trained("collective", 0) / "checkpoint"
    arguments.add_argument("--policy", type=Path, default=default, help="checkpoint that played them (default: %(default)s)")
    arguments.add_argument("--group", type=int, default=None, help="group of the rollout (default: every group)")
    arguments.add_argument("--rollout", type=int, default=None, help="its number in the group (default: every number)")
    arguments.add_argument("--messages", type=int, default=20, help="messages of each rollout, drawn (default: %(default)s)")
    arguments.add_argument("--continuations", type=int, default=8, help="pairs of replays a message (default: %(default)s)")
    arguments.add_argument("--tasks", type=Path, default=None, help="task file (default: those of artifacts/tasks)")
    arguments.add_argument("--out", type=Path, default=Path("artifacts/values.json"), help="file to write (default: %(default)s)")
    return cli.run(values, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
