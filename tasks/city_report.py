"""What is left of a sweep on disk, artifacts/city/, and its table on the terminal."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich import box
from rich.console import Console
from rich.table import Table

from rlcr_core.config import Params
from rlcr_core.manifests import atomic_write, canonical_json
from tasks.city import CellResult
from tasks.city_figures import FIGURES
from tasks.city_summary import FEATURES, MEASURES, summarise
from tasks.figure_style import to_png

CELL_COLUMNS = ("size", "work", "hiring", "played", "n_tasks")
SHOWN = ("return", "modules_per_agent", "useful_per_agent", "talk_per_agent", "duplicate_share", "employed", "time_idle")


def write_city(folder: Path, params: Params, results: Sequence[CellResult]) -> dict[str, Any]:
    """Write rollouts.parquet, the tables as CSV, the pictures and last summary.json; returns the summary. Raises StoreError."""
    summary = summarise(results, params) | {"sizes": list(params.city.sizes)}
    rows = [asdict(result.cell) | row for result in results for row in result.rows]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows), sink, compression="zstd")
    atomic_write(folder / "rollouts.parquet", sink.getvalue().to_pybytes())
    atomic_write(folder / "cells.csv", _csv(*_cell_table(summary)))
    atomic_write(folder / "shift.csv", _csv(*_shift_table(summary)))
    atomic_write(folder / "names.csv", _csv(*_names_table(summary)))
    atomic_write(folder / "fits.csv", _csv(*_fit_table(summary)))
    for name, draw in FIGURES.items():
        atomic_write(folder / f"{name}.png", to_png(draw(summary)))
    atomic_write(folder / "summary.json", canonical_json(summary, "The city's summary"))
    return summary


def _csv(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    return buffer.getvalue().encode()


def _cell_table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    header = [*CELL_COLUMNS, *(f"{name}{end}" for name in MEASURES for end in ("", "_low", "_high"))]
    rows = [
        [*(cell[c] for c in CELL_COLUMNS),
         *(cell["measures"][name][bound] for name in MEASURES for bound in ("mean", "low", "high"))]
        for cell in summary["cells"]
    ]  # fmt: skip
    return header, rows


def _shift_table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    shift = summary["shift"]
    columns = [*FEATURES, "novel"]
    found = [["floor", *(shift["floor"][name] for name in columns)]]
    return ["cell", *columns], found + [[cell, *(d[name] for name in columns)] for cell, d in shift["cells"].items()]


def _names_table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    measures = ("nicknames", "names", "difference")
    header = ["size", "hiring", *(f"{name}{end}" for name in measures for end in ("", "_low", "_high"))]
    return header, [
        [e["size"], e["hiring"], *(e[name][bound] for name in measures for bound in ("mean", "low", "high"))]
        for e in summary["names"]
    ]


def _fit_table(summary: Mapping[str, Any]) -> tuple[list[str], list[list[Any]]]:
    header = ["work", "hiring", "played", "law", "parameter", "value", "low", "high", "r2", "aicc"]
    rows = []
    for fit in summary["fits"]:
        for law, names in (("universal", ("rate", "sigma", "kappa", "peak")), ("amdahl", ("rate", "parallel_share"))):
            for name in names if "error" not in fit else ():
                entry = fit[law][name]
                value = entry.get("mean", entry.get("value"))
                rows.append([fit["work"], fit["hiring"], fit["played"], law, name, value, entry["low"], entry["high"],
                             fit[law]["r2"], fit[law]["aicc"]])  # fmt: skip
    return header, rows


def print_city(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """The sweep, a line per size, project and hiring, beside the ceiling's return."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = 150  # of files and logs, where nothing is cut
    table = Table(title=f"Return and work by {summary['limit_s']:g} s, means of {summary['rollouts']} tasks", box=box.SIMPLE)
    for name in ("agents", "project", "hiring", *SHOWN, "scripted"):
        table.add_column(name.replace("_", " "), justify="right", no_wrap=True)
    sweep = [c for c in summary["cells"] if c["n_tasks"] == summary["rollouts"]]
    ceiling = {(c["size"], c["work"], c["hiring"]): c for c in sweep if c["played"] == "ceiling"}
    for cell in (c for c in sweep if c["played"] == "policy"):
        place = cell["size"], cell["work"], cell["hiring"]
        mean, best = cell["measures"]["return"], ceiling.get(place)
        shown = [f"{mean['mean']:.3f} [{mean['low']:.3f}, {mean['high']:.3f}]"]
        shown += [f"{cell['measures'][name]['mean']:.2f}" for name in SHOWN[1:]]
        shown += ["" if best is None else f"{best['measures']['return']['mean']:.3f}"]
        table.add_row(*map(str, place), *shown)
    console.print(table)
