"""What the city's rows come to: means with intervals per cell, divergences from training, the names' control, fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from envs.workshop.states import State
from rlcr_core.config import EvaluationConfig, Params
from rlcr_core.divergence import jensen_shannon, merged, novel_share
from rlcr_core.errors import DataError
from rlcr_core.scalability import Scalability, fit_scalability
from rlcr_core.statistics import bootstrap_mean, paired_difference
from tasks.city import CellResult, Row
from tasks.city_cells import HIRINGS, WORKS, Cell, main_cells, reference, training_size
from tasks.intervals import entry, options
from tasks.verdicts import judge, no_loss

JOINT = ("role", "time", "size", "notes", "msgs", "visible")  # the features of a situation, taken together
FEATURES = (*State._fields, "joint")
LEAST_LOSS = 0.02  # of return: a loss below it would not matter to anybody


def _per(top: str, bottom: str) -> Callable[[Row], float]:
    return lambda row: row[top] / row[bottom] if row[bottom] else 0.0


def _builds(row: Row) -> float:
    return float(row["work_done"] + row["work_dup"] + row["work_bad"])


def _tokens(row: Row) -> float:
    return float(sum(value for key, value in row.items() if key.startswith("tokens_")))


# Column of the summary -> its value in one rollout. `employed` counts the CEO and everybody ever hired.
MEASURES: Mapping[str, Callable[[Row], float]] = {
    "return": lambda row: row["return"],
    "modules": lambda row: row["modules"],
    "modules_per_s": _per("modules", "end_s"),
    "employed": lambda row: row["employed"],
    "modules_per_agent": _per("modules", "employed"),
    "useful_per_agent": _per("tokens_work", "employed"),
    "talk_per_agent": _per("tokens_talk", "employed"),
    "messages_per_agent": _per("messages", "employed"),
    "true_share": _per("messages_true", "messages"),
    "duplicate_share": lambda row: row["work_dup"] / _builds(row) if _builds(row) else 0.0,
    "bad_share": lambda row: row["work_bad"] / _builds(row) if _builds(row) else 0.0,
    "tokens": _tokens,
    "invalid_share": lambda row: row["tokens_invalid"] / _tokens(row) if _tokens(row) else 0.0,
    "time_effective": lambda row: row["time_effective"],
    "time_work": lambda row: row["time_work"],
    "time_idle": lambda row: row["time_idle"],
    "time_reading": lambda row: row["time_reading"],
    "seen_facts": lambda row: row["seen_facts"],
    "seen_modules": lambda row: row["seen_modules"],
    "seen_keys": lambda row: row["seen_keys"],
}


def values(result: CellResult, measure: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The measure of each of the cell's rollouts [N], by task."""
    return np.array([MEASURES[measure](row) for row in result.rows], dtype=np.float64)


def cell_entry(result: CellResult, config: EvaluationConfig) -> dict[str, Any]:
    """The cell with the mean and interval of every measure."""
    measures = {name: entry(bootstrap_mean(values(result, name), **options(config))) for name in MEASURES}
    return {**asdict(result.cell), "name": result.cell.name, "measures": measures}


def _feature(states: Counter[Hashable], feature: str) -> Counter[Hashable]:
    """Counts of one feature's values, or of the joint cells."""
    wanted = JOINT if feature == "joint" else (feature,)
    places = [State._fields.index(name) for name in wanted]
    counts: Counter[Hashable] = Counter()
    for state, n in states.items():
        counts[tuple(state[place] for place in places)] += n  # type: ignore[index]
    return counts


def divergences(states: Counter[Hashable], other: Counter[Hashable]) -> dict[str, float]:
    """Jensen-Shannon divergence of each feature in bits, and the share of joint cells that `other` never showed."""
    found = {name: jensen_shannon(_feature(states, name), _feature(other, name)) for name in FEATURES}
    return found | {"novel": novel_share(_feature(other, "joint"), _feature(states, "joint"))}


def shift_entries(results: Mapping[Cell, CellResult], params: Params) -> dict[str, Any]:
    """How far each cell's observations are from those of the training's own condition; `floor`: of its two halves."""
    even, odd = results[reference(params)].states
    trained = merged([even, odd])
    cells = {
        cell.name: divergences(merged(list(result.states)), trained)
        for cell, result in results.items()
        if cell.played == "policy" and cell != reference(params)
    }
    return {"floor": divergences(even, odd), "observations": sum(trained.values()), "cells": cells}


def name_entries(results: Mapping[Cell, CellResult], params: Params) -> list[dict[str, Any]]:
    """What nicknames change: returns of the same tasks with names in full and with nicknames, and the paired difference."""
    found = []
    own_options = options(params.evaluation)
    for cell, result in results.items():
        other = results.get(replace(cell, played="names"))
        if cell.played != "policy" or other is None:
            continue
        own, full = values(result, "return"), values(other, "return")
        found.append({
            "size": cell.size, "hiring": cell.hiring, "nicknames": entry(bootstrap_mean(own, **own_options)),
            "names": entry(bootstrap_mean(full, **own_options)), "difference": entry(paired_difference(own, full, **own_options)),
        })  # fmt: skip
    return found


def _laws(fit: Scalability) -> dict[str, Any]:
    universal, amdahl = fit.universal, fit.amdahl
    return {
        "sizes": list(fit.sizes),
        "means": list(fit.means),
        "universal": {
            "rate": entry(universal.rate), "sigma": entry(universal.sigma), "kappa": entry(universal.kappa),
            "peak": {"value": universal.peak.value, "low": universal.peak.low, "high": universal.peak.high},
            "is_extrapolated": universal.is_extrapolated, "r2": universal.r2, "aicc": universal.aicc,
        },
        "amdahl": {
            "rate": entry(amdahl.rate), "parallel_share": entry(amdahl.parallel_share), "r2": amdahl.r2, "aicc": amdahl.aicc,
        },
    }  # fmt: skip


def fit_entries(results: Sequence[CellResult], params: Params) -> list[dict[str, Any]]:
    """Both laws through modules per second at each size; `error` says why there is no fit, such as fewer than 3 sizes."""
    found: list[dict[str, Any]] = []
    by_cell, sweep = {result.cell: result for result in results}, main_cells(params)
    for work in WORKS:
        for hiring in HIRINGS:
            for played in ("policy", "ceiling"):
                some = [by_cell[cell] for cell in sweep if (cell.work, cell.hiring, cell.played) == (work, hiring, played)]
                n = [r.cell.size for r in some for _ in r.rows]
                x = [float(value) for r in some for value in values(r, "modules_per_s")]
                tasks = [row["task_id"] for r in some for row in r.rows]
                fit: dict[str, Any] = {"work": work, "hiring": hiring, "played": played}
                try:
                    fit |= _laws(fit_scalability(n, x, tasks, **options(params.evaluation)))
                except DataError as error:
                    fit["error"] = str(error)
                found.append(fit)
    return found


def claim_entries(results: Mapping[Cell, CellResult], params: Params) -> list[dict[str, str]]:
    """Whether larger teams than in training do as well on projects that grow with them, staff given.

    Each larger size against the largest one of the sweep within training, by the difference of mean returns; the last row is
    that of the largest.
    """
    cells = [cell for cell in main_cells(params) if (cell.work, cell.hiring, cell.played) == ("proportional", "staff", "policy")]
    within = [cell for cell in cells if cell.size <= training_size(params)]
    if not within:
        return []
    base, found = within[-1], []
    for cell in cells:
        if cell.size > base.size:
            pair = values(results[cell], "return"), values(results[base], "return")
            interval = paired_difference(*pair, **options(params.evaluation))
            text = f"{cell.size} agents minus {base.size}, staff given, growing project: "
            text += f"return {interval.mean:+.3f} [{interval.low:+.3f}, {interval.high:+.3f}]"
            found.append({"text": text, "verdict": judge([interval], *no_loss(LEAST_LOSS))})
    return found


def summarise(results: Sequence[CellResult], params: Params) -> dict[str, Any]:
    """Everything that the figures and the tables show, as plain JSON."""
    by_cell = {result.cell: result for result in results}
    return {
        "limit_s": params.evaluation.limit_s,
        "training_size": training_size(params),
        "confidence": params.evaluation.confidence,
        "rollouts": params.city.rollouts,
        "cells": [cell_entry(result, params.evaluation) for result in by_cell.values()],
        "shift": shift_entries(by_cell, params),
        "names": name_entries(by_cell, params),
        "fits": fit_entries(results, params),
        "claims": claim_entries(by_cell, params),
    }
