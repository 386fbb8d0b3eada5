"""Organisations on the same tasks: the same policy or another, with or without hiring, with messages muted or scrambled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, GateError
from rlcr_core.manifests import Manifest, read_manifest, write_manifest
from rlcr_core.metrics import iteration_metrics
from rlcr_core.rollout import RolloutSpec
from rlcr_core.store import Tables, from_tables
from rlcr_core.types import Rollout, RolloutKey, StopReason, Task
from tasks.paths import Project
from tasks.rollouts import collect
from tasks.weight_sync import sync_folder
from tasks.workers import WorkerPool

Messages = Literal["normal", "mute", "scrambled"]


@dataclass(frozen=True, slots=True)
class Organisation:
    """One way to work on the tasks. `name` is what summary.json and the report call it."""

    name: str
    policy: str  # base, collective or solo: whose weights
    hires: bool = True
    messages: Messages = "normal"


ORGANISATIONS = (
    Organisation("base", "base"),
    Organisation("collective", "collective"),
    Organisation("alone", "collective", hires=False),
    Organisation("solo", "solo", hires=False),
    Organisation("scrambled", "collective", messages="scrambled"),
    Organisation("mute", "collective", messages="mute"),
)


def organisations(modes: Sequence[str], wanted: Sequence[str], is_server: bool = False) -> list[Organisation]:
    """Of the `wanted` names those whose policy was trained; of a server elsewhere, whose policy is one, those that differ
    otherwise. Raises ConfigError when none is left.
    """
    if is_server:
        found = [replace(o, policy="base") for o in ORGANISATIONS if o.policy == "collective" and o.name in wanted]
    else:
        found = [o for o in ORGANISATIONS if o.policy in ("base", *modes) and o.name in wanted]
    if not found:
        raise ConfigError(
            f"No policy of the organisations {', '.join(wanted)} is there to evaluate, got modes {', '.join(modes)}; change "
            "evaluation.organisations or train.modes."
        )
    return found


def arranged(params: Params, organisation: Organisation) -> Params:
    """The parameters with the organisation's hiring and messages."""
    changes: dict[str, object] = {"messages": organisation.messages}
    if not organisation.hires:
        changes["max_hires"] = 0
    return params.model_copy(update={"collective": params.collective.model_copy(update=changes)})


def policy_folder(project: Project, organisation: Organisation, seed: int) -> Path:
    if organisation.policy == "base":
        return project.base
    return project.trained(organisation.policy, seed) / "checkpoint"


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


def evaluate_organisation(
    project: Project, params: Params, organisation: Organisation, seed: int, tasks: Sequence[Task], pool: WorkerPool
) -> list[Rollout]:
    """The organisation's rollouts on these tasks at evaluation.limit_s. Raises WeightError, GateError."""
    sync_folder(policy_folder(project, organisation, seed), 0, pool)
    config = params.evaluation
    specs = evaluation_specs(f"evaluation-{seed}", tasks, config.rollouts_per_task, config.limit_s)
    return evaluate(specs, pool, arranged(params, organisation))[1]


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
