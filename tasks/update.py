"""One policy update on an iteration's rollouts: group advantages, contexts, optimiser steps, the next checkpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rlcr_core.advantages import group_advantages, permute_advantages, scale_advantages
from rlcr_core.config import UpdateConfig
from rlcr_core.contexts import Context, contexts_of
from rlcr_core.labels import labels_of
from rlcr_core.manifests import Manifest, digest_file, read_manifest, write_manifest
from rlcr_core.types import Rollout
from rlcr_core.weights import CHECKPOINT_FILE
from tasks.learner import Learner


def advantages_of(rollouts: Sequence[Rollout], config: UpdateConfig, seed: int = 0) -> list[float]:
    """One advantage per rollout, in their order: return minus its group's mean, then the configured scale.

    `seed` is for `update.control: permuted` alone.
    """
    groups: dict[int, list[int]] = {}
    for index, rollout in enumerate(rollouts):
        groups.setdefault(rollout.key.group, []).append(index)
    raw = [group_advantages([rollouts[i].return_ for i in members]) for members in groups.values()]
    scaled = scale_advantages(raw, config.scale, config.scale_floor)
    if config.control == "permuted":
        scaled = permute_advantages(scaled, seed)
    by_index = {
        i: float(a)
        for members, values in zip(groups.values(), scaled, strict=True)
        for i, a in zip(members, values, strict=True)
    }
    return [by_index[i] for i in range(len(rollouts))]


def training_contexts(rollouts: Sequence[Rollout], config: UpdateConfig, seed: int = 0) -> list[Context]:
    """The contexts of every rollout with its advantage. Raises DataError naming rollout, agent and turn."""
    advantages = advantages_of(rollouts, config, seed)
    return [
        context
        for index, (rollout, advantage) in enumerate(zip(rollouts, advantages, strict=True))
        for context in contexts_of(rollout, advantage, index, labels_of(rollout))
    ]


def update_stage(
    folder: Path,
    inputs: dict[str, str],
    rollouts: Sequence[Rollout],
    learner: Learner,
    config: UpdateConfig,
    checkpoint: Path,
    version: int,
    seed: int,
    progress: float = 0.0,
) -> tuple[dict[str, float], str, float]:
    """Train the learner into `version` and save it in `checkpoint`, or load what a finished update saved.

    `progress` is the iteration's place in the run, 0 to 1 (the learning rate follows it).
    Returns the metrics `optim/…`, the checkpoint's digest and the seconds that gradients took (0 when loaded). Raises
    WeightError for a gradient or weights that are not finite, DataError for data that is not, StoreError.
    """
    manifest = read_manifest(folder, "update", inputs)
    if manifest is not None:
        digest = str(manifest.data["checkpoint"])
        learner.load(checkpoint, digest, version)
        return dict(manifest.data["metrics"]), digest, 0.0
    started = time.monotonic()
    metrics = learner.updater.step(training_contexts(rollouts, config, seed), seed, progress)
    gradient_s = time.monotonic() - started
    digest = learner.save(checkpoint, version)
    index = checkpoint / CHECKPOINT_FILE
    files = {f"../../checkpoints/{checkpoint.name}/{CHECKPOINT_FILE}": digest_file(index)}
    write_manifest(folder, Manifest("update", inputs, files, {"metrics": metrics, "checkpoint": digest}))
    return metrics, digest, gradient_s
