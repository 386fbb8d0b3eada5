"""Village to city: the trained policy with 1 to 1,000 agents. Each cell is run once and kept in runs/city/<cell>-<digest>/.

A cell's folder is named by what decides its rollouts (weights, parameters, code), so a sweep that was killed goes on
where it was. Rollouts run a few at a time, `city.agents_at_once` agents together, and leave a row of numbers each.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import envs
from envs.workshop.names import CITY, VILLAGE
from rlcr_core.clock import calibrated
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, GateError
from rlcr_core.manifests import (
    Manifest,
    atomic_write,
    canonical_json,
    digest_bytes,
    digest_tree,
    read_manifest,
    write_manifest,
)  # fmt: skip
from rlcr_core.rollout import RolloutSpec
from rlcr_core.scripted import scripted_rollouts
from rlcr_core.tokens import PAD, UNKNOWN, WordTokenizer, load_tokenizer
from rlcr_core.types import Rollout, StopReason, Task
from tasks.city_cells import Cell, cell_params, cell_tasks
from tasks.city_rows import Survey, row_of
from tasks.evaluation import evaluate, evaluation_specs
from tasks.identity import code_digest
from tasks.paths import Project
from tasks.workers import WorkerPool

CEILING = "greedy"  # the scripted player with perfect information
ROWS_FILE = "rows.json"
STAGE = "city"
DECISIVE = ("task_set", "collective", "context", "harness", "engine", "rollouts")
Row = dict[str, Any]
Progress = Callable[[int, int], None]  # rollouts done now, their turns


@dataclass(frozen=True, slots=True)
class CellResult:
    """A row of each rollout, in order of the tasks, and the counts of states for tasks of even and of odd number."""

    cell: Cell
    rows: list[Row]
    states: tuple[Counter[Hashable], Counter[Hashable]]


def city_folder(project: Project) -> Path:
    return project.artifacts / "city"


def check_policy(params: Params, policy: Path) -> None:
    """Raises ConfigError for a policy or a context that cannot play a city, DataError for a folder without tokenizer."""
    tokenizer = load_tokenizer(policy)
    if not isinstance(tokenizer, WordTokenizer) or tokenizer.words[2:] != VILLAGE.vocabulary:
        raise ConfigError(f"{policy} does not speak the vocabulary of {VILLAGE.id}; name a policy trained in it with --policy.")
    if params.context.mode != "window":
        raise ConfigError(
            f"nicknames hold for one turn, got context.mode {params.context.mode}; change context.mode to window to play a city."
        )


def cell_inputs(params: Params, cell: Cell, policy: Path) -> dict[str, str]:
    """What decides the cell's rollouts, as digests. A ceiling does not depend on the weights."""
    own = cell_params(params, cell)
    document: dict[str, Any] = {name: getattr(own, name).model_dump(mode="json") for name in DECISIVE}
    document |= {"latency": calibrated(own.latency).model_dump(mode="json"), "limit_s": params.evaluation.limit_s}
    document |= {"cell": asdict(cell), "agents_at_once": params.city.agents_at_once}
    return {
        "weights": digest_tree(policy) if cell.played != "ceiling" else CEILING,
        "params": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest(),
        "code": code_digest(),
    }


def _folder(project: Project, cell: Cell, inputs: dict[str, str]) -> Path:
    return project.runs / "city" / f"{cell.name}-{digest_bytes(canonical_json(inputs, cell.name))[:8]}"


def run_cell(
    project: Project, params: Params, cell: Cell, policy: Path, pool: WorkerPool | None, progress: Progress
) -> CellResult:
    """The cell's rows, from disk where it is done; `pool` has the weights of the cell's policy, None for ceilings.

    Raises WeightError, GateError, TaskError, StoreError, DataError.
    """
    inputs = cell_inputs(params, cell, policy)
    folder = _folder(project, cell, inputs)
    if read_manifest(folder, STAGE, inputs) is None:
        result = _played(params, cell, pool, progress)
        data = canonical_json(_plain(result), f"The rows of {cell.name}")
        atomic_write(folder / ROWS_FILE, data)
        write_manifest(folder, Manifest(STAGE, inputs, {ROWS_FILE: digest_bytes(data)}, {}))
    else:
        progress(cell.n_tasks, 0)
    content = json.loads((folder / ROWS_FILE).read_bytes())
    even, odd = (Counter[Hashable]({tuple(state): count for state, count in half}) for half in content["states"])
    return CellResult(cell, content["rows"], (even, odd))


def _plain(result: CellResult) -> dict[str, Any]:
    states = [sorted(([list(state), n] for state, n in half.items()), key=repr) for half in result.states]  # type: ignore[call-overload]
    return {"rows": result.rows, "states": states}


def _played(params: Params, cell: Cell, pool: WorkerPool | None, progress: Progress) -> CellResult:
    tasks = cell_tasks(params, cell)
    rows: list[Row] = []
    states: tuple[Counter[Hashable], Counter[Hashable]] = (Counter(), Counter())
    words = (PAD, UNKNOWN, *(CITY if cell.played == "ceiling" else VILLAGE).vocabulary)
    latency = calibrated(params.latency)
    for rollouts in _batches(params, cell, tasks, pool):
        for rollout in rollouts:
            number = rollout.key.group
            plan: Any = envs.make(tasks[number])
            survey = Survey(plan.plan.n_modules, len(plan.plan.names), words, latency)
            row, seen = row_of(rollout, survey)
            rows.append(row)
            states[number % 2].update(seen)
        progress(len(rollouts), sum(row["turns"] for row in rows[-len(rollouts) :]))
    return CellResult(cell, rows, states)


def _batches(params: Params, cell: Cell, tasks: Sequence[Task], pool: WorkerPool | None) -> Iterator[list[Rollout]]:
    """The cell's rollouts, some at a time: as many as have `agents_at_once` agents together, at least one a worker."""
    own = cell_params(params, cell)
    specs: list[RolloutSpec] = evaluation_specs("city", tasks, 1, params.evaluation.limit_s)
    workers = params.rollouts.workers
    step = max(workers, params.city.agents_at_once // cell.size // workers * workers)
    for start in range(0, len(specs), step):
        some = specs[start : start + step]
        if pool is None:
            yield _ceiling(some, own)
        else:
            yield evaluate(some, pool, own)[1]


def _ceiling(specs: Sequence[RolloutSpec], params: Params) -> list[Rollout]:
    rollouts = scripted_rollouts(specs, envs.make, envs.player(CITY.id, CEILING), WordTokenizer(CITY.vocabulary), params)
    failed = [rollout.error for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if failed:
        raise GateError(f"{len(failed)} of {len(rollouts)} rollouts of the player {CEILING} failed, the first: {failed[0]}.")
    return rollouts
