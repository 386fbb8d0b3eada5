"""Rollouts for evaluation: the same keys for everybody, none may be missing; and a training run's own check."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rlcr_core.config import Params
from rlcr_core.errors import GateError
from rlcr_core.manifests import Manifest, read_manifest, write_manifest
from rlcr_core.metrics import iteration_metrics
from rlcr_core.rollout import RolloutSpec
from rlcr_core.store import Tables, from_tables
from rlcr_core.types import Rollout, RolloutKey, StopReason, Task
from tasks.rollouts import collect
from tasks.workers import WorkerPool


def evaluation_specs(run: str, tasks: Sequence[Task], rollouts_per_task: int, limit_s: float) -> list[RolloutSpec]:
    """The same keys, and so the same seeds, for every organisation: differences are paired by task."""
    return [
        RolloutSpec(RolloutKey(run, 0, g, r), task, limit_s)
        for g, task in enumerate(tasks)
        for r in range(rollouts_per_task)
    ]


def evaluate(specs: Sequence[RolloutSpec], pool: WorkerPool, params: Params) -> tuple[Tables, list[Rollout], float]:
    """Run every rollout with the weights that the pool has; returns them with the workers' seconds.

    Raises GateError when one stays failed: a mean over the survivors would not be the organisation's.
    """
    collected = collect(specs, pool, params)
    rollouts = from_tables(collected.tables)
    failed = [rollout for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
    if failed:
        raise GateError(
            f"{len(failed)} of {len(rollouts)} evaluation rollouts failed, the first: task {failed[0].task_id}: "
            f"{failed[0].error}. Expected none. Find the cause (rollouts.worker_timeout_s may be too short) and run "
            "the same command again."
        )
    return collected.tables, rollouts, collected.busy_s


def evaluation_stage(
    folder: Path, inputs: dict[str, str], seed: int, tasks: Sequence[Task], pool: WorkerPool, params: Params
) -> tuple[dict[str, float], float]:
    """The training run's own check on validation tasks, at evaluation.limit_s whatever the schedule says.

    Returns metrics `evaluation/…` and the workers' seconds; idempotent by its manifest. Raises GateError, StoreError.
    """
    manifest = read_manifest(folder, "evaluation", inputs)
    if manifest is not None:
        return dict(manifest.data["metrics"]), 0.0
    specs = evaluation_specs(f"validation-{seed}", tasks, 1, params.evaluation.limit_s)
    _, rollouts, busy_s = evaluate(specs, pool, params)
    metrics = iteration_metrics(rollouts, "evaluation")
    write_manifest(folder, Manifest("evaluation", inputs, {}, {"metrics": metrics}))
    return metrics, busy_s
