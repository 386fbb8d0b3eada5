"""Assembles the report: one HTML file that works offline, its pictures as PNG, the data of each picture as CSV.

The page says only what tasks.findings derives from the evaluation. Equal inputs give equal bytes: nothing is dated.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup
from matplotlib.figure import Figure

from rlcr_core.manifests import atomic_write
from tasks.evidence_figures import FIGURES
from tasks.figure_style import PALETTE, series, to_png, to_svg
from tasks.figures import (
    LIFE_PANELS,
    PANELS,
    SIZES,
    TIME_LINES,
    Curve,
    Panel,
    Run,
    learning_curves,
    learning_panel,
    panels_with_data,
    relative_work,
    return_against_time,
    signs_of_life,
)
from tasks.findings import crossing_of, findings, interval_of, verdict_of
from tasks.paths import Project
from tasks.report_data import ReportInputs, load_inputs
from tasks.timeline import timeline_figure
from tasks.transcript import write_transcripts

TEMPLATE = "report_template.html"
PACKAGES = ("torch", "transformers", "ray", "prefect", "mlflow", "dvc", "great-expectations", "numpy")
TILES = ("collective", "solo", "base")


@dataclass(frozen=True)
class Report:
    """Where the report lies, what it found in plain words, and what was missing."""

    index: Path
    findings: tuple[str, ...]
    missing: tuple[str, ...]


def csv_bytes(columns: Mapping[str, Sequence[Any]]) -> bytes:
    """A CSV table of equally long columns; floats in their shortest exact form, NaN as an empty cell."""

    def cell(value: Any) -> str:
        if isinstance(value, float | np.floating):
            return "" if np.isnan(value) else repr(float(value))
        return str(value)

    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([cell(v) for v in row] for row in zip(*columns.values(), strict=True))
    return buffer.getvalue().encode()


def learning_table(runs: Sequence[Run], wanted: Sequence[Panel] = PANELS) -> dict[str, list[Any]]:
    """The data of the learning curves: a row for each run and iteration, a column for each panel."""
    panels = panels_with_data(runs, wanted)
    table: dict[str, list[Any]] = {name: [] for name in ("mode", "seed", "iteration", *(p.key for p in panels))}
    for run in runs:
        n = len(run.iterations)
        table["mode"] += [run.mode] * n
        table["seed"] += [run.seed] * n
        table["iteration"] += [int(i) for i in run.iterations]
        for panel in panels:
            values = run.column(panel.key)
            table[panel.key] += [float("nan")] * n if values is None else values.tolist()
    return table


def curve_table(curves: Sequence[Curve]) -> dict[str, list[Any]]:
    """The data of the return-against-time figure: a row for each organisation, seed and time."""
    table: dict[str, list[Any]] = {name: [] for name in ("organisation", "seed", "time_s", "mean", "low", "high")}
    for curve in curves:
        table["organisation"] += [curve.organisation] * len(curve.time_s)
        table["seed"] += [curve.seed] * len(curve.time_s)
        for name in ("time_s", "mean", "low", "high"):
            table[name] += getattr(curve, name).tolist()
    return table


def evaluation_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The evaluation table: label, colour, seed, interval, bar in percent, and what was measured beside it, or None."""
    entries = [(entry, interval_of(entry)) for entry in summary["organisations"]]
    top = max([interval.high for _, interval in entries], default=0.0) or 1.0
    return [
        {
            "label": series(entry["name"])[0],
            "name": entry["name"],
            "colour": series(entry["name"])[1],
            "seed": entry.get("seed"),
            "interval": interval,
            **{key: entry.get(key) for key in ("hires", "true_share", "received_keys", "tokens")},
            "bar": tuple(100.0 * value / top for value in (interval.low, interval.mean, interval.high)),
        }
        for entry, interval in entries
    ]


def difference_rows(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The table of paired differences with the verdict of each."""
    rows = []
    for entry in summary["differences"]:
        interval = interval_of(entry)
        labels = {side: series(entry[side])[0] for side in ("a", "b")}
        rows.append({**labels, "seed": entry.get("seed"), "interval": interval, "verdict": verdict_of(interval)})
    return rows


def evidence_rows(summary: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """The rows of the report's further tables, with labels; empty where the grid has none."""
    evidence = summary.get("evidence", {})
    named = {"matched": "single", "families": "organisation", "attempts": "family"}
    return {
        kind: [{**row, "label": series(row[key])[0] if kind != "attempts" else row[key]} for row in evidence.get(kind, [])]
        for kind, key in named.items()
    }


class Pictures:
    """Writes each picture's PNG and CSV into the folder and keeps its SVG for the page.

    The SVG is our own drawing, in which matplotlib has escaped every name, so the page takes it as it is.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.svg: dict[str, Markup] = {}

    def add(self, name: str, figure: Figure, description: str, table: Mapping[str, Sequence[Any]]) -> None:
        """Write <name>.png and <name>.csv. Raises StoreError when the disk refuses."""
        atomic_write(self.folder / f"{name}.png", to_png(figure))
        atomic_write(self.folder / f"{name}.csv", csv_bytes(table))
        self.svg[name] = Markup(to_svg(figure, name, description))


def _draw_learning(
    pictures: Pictures, inputs: ReportInputs, base: Curve | None, name: str, wanted: Sequence[Panel]
) -> list[dict[str, Any]]:
    """One picture of all panels, and each as a drawing of its own for the page; none without data."""
    panels = panels_with_data(inputs.runs, wanted)
    if panels:
        figure = learning_curves(inputs.runs, base, panels)
        pictures.add(name, figure, name.replace("_", " "), learning_table(inputs.runs, wanted))

    def svg(panel: Panel) -> Markup:
        drawing = to_svg(learning_panel(panel, inputs.runs, base), f"panel-{panel.name}", panel.title)
        return Markup(drawing)

    return [{"title": panel.title, "svg": svg(panel)} for panel in panels]


def _draw_evidence(pictures: Pictures, evidence: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """The figures of the rest of the grid, where it was run."""
    for kind, (name, description, draw) in FIGURES.items():
        rows = evidence.get(kind)
        if rows:
            pictures.add(name, draw(rows), description, {key: [row.get(key) for row in rows] for key in rows[0]})


def _draw(pictures: Pictures, inputs: ReportInputs, base: Curve | None) -> None:
    limit_s = float(inputs.summary["limit_s"])
    crossing = crossing_of(inputs.summary)
    figure = return_against_time([c for c in inputs.curves if c.organisation in TIME_LINES], limit_s, crossing)
    pictures.add("return_against_time", figure, "mean return against time", curve_table(inputs.curves))
    collective = next((run for run in inputs.runs if run.mode == "collective" and relative_work(run)), None)
    if collective is not None:
        table = {"iteration": [int(i) for i in collective.iterations]}
        relative = {f"hires_{size}": v.tolist() for size, v in relative_work(collective).items()}
        pictures.add("signs_of_life", signs_of_life(collective), "useful work by team size", {**table, **relative})
    for when, timeline in inputs.timelines.items():
        title = f"{when.capitalize()} training: return {timeline.return_:.2f}, {len(timeline.lanes) - 1} hired"
        rows = timeline.rows()
        table_of_rows = {name: [row[name] for row in rows] for name in rows[0]} if rows else {}
        pictures.add(f"timeline_{when}", timeline_figure(timeline, title), title, table_of_rows)


def _versions() -> dict[str, str]:
    found = {}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def shown_parameters(inputs: ReportInputs) -> dict[str, dict[str, str]]:
    """params.yaml by section; user names and passwords in addresses are left out."""
    sections = inputs.params.model_dump(mode="json")

    def shown(value: Any) -> str:
        return re.sub(r"//[^/@\s]+@", "//…@", str(value))

    return {name: {key: shown(value) for key, value in section.items()} for name, section in sections.items()}


def page(
    inputs: ReportInputs,
    pictures: Pictures,
    panels: Sequence[Mapping[str, Any]],
    life: Sequence[Mapping[str, Any]] = (),
    transcripts: Sequence[str] = (),
) -> str:
    """The HTML of the report."""
    loader = jinja2.FileSystemLoader(Path(__file__).parent)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    rows = evaluation_rows(inputs.summary)
    first = {row["name"]: row for row in reversed(rows)}
    return environment.get_template(TEMPLATE).render(
        palette=PALETTE,
        inputs=inputs,
        summary=inputs.summary,
        findings=findings(inputs.summary, inputs.curves, inputs.runs),
        tiles=[first[name] for name in TILES if name in first],
        several_seeds=len({row["seed"] for row in rows if row["seed"] is not None}) > 1,
        crossing=crossing_of(inputs.summary),
        rows=rows,
        differences=difference_rows(inputs.summary),
        svg=pictures.svg,
        panels=panels,
        life=life,
        claims=inputs.claims,
        city=inputs.city,
        evidence=evidence_rows(inputs.summary),
        transcripts=transcripts,
        absent=[panel.title for panel in PANELS if panel not in panels_with_data(inputs.runs)],
        modes=[series(mode) for mode in dict.fromkeys(run.mode for run in inputs.runs)],
        sizes=SIZES,
        versions=_versions(),
        parameters=shown_parameters(inputs),
        percent=f"{100 * float(inputs.summary['confidence']):g}",
    )


def build_report(project: Project, params: Path) -> Report:
    """Write artifacts/report/: index.html, PNGs and CSVs.

    Raises DataError (an input is missing or damaged; says which stage to run), ConfigError, StoreError.
    """
    inputs = load_inputs(project, params)
    base = next((curve for curve in inputs.curves if curve.organisation == "base"), None)
    project.report.mkdir(parents=True, exist_ok=True)
    pictures = Pictures(project.report)
    _draw(pictures, inputs, base)
    _draw_evidence(pictures, inputs.summary.get("evidence", {}))
    panels = _draw_learning(pictures, inputs, base, "learning_curves", PANELS)
    life = _draw_learning(pictures, inputs, None, "life_curves", LIFE_PANELS)
    html = page(inputs, pictures, panels, life, write_transcripts(project))
    index = project.report / "index.html"
    atomic_write(index, html.encode())
    texts = tuple(finding.text for finding in findings(inputs.summary, inputs.curves, inputs.runs))
    return Report(index, texts, tuple(inputs.missing.values()))
