"""Make the task sets: artifacts/tasks/{train,validation,test}.jsonl."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flows import cli
from rlcr_core.config import load_params
from tasks.paths import SPLITS, Project
from tasks.task_sets import generate_split, write_tasks


def make_tasks(options: argparse.Namespace) -> None:
    """Generate and write every split. Raises TaskError, StoreError."""
    project, params = Project.here(), load_params(options.params)
    for split in SPLITS:
        tasks = generate_split(params.task_set, split)
        write_tasks(project.tasks(split), tasks)
        print(f"{len(tasks)} {split} tasks: {project.tasks(split).relative_to(project.root)}")


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(make_tasks, cli.parser(__doc__), argv)


if __name__ == "__main__":
    sys.exit(main())
