"""Task files: one JSON object a line, written whole, read strictly."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import envs
from rlcr_core.config import TaskSetConfig
from rlcr_core.errors import TaskError
from rlcr_core.manifests import atomic_write
from rlcr_core.types import Task

FIELDS = {field.name for field in dataclasses.fields(Task)}


def generate_split(config: TaskSetConfig, split: str) -> list[Task]:
    """The tasks of one split, from the environment's own generator. Raises TaskError."""
    return envs.generate(
        config.environment,
        families=config.families,
        split=split,
        count=getattr(config, split),
        seed=config.seed,
        packages=config.packages,
        modules=config.modules,
        parallel_share=config.parallel_share,
        coupling=config.coupling,
    )


def generate_variant(config: TaskSetConfig, name: str) -> list[Task]:
    """The tasks of a further test set: the test split's generator and seed with the variant's changes. Raises TaskError."""
    changes = config.variants[name].model_dump(exclude_none=True)
    return generate_split(config.model_copy(update=changes), "test")


def write_tasks(path: Path, tasks: Sequence[Task]) -> None:
    """Write a task file atomically; equal tasks give equal bytes. Raises StoreError."""
    lines = [
        json.dumps(
            {"id": t.id, "environment": t.environment, "split": t.split, "seed": t.seed, "spec": dict(t.spec)},
            sort_keys=True,
        )
        for t in tasks
    ]
    atomic_write(path, "".join(f"{line}\n" for line in lines).encode())


def _task(line: str) -> Task:
    data = json.loads(line)
    if not isinstance(data, dict) or set(data) != FIELDS:
        raise ValueError(f"expected an object with the keys {', '.join(sorted(FIELDS))}")
    return Task(**data)


def read_tasks(path: Path) -> list[Task]:
    """Read a task file. Raises TaskError naming the line that is cut, malformed or repeated, and what to do."""
    advice = "Run `dvc repro tasks` to make it again, or restore it with `dvc checkout`."
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TaskError(f"The task file {path} cannot be read ({error}). {advice}") from error
    if not text.endswith("\n"):
        raise TaskError(f"The task file {path} is empty or cut short: its last line has no end. {advice}")
    tasks: dict[str, Task] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            task = _task(line)
            if task.id in tasks:
                raise ValueError(f"the task id {task.id!r} occurs twice")
        except (ValueError, TypeError) as error:
            raise TaskError(f"The task file {path} cannot be used: line {number}: {error}. {advice}") from error
        tasks[task.id] = task
    return list(tasks.values())
