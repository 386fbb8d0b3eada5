"""What the report is made from: reads the files under artifacts/ and says which stage makes a missing one.

Required: params.yaml, train/<mode>-<seed>/curves.csv (at least one), evaluation/summary.json, evaluation/curves.csv.
Optional, a sentence in the report when missing: schedule.csv, base/metrics.json, evaluation/timeline_before and _after.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from rlcr_core.config import Params, load_params
from rlcr_core.errors import DataError
from rlcr_core.manifests import digest_file
from rlcr_core.store import read_rollouts
from rlcr_core.types import Float64Array
from tasks.figures import Curve, Run
from tasks.paths import Project
from tasks.timeline import Timeline, timeline_of

SUMMARY_KEYS = ("limit_s", "tasks", "confidence", "organisations", "differences", "crossing")


@dataclass(frozen=True)
class ReportInputs:
    """Everything in the report. `missing` says in words what optional input is not there and how to make it."""

    params: Params
    runs: tuple[Run, ...]
    summary: Mapping[str, Any]
    curves: tuple[Curve, ...]
    timelines: Mapping[str, Timeline]
    base: Mapping[str, Any]
    digests: Mapping[str, str]
    missing: Mapping[str, str] = field(default_factory=dict)
    claims: Mapping[str, Any] = field(default_factory=dict)  # docs/claims.json, by section; empty where it is not
    city: Mapping[str, Any] = field(default_factory=dict)  # artifacts/city/summary.json


def _text(path: Path, stage: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise DataError(f"The report needs {path}, which does not exist; make it with `dvc repro {stage}`.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"The report cannot read {path}: {error}; make it anew with `dvc repro -f {stage}`.") from None


def _json(path: Path, stage: str) -> dict[str, Any]:
    try:
        data = json.loads(_text(path, stage))
    except json.JSONDecodeError as error:
        raise DataError(f"{path} is not valid JSON: {error}; make it anew with `dvc repro -f {stage}`.") from None
    if not isinstance(data, dict):
        raise DataError(f"{path} should hold an object, got {type(data).__name__}; run `dvc repro -f {stage}`.")
    return data


def read_columns(path: Path, required: Sequence[str], stage: str) -> dict[str, list[str]]:
    """The columns of a CSV file as text. Raises DataError naming the file, the missing columns and the stage."""
    rows = list(csv.reader(io.StringIO(_text(path, stage))))
    header = rows[0] if rows else []
    absent = [name for name in required if name not in header]
    if absent or len(rows) < 2:
        what = f"has no column {', '.join(absent)}" if absent else "has no rows"
        raise DataError(f"{path} {what} (it has: {', '.join(header) or 'nothing'}); run `dvc repro -f {stage}`.")
    ragged = [number for number, row in enumerate(rows, 1) if len(row) != len(header)]
    if ragged:
        raise DataError(
            f"{path} line {ragged[0]} has {len(rows[ragged[0] - 1])} fields, expected {len(header)}: the file was cut "
            f"or edited; run `dvc repro -f {stage}`."
        )
    return {name: [row[i] for row in rows[1:]] for i, name in enumerate(header)}


def numbers(values: Sequence[str]) -> Float64Array:
    """Text to float64; empty or non-numeric cells are NaN: a metric may be missing in some iterations."""

    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            return float("nan")

    return np.array([number(text) for text in values], dtype=np.float64)


def read_runs(train: Path) -> tuple[Run, ...]:
    """Training curves of every <mode>-<seed> folder, by mode and seed. Raises DataError when there is none."""
    runs = []
    for path in sorted(train.glob("*/curves.csv")):
        mode, _, seed = path.parent.name.rpartition("-")
        if not mode or not seed.isdecimal():
            continue
        columns = read_columns(path, ["iteration"], f"train@{path.parent.name}")
        runs.append(Run(mode, int(seed), {name: numbers(values) for name, values in columns.items()}))
    if not runs:
        raise DataError(
            f"The report needs {train}/<mode>-<seed>/curves.csv, found none; make it with `dvc repro train`."
        )
    return tuple(sorted(runs, key=lambda run: (run.mode, run.seed)))


def read_curves(path: Path) -> tuple[Curve, ...]:
    """Return-against-time curves, one for each organisation and seed, in the file's order."""
    names = ("time_s", "mean", "low", "high")
    columns = read_columns(path, ["organisation", "seed", *names], "evaluate")
    values = {name: numbers(columns[name]) for name in names}
    keys = list(zip(columns["organisation"], columns["seed"], strict=True))
    curves = []
    for organisation, seed in dict.fromkeys(keys):
        chosen = np.array([key == (organisation, seed) for key in keys])
        parts = {name: values[name][chosen] for name in names}
        if not all(np.isfinite(part).all() for part in parts.values()):
            raise DataError(f"{path} has an empty or non-finite value for {organisation}; run `dvc repro -f evaluate`.")
        curves.append(Curve(organisation, int(seed) if seed.isdecimal() else 0, **parts))
    return tuple(curves)


def read_summary(path: Path) -> dict[str, Any]:
    """The evaluation's figures. Raises DataError naming what is missing."""
    summary = _json(path, "evaluate")
    absent = [key for key in SUMMARY_KEYS if key not in summary]
    if absent:
        raise DataError(
            f"{path} has no {', '.join(absent)} (it has: {', '.join(summary)}); run `dvc repro -f evaluate`."
        )
    return summary


def _read_timelines(evaluation: Path, missing: dict[str, str]) -> dict[str, Timeline]:
    timelines = {}
    for when in ("before", "after"):
        folder = evaluation / f"timeline_{when}"
        rollouts = read_rollouts(folder) if folder.is_dir() else []
        if rollouts:
            timelines[when] = timeline_of(rollouts[0])
        else:
            missing[f"timeline_{when}"] = (
                f"There is no rollout from {when} training to draw; `dvc repro -f evaluate` keeps one."
            )
    return timelines


def _digests(project: Project, params: Path) -> dict[str, str]:
    """SHA-256 of everything that went in, and of the policies behind it."""
    artifacts = project.artifacts
    patterns = (
        "tasks/*.jsonl",
        "tasks/*.json",
        "schedule.csv",
        "base/**/*.safetensors",
        "train/*/curves.csv",
        "train/*/**/*.safetensors",
    )
    found = [path for pattern in patterns for path in sorted(artifacts.glob(pattern))]
    found += [project.evaluation / name for name in ("summary.json", "curves.csv")]
    digests = {path.relative_to(project.root).as_posix(): digest_file(path) for path in found if path.is_file()}
    return {params.name: digest_file(params), **digests}


def load_inputs(project: Project, params: Path) -> ReportInputs:
    """Read everything that the report shows.

    Raises DataError (missing or damaged input, with the stage to run) or ConfigError (the parameter file).
    """
    missing: dict[str, str] = {}
    loaded = load_params(params)
    runs = read_runs(project.artifacts / "train")
    summary = read_summary(project.evaluation / "summary.json")
    curves = read_curves(project.evaluation / "curves.csv")
    timelines = _read_timelines(project.evaluation, missing)
    base: dict[str, Any] = {}
    if project.base_metrics.is_file():
        base = _json(project.base_metrics, "base")
    else:
        missing["base"] = "The base policy's own figures are missing; `dvc repro base` makes them."
    if not project.schedule.is_file():
        missing["schedule"] = "The schedule's file is missing; `dvc repro schedule` makes it."
    if not any(run.mode == "solo" for run in runs):
        missing["solo"] = "No solo run was trained, so the learning curves show the collective only (train.modes)."
    claims, city = (
        _json(path, stage) if path.is_file() else {}
        for path, stage in (
            (project.root / "docs" / "claims.json", "evaluate"),
            (project.artifacts / "city" / "summary.json", "evaluate"),
        )
    )
    digests = _digests(project, params)
    return ReportInputs(loaded, runs, summary, curves, timelines, base, digests, missing, claims, city)
