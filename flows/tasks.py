"""Make the task sets: artifacts/tasks/{train,validation,test}.jsonl and test-<variant>.jsonl."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flows import cli
from rlcr_core.config import load_params
from tasks.paths import SPLITS, Project, variant_name
from tasks.task_sets import generate_split, generate_variant, write_tasks


def make_tasks(options: argparse.Namespace) -> None:
    """Generate and write every split. Raises TaskError, StoreError."""
    project, params = Project.here(), load_params(options.params)
    sets = {split: generate_split(params.task_set, split) for split in SPLITS}
    sets |= {variant_name(name): generate_variant(params.task_set, name) for name in params.task_set.variants}
    for name, tasks in sets.items():
        write_tasks(project.tasks(name), tasks)
        print(f"{len(tasks)} {name} tasks: {project.tasks(name).relative_to(project.root)}")


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(make_tasks, cli.parser(__doc__), argv)


if __name__ == "__main__":
    sys.exit(main())
