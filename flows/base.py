"""Make the base policy: artifacts/base/. The one kept in the repository is taken when it fits the configuration."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flows import cli
from rlcr_core.config import load_params
from tasks.base_policy import keep_base, make_base
from tasks.paths import Project
from tasks.progress import Reporter
from tasks.task_sets import read_tasks


def make(options: argparse.Namespace) -> None:
    """Take or train the base, gate it, and keep it in the repository when asked to. Raises GateError, DataError."""
    project, params = Project.here(), load_params(options.params)
    tasks = read_tasks(project.tasks("train"))
    with Reporter("base", params.base.steps) as bar:
        words = make_base(
            project, params, tasks, lambda step, loss: bar.step(f"loss {loss:.3f} nats", step), options.retrain
        )
    print(words)
    if options.keep:
        print(f"kept: {keep_base(project, params, tasks)}")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    arguments.add_argument("--retrain", action="store_true", help="train even where a kept base fits")
    arguments.add_argument("--keep", action="store_true", help="copy the result to base.checkpoint, with its record")
    return cli.run(make, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
