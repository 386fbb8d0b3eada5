"""Village to city: `python -m flows.city`, the trained policy with 1 to 1,000 agents.

On projects that grow with the team and on a fixed one, with the CEO hiring and with the staff given, beside the scripted
ceiling of the same tasks; and the control of the nicknames. Finished cells are kept: the same command goes on after a kill.
Results: artifacts/city/.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import cli
from rlcr_core.config import Params, load_params, parse_params
from tasks.city import CellResult, check_policy, city_folder, run_cell
from tasks.city_cells import Cell, cell_tasks, control_cells, cost, main_cells, reference
from tasks.city_report import print_city, write_city
from tasks.lifeline import guard_server
from tasks.paths import Project
from tasks.progress import Reporter
from tasks.weight_sync import sync_folder
from tasks.workers import WorkerPool


class Job:
    """What the cells of one sweep share, and what came back so far."""

    def __init__(self, project: Project, params: Params, policy: Path, cells: Sequence[Cell]) -> None:
        self.project, self.params, self.policy = project, params, policy
        self.pool: WorkerPool | None = None
        self.results: list[CellResult] = []
        self._bar = Reporter("city", sum(cost(cell) * cell.n_tasks for cell in cells))
        self._agents = 0

    def run(self, cell: Cell) -> None:
        """Play a cell; progress counts agents at work, which is what a rollout costs."""

        def progress(rollouts: int, turns: int) -> None:
            self._agents += rollouts * cost(cell)
            self._bar.step(f"{cell.name} {turns:,} turns", self._agents)

        pool = None if cell.played == "ceiling" else self.pool
        self.results.append(run_cell(self.project, self.params, cell, self.policy, pool, progress))

    def __enter__(self) -> Job:
        self._bar.__enter__()
        return self

    def __exit__(self, *reason: Any) -> None:
        self._bar.__exit__(*reason)


@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="{name}")
def play_cell(job: Job, cell: Cell, name: str) -> None:
    job.run(cell)


@flow(name="city", persist_result=False)
def city(
    params_file: str = "params.yaml",
    policy: str = "",
    sizes: tuple[int, ...] = (),
    rollouts: int = 0,
) -> dict[str, Any]:
    """Run every cell, write and return the summary; `sizes` and `rollouts` replace those of params.yaml."""
    guard_server()
    project = Project.here()
    used = parse_params(_changed(load_params(params_file), sizes, rollouts))
    folder = Path(policy) if policy else project.trained("collective", used.train.seeds[0]) / "checkpoint"
    check_policy(used, folder)
    cells = list(dict.fromkeys([*control_cells(used), *main_cells(used)]))
    example = cell_tasks(used, reference(used), "city-example")[0]
    with WorkerPool(used, example) as pool, Job(project, used, folder, cells) as job:
        sync_folder(folder, 0, pool)
        job.pool = pool
        for cell in cells:
            play_cell(job, cell, cell.name)
    return write_city(city_folder(project), used, job.results)


def _changed(params: Params, sizes: tuple[int, ...], rollouts: int) -> dict[str, Any]:
    data: dict[str, Any] = params.model_dump(mode="json")
    if sizes:
        data["city"]["sizes"] = list(sizes)
        data["city"]["control_sizes"] = [n for n in data["city"]["control_sizes"] if n <= max(sizes)]
    if rollouts:
        data["city"]["rollouts"] = rollouts
    return data


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _arguments() -> argparse.ArgumentParser:
    made = cli.parser(__doc__)
    made.add_argument("--policy", default="", help="folder of a trained policy (default: the collective of the first seed)")
    made.add_argument("--sizes", type=_sizes, default=(), help="agents, comma-separated (default: city.sizes)")
    made.add_argument("--rollouts", type=int, default=0, help="tasks of a cell (default: city.rollouts)")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(lambda o: print_city(city(o.params, o.policy, o.sizes, o.rollouts)), _arguments(), argv)


if __name__ == "__main__":
    sys.exit(main())
