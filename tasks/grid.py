"""The grid of an evaluation: organisation × limit × task family × seed, each cell run once and kept on disk.

A cell's folder, runs/evaluation/<cell>-<digest>/, is named by everything that decides its rollouts: weights, parameters,
tasks, code. A cell that is there is read; so an evaluation that was killed goes on, and one that gained an organisation runs
that one alone. Every cell of a family has the same tasks and rollout keys: differences are paired by task.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcr_core.clock import calibrated
from rlcr_core.config import EvaluationConfig, Params
from rlcr_core.manifests import Manifest, digest_file, digest_tree, read_manifest, write_manifest
from rlcr_core.store import Tables, from_tables, read_tables, write_rollouts
from rlcr_core.types import Rollout, Task
from tasks.evaluation import evaluate, evaluation_specs
from tasks.identity import code_digest
from tasks.organisations import Organisation, arranged, policy_folder
from tasks.paths import Project, variant_name
from tasks.scripted import scripted
from tasks.task_sets import read_tasks
from tasks.weight_sync import sync_folder
from tasks.workers import WorkerPool

MAIN = "test"  # the family of the test tasks
DECISIVE = ("latency", "collective", "context", "harness", "engine", "rollouts")


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the grid. `limit_s` is the row's limit; a long organisation's agents are told a multiple of it."""

    organisation: Organisation
    limit_s: float
    family: str
    seed: int

    @property
    def name(self) -> str:
        return f"{self.organisation.name}-{self.family}-{self.limit_s:g}s-{self.seed}"

    @property
    def key(self) -> CellKey:
        return self.organisation.name, self.limit_s, self.family, self.seed


CellKey = tuple[str, float, str, int]  # organisation, limit in seconds, family, seed
Grid = Mapping[CellKey, Sequence[Rollout]]


def cells(config: EvaluationConfig, chosen: Sequence[Organisation], variants: Sequence[str], seeds: Sequence[int]) -> list[Cell]:
    """Every organisation on the test tasks at limit_s; those swept also at the other limits and on the variants."""
    found = []
    for seed in seeds:
        found += [Cell(o, config.limit_s, MAIN, seed) for o in chosen]
        swept = [o for o in chosen if o.name in config.swept]
        found += [Cell(o, limit_s, MAIN, seed) for limit_s in config.limits_s for o in swept]
        found += [Cell(o, config.limit_s, variant, seed) for variant in variants for o in swept]
    return found


def tasks_file(project: Project, family: str) -> Path:
    return project.tasks(MAIN if family == MAIN else variant_name(family))


def cell_inputs(project: Project, params: Params, cell: Cell) -> dict[str, str]:
    """What decides the cell's rollouts, as digests."""
    own = arranged(params, cell.organisation)
    document: dict[str, Any] = {name: getattr(own, name).model_dump(mode="json") for name in DECISIVE}
    document["latency"] = calibrated(own.latency).model_dump(mode="json")
    document |= {"told_s": cell.organisation.limit_s(cell.limit_s, params.evaluation), "player": cell.organisation.player}
    document["per_task"] = cell.organisation.rollouts_per_task(params.evaluation)
    folder = policy_folder(project, cell.organisation, cell.seed)
    return {
        "weights": "" if folder is None else digest_tree(folder),
        "params": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest(),
        "tasks": digest_file(tasks_file(project, cell.family)),
        "code": code_digest(),
    }


def cell_folder(project: Project, cell: Cell, inputs: Mapping[str, str]) -> Path:
    digest = hashlib.sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()
    return project.runs / "evaluation" / f"{cell.name}-{digest[:8]}"


def run_cell(project: Project, params: Params, cell: Cell, pool: WorkerPool) -> list[Rollout]:
    """The cell's rollouts, from disk where it is done. Raises WeightError, GateError, StoreError, DataError."""
    inputs = cell_inputs(project, params, cell)
    folder = cell_folder(project, cell, inputs)
    if read_manifest(folder, "cell", inputs) is not None:
        return from_tables(read_tables(folder / "rollouts"))
    tables = _sampled(project, params, cell, read_tasks(tasks_file(project, cell.family)), pool)
    files = write_rollouts(folder / "rollouts", tables)
    write_manifest(folder, Manifest("cell", inputs, {f"rollouts/{name}": digest for name, digest in files.items()}, {}))
    return from_tables(tables)


def _sampled(project: Project, params: Params, cell: Cell, tasks: Sequence[Task], pool: WorkerPool) -> Tables:
    organisation, config = cell.organisation, params.evaluation
    told_s = organisation.limit_s(cell.limit_s, config)
    specs = evaluation_specs(f"evaluation-{cell.seed}", tasks, organisation.rollouts_per_task(config), told_s)
    own = arranged(params, organisation)
    folder = policy_folder(project, organisation, cell.seed)
    if folder is None:
        return scripted(specs, organisation.player, own, project.base)
    sync_folder(folder, 0, pool)
    return evaluate(specs, pool, own)[0]
