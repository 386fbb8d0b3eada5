"""The same weights on every worker, or the run stops: digest, version and probe."""

from __future__ import annotations

from pathlib import Path

from rlcr_core.policy import load_policy
from rlcr_core.tokens import load_tokenizer
from rlcr_core.weights import Published
from tasks.learner import Learner
from tasks.probe import make_probe
from tasks.workers import WorkerPool


def publish(learner: Learner, pool: WorkerPool) -> None:
    """Let the workers start to load the learner's published version; `sync_weights` waits for them."""
    if pool.published != learner.published:
        pool.start_sync(learner.published, make_probe(learner.model, len(learner.tokenizer)))


def sync_weights(learner: Learner, pool: WorkerPool) -> int:
    """Bring the workers to the learner's published version; returns that version.

    The checkpoint that the update wrote (the base's folder at version 0) is what workers load, checked by the SHA-256 of
    its model file. Raises WeightError for another digest, another version or a probe that disagrees; the pool's version
    is then not advanced.
    """
    publish(learner, pool)
    pool.confirm()
    return learner.published.version


def sync_folder(directory: Path, version: int, pool: WorkerPool) -> None:
    """Bring the workers to the policy in a Hugging Face folder, for evaluations. Raises WeightError as above."""
    published = Published.of(directory, version)
    pool.sync(published, make_probe(load_policy(directory), len(load_tokenizer(directory))))
