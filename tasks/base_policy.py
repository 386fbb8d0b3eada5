"""The base stage: take the kept checkpoint when it was made from this configuration, else train it; gate it either way."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rlcr_core.config import Params
from rlcr_core.errors import DataError
from rlcr_core.manifests import atomic_write, canonical_json, digest_file, replaced_directory
from rlcr_core.types import Task
from rlcr_core.weights import MODEL_FILE
from tasks.chat_base import train_chat_base
from tasks.models import resolve_model
from tasks.paths import Project
from tasks.warm_start import gate, make_tokenizer, train_base

RECORD = "base.json"  # beside the kept checkpoint: what it was made from, its weights' digest, its metrics
SETTINGS = ("seed", "steps", "batch_size", "lr", "observations", "shuffled_share")

Report = Callable[[int, float], None]


def base_digest(params: Params, task: Task) -> str:
    """SHA-256 of what a base must have been made for: environment, vocabulary, policy and cloning settings."""
    settings = {name: getattr(params.base, name) for name in SETTINGS}
    policy = params.policy.model_dump(mode="json", exclude={"model", "lora"})
    document = [task.environment, settings, policy, list(make_tokenizer(task).words)]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_record(folder: Path) -> dict[str, Any] | None:
    """What a kept base was made from; None where there is none. Raises DataError for a damaged record."""
    path = folder / RECORD
    if not path.is_file():
        return None
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        return {"digest": str(record["digest"]), "weights": str(record["weights"]), "metrics": dict(record["metrics"])}
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{path} is no record of a base policy ({error!r}); restore it, or delete the folder to retrain the base."
        ) from error


def _check_weights(folder: Path, expected: str) -> None:
    got = digest_file(folder / MODEL_FILE)
    if got != expected:
        raise DataError(
            f"{folder / MODEL_FILE} has the SHA-256 {got}, its record says {expected}; restore the file, or delete the folder "
            "to retrain the base (some minutes)."
        )


def make_base(project: Project, params: Params, tasks: list[Task], report: Report | None, retrain: bool = False) -> str:
    """Write artifacts/base; returns in words where it came from.

    Raises GateError for a base that is too weak, DataError for a kept one that is damaged, StoreError.
    """
    if params.policy.model:
        source = resolve_model(params.policy.model, project.models)
        metrics = train_chat_base(params, tasks, source, project.base, report)
        atomic_write(project.base_metrics, canonical_json(metrics, "The metrics of the base"))
        return f"{params.policy.model} taught the grammar of calls in {params.base.steps} steps"
    kept = project.root / params.base.checkpoint
    digest = base_digest(params, tasks[0])
    record = None if retrain else read_record(kept)
    if record is not None and record["digest"] == digest:
        _check_weights(kept, record["weights"])
        metrics, words = record["metrics"], f"kept base policy {params.base.checkpoint}"
        gate(metrics, params.base.gate_retrieval)
        with replaced_directory(project.base) as temporary:
            for path in sorted(kept.iterdir()):
                if path.is_file() and path.name != RECORD:
                    shutil.copy2(path, temporary / path.name)
    else:
        metrics, words = (
            train_base(params, tasks, project.base, report),
            f"base policy trained in {params.base.steps} steps",
        )
    atomic_write(project.base_metrics, canonical_json(metrics, "The metrics of the base"))
    return words


def keep_base(project: Project, params: Params, tasks: list[Task]) -> Path:
    """Copy artifacts/base to base.checkpoint with its record, so that the repository holds it."""
    kept = project.root / params.base.checkpoint
    metrics = json.loads(project.base_metrics.read_text(encoding="utf-8"))
    record = {
        "digest": base_digest(params, tasks[0]),
        "weights": digest_file(project.base / MODEL_FILE),
        "metrics": metrics,
        "command": "python -m flows.base --retrain --keep",
    }
    with replaced_directory(kept) as temporary:
        for path in sorted(project.base.iterdir()):
            shutil.copy2(path, temporary / path.name)
        atomic_write(temporary / RECORD, canonical_json(record, "The record of the base"))
    return kept
