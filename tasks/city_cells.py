"""The cells of the city: how many agents, on which project, hired by whom, played by whom, in which environment.

A proportional project has as many packages per agent as the training's (4 for 9 agents, rounded up), a fixed one is the
training's own. Tasks depend on the project's size alone, so cells are paired by task: both ways of hiring at a size, policy
and ceiling, names in full and nicknames, and all sizes on the fixed project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import envs
from envs.workshop.city import CITY_ID
from envs.workshop.names import CITY, VILLAGE
from rlcr_core.config import Params
from rlcr_core.types import Task

Work = Literal["proportional", "fixed"]
Hiring = Literal["ceo", "staff"]
Played = Literal["policy", "names", "ceiling"]
WORKS: tuple[Work, ...] = ("proportional", "fixed")
HIRINGS: tuple[Hiring, ...] = ("ceo", "staff")
SPLIT = "city"
# Whose cell it is -> the environment: the policy with nicknames or with the names that it was trained with; the ceiling says
# every name in full.
ENVIRONMENTS: dict[Played, str] = {"policy": CITY_ID, "names": VILLAGE.id, "ceiling": CITY.id}


@dataclass(frozen=True, slots=True)
class Cell:
    """`hiring` ceo: size - 1 hires are allowed; staff: they are employed from the start."""

    size: int
    work: Work
    hiring: Hiring
    played: Played
    n_tasks: int

    @property
    def name(self) -> str:
        return f"{self.played}-{self.work}-{self.hiring}-{self.size}-x{self.n_tasks}"


def training_size(params: Params) -> int:
    """The most agents that a collective had in training."""
    return params.collective.max_hires + 1


def reference(params: Params) -> Cell:
    """The training's own condition, in its own environment: what the other cells' observations are compared with."""
    return Cell(training_size(params), "proportional", "ceo", "names", params.city.control_rollouts)


def main_cells(params: Params) -> list[Cell]:
    """The sweep over sizes, smallest first, each with the scripted ceiling of the same tasks."""
    config = params.city
    played: tuple[Played, ...] = ("policy", "ceiling")
    return [
        Cell(size, work, hiring, who, config.rollouts)
        for size in config.sizes
        for work in WORKS
        for hiring in HIRINGS
        for who in played
    ]


def control_cells(params: Params) -> list[Cell]:
    """The control of the nicknames: the same tasks with names in full and without, where the training has names enough."""
    config, played = params.city, ("names", "policy")
    found = [reference(params)]
    for size in config.control_sizes:
        hirings = HIRINGS if size == training_size(params) else HIRINGS[1:]
        found += [Cell(size, "proportional", h, who, config.control_rollouts) for h in hirings for who in played]  # type: ignore[arg-type]
    return list(dict.fromkeys(found))


def cost(cell: Cell) -> int:
    """About how many agents work at once, for progress: hiring is serial, so a CEO gets no further than some tens."""
    return cell.size if cell.hiring == "staff" else min(cell.size, 40)


def packages(params: Params, cell: Cell) -> int:
    """Packages of the cell's project."""
    if cell.work == "fixed":
        return params.task_set.packages
    return max(1, math.ceil(params.task_set.packages * cell.size / training_size(params)))


def cell_params(params: Params, cell: Cell) -> Params:
    """The parameters with the cell's hiring. Deliveries are not logged: a post to 1,000 agents has 999 of them."""
    hires = cell.size - 1
    collective = {"max_hires": hires, "staff": hires if cell.hiring == "staff" else 0, "log_deliveries": False}
    return params.model_copy(
        update={
            "collective": params.collective.model_copy(update=collective),
            "rollouts": params.rollouts.model_copy(update={"worker_timeout_s": params.city.timeout_s}),
        }
    )


def cell_tasks(params: Params, cell: Cell, split: str = SPLIT) -> list[Task]:
    """The cell's tasks, from the environment's own generator. Raises TaskError for more packages than it has names for."""
    config, count = params.task_set, packages(params, cell)
    sizes: dict[str, Any] = {
        "families": config.families, "split": split, "count": cell.n_tasks, "seed": config.seed, "modules": config.modules,
        "packages": count, "parallel_share": config.parallel_share, "coupling": config.coupling,
    }  # fmt: skip
    # Names of the training as far as they go: then the same tasks can be played in its environment.
    source = VILLAGE.id if count <= len(VILLAGE.packages) else CITY.id
    return [replace(task, environment=ENVIRONMENTS[cell.played]) for task in envs.generate(source, **sizes)]
