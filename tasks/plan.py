"""The plan of an iteration: tasks, keys, limit and weights are fixed on disk before anything is sampled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rlcr_core.config import RolloutsConfig
from rlcr_core.manifests import Manifest, read_manifest, write_manifest
from rlcr_core.rollout import RolloutSpec
from rlcr_core.seeds import derive
from rlcr_core.types import RolloutKey, Task


@dataclass(frozen=True, slots=True)
class Plan:
    """One iteration's work: group g is `group_size` rollouts of task g under the same limit."""

    run: str
    iteration: int
    limit_s: float
    weights: str
    task_ids: tuple[str, ...]
    group_size: int

    @property
    def digests(self) -> dict[str, str]:
        """The plan as a stage input: what it says, not when it was written."""
        return {
            "run": self.run,
            "iteration": str(self.iteration),
            "limit_s": repr(self.limit_s),
            "weights": self.weights,
            "tasks": ",".join(self.task_ids),
            "group_size": str(self.group_size),
        }

    def specs(self, tasks: Sequence[Task]) -> list[RolloutSpec]:
        """The rollouts, by (group, rollout)."""
        by_id = {task.id: task for task in tasks}
        return [
            RolloutSpec(RolloutKey(self.run, self.iteration, g, r), by_id[task_id], self.limit_s)
            for g, task_id in enumerate(self.task_ids)
            for r in range(self.group_size)
        ]


def draw(tasks: Sequence[Task], count: int, seed: int, iteration: int) -> tuple[str, ...]:
    """Ids of `count` different tasks; the same for every mode of a seed, so that modes are compared on equal tasks."""
    rng = np.random.default_rng(derive("tasks", seed, iteration))
    return tuple(tasks[i].id for i in rng.choice(len(tasks), count, replace=False))


def make_plan(
    folder: Path,
    run: str,
    seed: int,
    iteration: int,
    tasks: Sequence[Task],
    limit_s: float,
    weights: str,
    config: RolloutsConfig,
) -> Plan:
    """Draw the iteration's tasks and write plan.json, or keep the valid one. Raises StoreError."""
    plan = Plan(
        run, iteration, limit_s, weights, draw(tasks, config.tasks_per_iteration, seed, iteration), config.group_size
    )
    if read_manifest(folder, "plan", plan.digests) is None:
        keys = [[g, r] for g in range(len(plan.task_ids)) for r in range(plan.group_size)]
        data = {"limit_s": limit_s, "task_ids": list(plan.task_ids), "rollouts": keys}
        write_manifest(folder, Manifest("plan", plan.digests, {}, data))
    return plan
