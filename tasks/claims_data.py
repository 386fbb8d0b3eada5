"""What the studies behind the table of claims left on disk, as values by seed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from rlcr_core.errors import DataError
from rlcr_core.statistics import clustered
from rlcr_core.types import Float64Array
from tasks.figures import Run
from tasks.grid import MAIN
from tasks.paths import Project
from tasks.report_data import read_curves, read_runs, read_summary

TENTH = 10


def first_tenth(values: Float64Array) -> float:
    """Mean of the first tenth of the iterations; NaN where a metric has no value in any of them."""
    return _mean(values[: max(1, len(values) // TENTH)])


def last_tenth(values: Float64Array) -> float:
    return _mean(values[-max(1, len(values) // TENTH) :])


def _mean(values: Float64Array) -> float:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else float("nan")


@dataclass(frozen=True)
class StudyResults:
    """One study's training curves, evaluation summary and rollout table."""

    name: str
    runs: tuple[Run, ...]
    summary: dict[str, Any]
    table: dict[str, Any]  # column -> values of rollouts.parquet
    curves: dict[tuple[str, int], Any]  # (organisation, seed) -> Curve

    def by_seed(self, mode: str, value: Callable[[Run], float]) -> Float64Array:
        """[S] a figure of each run of a mode, by seed. Raises DataError when there is none."""
        found = [value(run) for run in sorted(self.runs, key=lambda r: r.seed) if run.mode == mode]
        if not found:
            raise DataError(f"The study {self.name} has no {mode} run; run `python -m flows.claims` again.")
        return np.asarray(found)

    def change(self, mode: str, key: str) -> Float64Array:
        """[S] last tenth minus first tenth of a metric."""
        return self.by_seed(mode, lambda run: last_tenth(column(run, key)) - first_tenth(column(run, key)))

    def returns(self, organisation: str, limit_s: float, family: str = MAIN) -> Float64Array:
        """[S, K] return of each seed on each task, rollouts averaged. Raises DataError where the cell was not run."""
        table = self.table
        rows = []
        for seed in sorted(set(table["seed"])):
            chosen = [
                i
                for i, row in enumerate(zip(table["organisation"], table["limit_s"], table["family"], table["seed"], strict=True))
                if row == (organisation, limit_s, family, seed)
            ]
            if chosen:
                rows.append(clustered([table["return"][i] for i in chosen], [table["task_id"][i] for i in chosen])[1])
        if not rows:
            raise DataError(f"The study {self.name} has no {organisation} at {limit_s:g} s on {family} tasks; evaluate it.")
        return np.stack(rows)

    @property
    def limit_s(self) -> float:
        return float(self.summary["limit_s"])


def column(run: Run, key: str) -> Float64Array:
    values = run.column(key)
    return np.full(len(run.iterations), np.nan) if values is None else values


def read_study(folder: Path) -> StudyResults | None:
    """The results in a workspace; None where the study has not been evaluated."""
    project = Project(folder)
    summary = project.evaluation / "summary.json"
    if not summary.is_file():
        return None
    table = pq.read_table(project.evaluation / "rollouts.parquet").to_pydict()
    curves = {(c.organisation, c.seed): c for c in read_curves(project.evaluation / "curves.csv")}
    return StudyResults(folder.name, read_runs(project.artifacts / "train"), read_summary(summary), table, curves)


def read_json(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where the file is not."""
    if not path.is_file():
        return None
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def rows_of(study: StudyResults, kind: str, **wanted: Any) -> Sequence[dict[str, Any]]:
    """The evidence rows of a kind with these values, by seed."""
    rows = study.summary.get("evidence", {}).get(kind, [])
    return sorted((r for r in rows if all(r.get(k) == v for k, v in wanted.items())), key=lambda r: r["seed"])
