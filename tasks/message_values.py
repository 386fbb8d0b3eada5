"""What messages of stored rollouts were worth, by counterfactual replay (rlcr_core/replay.py), and the means by their class.

Replays run on an engine in this process, all those of one rollout as one batch. A file of values maps a message's number in
the order of MESSAGE events to {"mean", "low", "high", "n"}; a message of which too few replays began alike is left out.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import envs
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, DataError
from rlcr_core.manifests import atomic_write
from rlcr_core.replay import MessageClass, MessageValue, Sent, message_values, messages_of
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.seeds import derive
from rlcr_core.statistics import bootstrap_mean
from rlcr_core.types import Rollout, Task
from tasks.engines import build_engine, worker_threads
from tasks.task_sets import read_tasks


@dataclass(frozen=True, slots=True)
class Valued:
    """A rollout with the values of some of its messages."""

    rollout: Rollout
    values: list[MessageValue]


def known_tasks(files: Sequence[Path]) -> dict[str, Task]:
    """The tasks of these files by id; files that are not there are passed over. Raises DataError when none is."""
    present = [path for path in files if path.is_file()]
    if not present:
        raise DataError(f"None of the task files {', '.join(map(str, files))} is there; name one with --tasks.")
    return {task.id: task for path in present for task in read_tasks(path)}


def sample_messages(rollout: Rollout, count: int) -> list[Sent]:
    """`count` of the rollout's messages, drawn by its key, in order; all of them where there are no more."""
    sent = messages_of(rollout)
    if len(sent) <= count:
        return sent
    rng = np.random.default_rng(derive("messages", *rollout.key))
    return [sent[i] for i in sorted(rng.choice(len(sent), count, replace=False))]


def chosen(rollouts: Sequence[Rollout], group: int | None, number: int | None) -> list[Rollout]:
    """The rollouts of this group and number, None meaning all. Raises DataError when there is none."""
    found = [r for r in rollouts if group in (None, r.key.group) and number in (None, r.key.rollout)]
    if not found:
        raise DataError(f"There is no rollout with group {group} and number {number} among {len(rollouts)}; name another.")
    return found


def measure_values(
    rollouts: Sequence[Rollout], tasks: dict[str, Task], policy: Path, params: Params, messages: int, continuations: int
) -> list[Valued]:
    """Values of `messages` messages of each rollout. Raises ConfigError, DataError for what cannot be replayed."""
    if params.rollouts.clock != "derived":
        raise ConfigError(f"Only the derived clock can be replayed, got {params.rollouts.clock}; change rollouts.clock.")
    missing = sorted({rollout.task_id for rollout in rollouts} - set(tasks))
    if missing:
        raise DataError(f"{len(missing)} tasks are in no task file, the first: {missing[0]}; name their file with --tasks.")
    torch.set_num_threads(worker_threads(params))
    engine, tokenizer = build_engine(policy, params, tasks[rollouts[0].task_id], version=0)

    def run(specs: Sequence[RolloutSpec]) -> list[Rollout]:
        return run_rollouts(specs, envs.make, engine, tokenizer, params)

    found = []
    for rollout in rollouts:
        spec = RolloutSpec(rollout.key, tasks[rollout.task_id], rollout.limit_s)
        sent = sample_messages(rollout, messages)
        found.append(Valued(rollout, message_values(rollout, spec, sent, continuations, run, params.evaluation.confidence)))
    engine.close()
    return found


def values_of(valued: Valued) -> dict[str, dict[str, float]]:
    """The content of a file of values for one rollout."""
    return {
        str(v.message.number): {"mean": v.value.mean, "low": v.value.low, "high": v.value.high, "n": v.n}
        for v in valued.values
        if v.value is not None
    }


def _class_summary(valued: Sequence[Valued], kind: MessageClass, params: Params) -> dict[str, Any] | None:
    """Mean over the messages of a class; the rollout is what is resampled, where there is more than one."""
    by_rollout = [[v.value.mean for v in one.values if v.value and v.message.kind is kind] for one in valued]
    means = [value for members in by_rollout for value in members]
    if not means:
        return None
    clusters = [float(np.mean(members)) for members in by_rollout if members]
    entry: dict[str, Any] = {"messages": len(means), "rollouts": len(clusters), "mean": float(np.mean(clusters))}
    if len(clusters) > 1:
        config = params.evaluation
        interval = bootstrap_mean(clusters, resamples=config.bootstrap_resamples, confidence=config.confidence)
        entry |= {"low": interval.low, "high": interval.high}
    return entry


def summarise_values(valued: Sequence[Valued], params: Params) -> dict[str, Any]:
    """Means by class, how many messages and pairs were valued, and each message, as plain JSON."""
    every = [value for one in valued for value in one.values]
    return {
        "classes": {kind.value: entry for kind in MessageClass if (entry := _class_summary(valued, kind, params))},
        "messages": len(every),
        "pairs": sum(value.n for value in every),
        "invalid_pairs": sum(value.invalid for value in every),
        "values": [
            {
                "group": one.rollout.key.group, "rollout": one.rollout.key.rollout, "message": v.message.number,
                "time_s": v.message.time_s, "sender": v.message.sender, "text": v.message.text, "class": v.message.kind.value,
                "same_seeds": v.same_seeds, "n": v.n, "invalid": v.invalid,
                **({"mean": v.value.mean, "low": v.value.low, "high": v.value.high} if v.value else {}),
            }
            for one in valued
            for v in one.values
        ],
    }  # fmt: skip


def write_values(path: Path, valued: Sequence[Valued], params: Params) -> dict[str, Any]:
    """Write the file of values (of several rollouts: one for each `<group>/<rollout>`) and `<name>.summary.json` beside it.

    Returns the summary. Raises StoreError.
    """
    summary = summarise_values(valued, params)
    by_rollout = {f"{one.rollout.key.group}/{one.rollout.key.rollout}": values_of(one) for one in valued}
    content = values_of(valued[0]) if len(valued) == 1 else by_rollout
    for target, document in ((path, content), (path.with_suffix(".summary.json"), summary)):
        atomic_write(target, (json.dumps(document, indent=1) + "\n").encode())
    return summary
