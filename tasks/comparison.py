"""What an evaluation comes to: means with intervals, paired differences, curves with bands, the crossing time."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlcr_core.config import EvaluationConfig, Params
from rlcr_core.manifests import atomic_write
from rlcr_core.metrics import iteration_metrics, return_curve
from rlcr_core.statistics import bootstrap_mean, clustered, crossing_time, paired_difference
from rlcr_core.store import to_tables, write_rollouts
from rlcr_core.types import Float64Array, Rollout
from tasks.evidence import evidence
from tasks.grid import MAIN, Grid
from tasks.intervals import entry, options
from tasks.organisations import ORGANISATIONS

Results = Mapping[tuple[str, int], Sequence[Rollout]]  # (organisation, seed) -> its rollouts at limit_s on the test tasks
PAIRS = (  # those with another limit or several attempts are compared in tasks.evidence
    ("collective", "solo"),
    *(
        ("collective", o.name)
        for o in ORGANISATIONS
        if o.name not in ("collective", "solo") and not o.is_long and not o.is_attempts
    ),
    ("silent", "solo"),
    ("alone", "solo"),
)
BAND_STEP_S = 1.0
CROSSING_STEP_S = 0.25


def _grid(limit_s: float, step_s: float) -> Float64Array:
    """0, step, … and the limit itself."""
    return np.append(np.arange(0.0, limit_s, step_s), limit_s)


def returns_of(rollouts: Sequence[Rollout]) -> Float64Array:
    """Mean return of each task [K], by task id."""
    return clustered([rollout.return_ for rollout in rollouts], [rollout.task_id for rollout in rollouts])[1]


def curves_of(rollouts: Sequence[Rollout], grid_s: Float64Array) -> Float64Array:
    """Mean return-against-time curve of each task [K, T], by task id."""
    curves = np.stack([return_curve(rollout, grid_s) for rollout in rollouts])
    return clustered(curves, [rollout.task_id for rollout in rollouts])[1]


def _organisation(name: str, seed: int, rollouts: Sequence[Rollout], config: EvaluationConfig) -> dict[str, Any]:
    metrics = iteration_metrics(rollouts)
    return {
        "name": name,
        "seed": seed,
        **entry(bootstrap_mean(returns_of(rollouts), **options(config))),
        "hires": metrics["roster/hires"],
        "true_share": metrics.get("talk/true_share"),
        "received_keys": metrics["work/received_key_mean"],
        "tokens": metrics["tokens/per_rollout"],
    }


def _crossing(results: Results, seeds: Sequence[int], config: EvaluationConfig) -> dict[str, Any]:
    """When the trained collective overtakes solo for good; several seeds are averaged within each task."""
    usable = [seed for seed in seeds if ("collective", seed) in results and ("solo", seed) in results]
    if not usable:
        return {"mean": None, "low": None, "high": None, "never_share": None}
    grid_s = _grid(config.limit_s, CROSSING_STEP_S)
    a, b = (
        np.mean([curves_of(results[name, seed], grid_s) for seed in usable], axis=0) for name in ("collective", "solo")
    )
    crossing = crossing_time(a, b, grid_s, **options(config))
    return {
        "mean": crossing.time_s,
        "low": crossing.low_s,
        "high": crossing.high_s,
        "never_share": 1.0 - crossing.share,
    }


def summarise(results: Results, config: EvaluationConfig) -> dict[str, Any]:
    """Everything the report and the table show, as plain JSON. Raises DataError for fewer than two tasks."""
    seeds = sorted({seed for _, seed in results})
    differences = [
        {"a": a, "b": b, "seed": seed}
        | entry(paired_difference(returns_of(results[a, seed]), returns_of(results[b, seed]), **options(config)))
        for a, b in PAIRS
        for seed in seeds
        if (a, seed) in results and (b, seed) in results
    ]
    return {
        "limit_s": config.limit_s,
        "tasks": len({rollout.task_id for rollouts in results.values() for rollout in rollouts}),
        "confidence": config.confidence,
        "organisations": [_organisation(name, seed, rollouts, config) for (name, seed), rollouts in results.items()],
        "differences": differences,
        "crossing": _crossing(results, seeds, config),
    }


def headline(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that DVC compares between revisions: organisation-seed -> return, hires, true share."""
    found: dict[str, Any] = {
        f"{entry['name']}-{entry['seed']}": {
            "return": entry["mean"],
            "hires": entry["hires"],
            **({} if entry["true_share"] is None else {"true_share": entry["true_share"]}),
        }
        for entry in summary["organisations"]
    }
    if summary["crossing"]["mean"] is not None:
        found["crossing_s"] = summary["crossing"]["mean"]
    return found


def _curve_rows(results: Results, config: EvaluationConfig) -> list[list[Any]]:
    grid_s = _grid(config.limit_s, BAND_STEP_S)
    rows: list[list[Any]] = []
    for (name, seed), rollouts in results.items():
        curves_KT = curves_of(rollouts, grid_s)
        for time_s, values_K in zip(grid_s, curves_KT.T, strict=True):
            interval = bootstrap_mean(values_K, **options(config))
            rows.append([name, seed, repr(float(time_s)), repr(interval.mean), repr(interval.low), repr(interval.high)])
    return rows


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    return buffer.getvalue().encode()


def main_results(grid: Grid, config: EvaluationConfig) -> Results:
    """The cells at limit_s on the test tasks that are compared there: neither long nor several attempts."""
    compared = {o.name for o in ORGANISATIONS if not o.is_long and not o.is_attempts}
    return {
        (name, seed): rollouts
        for (name, limit_s, family, seed), rollouts in grid.items()
        if (limit_s, family) == (config.limit_s, MAIN) and name in compared
    }


def _rollout_rows(grid: Grid) -> pa.Table:
    rows = []
    for (name, limit_s, family, seed), rollouts in grid.items():
        for rollout in rollouts:
            metrics = iteration_metrics([rollout])
            rows.append(
                {
                    "organisation": name,
                    "family": family,
                    "limit_s": limit_s,
                    "told_s": rollout.limit_s,
                    "seed": seed,
                    "task_id": rollout.task_id,
                    "rollout": rollout.key.rollout,
                    "return": rollout.return_,
                    "end_s": rollout.end_s,
                    "stop_reason": rollout.stop_reason.value,
                    "hires": rollout.n_hires,
                    "messages": metrics["talk/messages"],
                    "true_share": metrics.get("talk/true_share"),
                    "received_keys": metrics["work/received_key_mean"],
                    "tokens": metrics["tokens/total"],
                }
            )
    return pa.Table.from_pylist(rows)


def typical(rollouts: Sequence[Rollout]) -> int:
    """Index of the rollout with the median return: what the timeline shows must not be the best one."""
    order = sorted(range(len(rollouts)), key=lambda i: (rollouts[i].return_, i))
    return order[len(order) // 2]


def write_timelines(folder: Path, before: Sequence[Rollout], after: Sequence[Rollout]) -> None:
    """One task's rollout before and after training, the same key and seed in both."""
    index = typical(after)
    write_rollouts(folder / "timeline_before", to_tables([before[index]]))
    write_rollouts(folder / "timeline_after", to_tables([after[index]]))


def write_comparison(folder: Path, grid: Grid, params: Params) -> dict[str, Any]:
    """Write rollouts.parquet, curves.csv, timelines, metrics.json and last summary.json; returns the summary.

    Raises StoreError when the disk refuses.
    """
    config = params.evaluation
    results = main_results(grid, config)
    summary = summarise(results, config) | {"evidence": evidence(grid, params)}
    sink = pa.BufferOutputStream()
    pq.write_table(_rollout_rows(grid), sink, compression="zstd")
    atomic_write(folder / "rollouts.parquet", sink.getvalue().to_pybytes())
    header = ("organisation", "seed", "time_s", "mean", "low", "high")
    atomic_write(folder / "curves.csv", _csv(header, _curve_rows(results, config)))
    seed = min(seed for _, seed in results)
    if ("collective", seed) in results and ("base", seed) in results:
        write_timelines(folder, results["base", seed], results["collective", seed])
    for name, content in (("metrics.json", headline(summary)), ("summary.json", summary)):
        atomic_write(folder / name, (json.dumps(content, indent=1, sort_keys=True) + "\n").encode())
    return summary
