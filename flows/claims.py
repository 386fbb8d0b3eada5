"""Train and evaluate every study behind docs/claims.md and write the table: `python -m flows.claims` (`make claims`).

Each study is params.yaml with a few keys changed (tasks/studies.py), in a workspace under runs/claims/. Two trainings run
side by side, one core each (claims.processes). Interrupted and started again, it goes on; `--table` only writes the
table again from what is there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli
from rlcr_core.config import Params, load_params
from tasks.claims_page import write_claims
from tasks.lanes import Command, run_command, run_lanes
from tasks.paths import Project
from tasks.progress import Reporter
from tasks.studies import Study, studies, workspace, write_profile
from tasks.workspace import prepare_workspace

COST = {"collective": 3, "silent": 2, "solo": 1}  # dear trainings first, so that the lanes end together


def _command(folder: Path, module: str, *arguments: str) -> Command:
    name = "-".join([module.removeprefix("flows."), *(a for a in arguments if not a.startswith("--"))])
    return Command(f"{folder.name}/{name}", folder, module, arguments, folder / "logs" / f"{name}.txt")


def _prepared(project: Project, study: Study, params: Params) -> Path:
    """The study's workspace with its tasks, schedule and base."""
    folder = workspace(project, study)
    prepare_workspace(project.root, write_profile(project, study, params), folder)
    return folder


def _trainings(chosen: Sequence[tuple[Study, Path]]) -> list[Command]:
    jobs = [(study, folder, mode, seed) for study, folder in chosen for mode in study.modes for seed in study.seeds]
    jobs.sort(key=lambda job: -COST[job[2]])
    return [_command(folder, "flows.train", "--mode", mode, "--seed", str(seed)) for _, folder, mode, seed in jobs]


def run(options: argparse.Namespace) -> None:
    """All studies, or those named, then the table. Raises StageError naming the command that failed."""
    project, params = Project.here(), load_params(options.params)
    every = studies(params)
    if not options.table:
        wanted = [study for study in every if not options.studies or study.name in options.studies]
        chosen = [(study, _prepared(project, study, params)) for study in wanted]
        setting_up = [_command(folder, f"flows.{stage}") for _, folder in chosen for stage in ("tasks", "schedule")]
        bases = [_command(folder, "flows.base") for _, folder in chosen]
        trainings = _trainings(chosen)
        evaluations = [_command(folder, "flows.evaluate") for _, folder in chosen]
        total = len(setting_up) + len(bases) + len(trainings) + len(evaluations)
        with Reporter("claims", total) as bar:
            for command in setting_up:
                run_command(command, 0)
                bar.step(command.name)
            for commands in (bases, trainings, evaluations):
                run_lanes(commands, params.claims.processes, lambda command, _: bar.step(command.name))
    path = write_claims(project, params, every)
    print(f"Claims  {path}")


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    arguments.add_argument("--studies", nargs="+", help="only these (default: all)")
    arguments.add_argument("--table", action="store_true", help="train nothing, write the table from what is there")
    return cli.run(run, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
