"""The MLflow runs of an evaluation: one of the whole grid, and one of each trained policy, nested under its training run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rlcr_core.config import Params
from tasks.paths import Project
from tasks.tracking import Tracker, evaluation_run_file, open_run


@contextmanager
def nested_run(
    project: Project, params: Params, mode: str, seed: int, inputs: Mapping[str, Path], tags: Mapping[str, str] | None = None
) -> Iterator[Tracker]:
    """Open or resume the evaluation of one trained policy, nested under the run that trained it.

    May be opened inside the run of the whole evaluation, under which it goes when the store does not know who trained these
    weights. Raises StoreError.
    """
    whole = evaluation_run_file(project, params)
    state = whole.with_name(f"{whole.stem}-{mode}-{seed}.json")
    own = {"mode": mode, "seed": str(seed), **(tags or {})}
    checkpoint = project.trained(mode, seed) / "checkpoint"
    with open_run(project, params, f"evaluation {mode}-{seed}", state, inputs, own, checkpoint) as tracker:
        yield tracker
