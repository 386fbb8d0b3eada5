"""Write the time limit of every iteration: artifacts/schedule.csv."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flows import cli
from rlcr_core.config import load_params
from rlcr_core.schedule import write_schedule_csv
from tasks.paths import Project


def make_schedule(options: argparse.Namespace) -> None:
    """Write the limits that training will use. Raises StoreError."""
    project, params = Project.here(), load_params(options.params)
    project.schedule.parent.mkdir(parents=True, exist_ok=True)
    write_schedule_csv(params.schedule, params.train.iterations, project.schedule)
    print(f"{params.train.iterations} limits: {project.schedule.relative_to(project.root)}")


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(make_schedule, cli.parser(__doc__), argv)


if __name__ == "__main__":
    sys.exit(main())
