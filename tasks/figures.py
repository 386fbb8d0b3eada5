"""The report's curves as pure functions: data in, matplotlib Figure out.

To add a learning curve, add a `Panel` to `PANELS`; a metric that a run does not have leaves its panel out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from rlcr_core.statistics import Interval
from rlcr_core.types import Float64Array
from tasks.figure_style import C, series, smooth, smoothing_width, spread, style

RETURN_RATE = "return_rate"  # derived: return per 10 s of the iteration's limit
SIZES: dict[str, tuple[str, str, str]] = {  # team size bucket: label, colour, marker
    "0": ("nobody hired", "muted", "o"),
    "1_2": ("1–2 hires", "orange", "s"),
    "3_4": ("3–4 hires", "green", "D"),
    "5_8": ("5–8 hires", "blue", "^"),
    "9_up": ("9 or more", "purple", "v"),
}


@dataclass(frozen=True)
class Run:
    """One training run: `columns` maps metric keys to float64 [iterations], NaN where a value is missing."""

    mode: str
    seed: int
    columns: Mapping[str, Float64Array]

    @property
    def iterations(self) -> Float64Array:
        return self.columns["iteration"]

    def column(self, key: str) -> Float64Array | None:
        """The metric [iterations], or None when no iteration has a finite value of it."""
        if key == RETURN_RATE:
            returns, limits = self.column("reward/return_mean"), self.column("time/limit_s")
            return None if returns is None or limits is None else 10.0 * returns / limits
        values = self.columns.get(key)
        return values if values is not None and np.isfinite(values).any() else None


@dataclass(frozen=True)
class Curve:
    """Mean return of an organisation at each time [times], with its confidence band."""

    organisation: str
    seed: int
    time_s: Float64Array
    mean: Float64Array
    low: Float64Array
    high: Float64Array


@dataclass(frozen=True)
class Panel:
    """One learning curve: `key` of the metric; `reference` also draws the base's return at the same limit.

    `teams_only` leaves out solo runs, whose few messages reach nobody.
    """

    name: str
    key: str
    title: str
    reference: bool = False
    top: float | None = None
    teams_only: bool = False


PANELS = (
    Panel("return", "reward/return_mean", "Return at the iteration's own limit", reference=True),
    Panel("rate", RETURN_RATE, "Return per 10 s of limit", reference=True),
    Panel("hires", "roster/hires", "Hires per rollout"),
    Panel("work", "work/useful_tokens_per_s", "Useful work, tokens per second"),
    Panel("talk", "talk/intensity_tps", "Talk intensity, tokens per second"),
    Panel("true", "talk/true_share", "Share of messages that are true", top=1.0, teams_only=True),
    Panel("received", "work/received_key_mean", "Modules built with a received key"),
    Panel("limit", "time/limit_s", "Time limit, seconds"),
)
LIFE_PANELS = (
    Panel("effective", "work/effective_tokens_per_s", "Effective work, tokens per second"),
    Panel("to_iteration", "work/useful_to_iteration_hires_5_8", "Useful work of 5–8 hires ÷ the iteration's", teams_only=True),
    Panel("at_work", "parallel/at_work_mean", "Agents at work at once"),
    Panel("idle", "parallel/idle_share", "Share of agents' time spent waiting", top=1.0),
    Panel("duplicates", "work/duplicate_share", "Share of work calls done twice", teams_only=True),
    Panel("reposts", "talk/repost_share", "Share of messages the sender knew to be out", top=1.0, teams_only=True),
    Panel("new", "talk/new_share", "Share of showings new to their reader", top=1.0, teams_only=True),
    Panel("used", "talk/used_share", "Share of showings used in a later success", teams_only=True),
    Panel("waste", "tokens/share_waste", "Share of tokens that are waste", top=1.0),
    Panel("gradient", "grad/share_waste", "Share of the gradient on waste", top=1.0),
)
TIME_LINES = ("base", "collective", "alone", "solo", "silent", "scrambled", "mute", "greedy")  # more would hide them


def panels_with_data(runs: Sequence[Run], panels: Sequence[Panel] = PANELS) -> list[Panel]:
    """The panels that at least one run can fill."""
    return [panel for panel in panels if any(run.column(panel.key) is not None for run in runs)]


def _draw_reference(axes: Axes, panel: Panel, run: Run, base: Curve) -> None:
    limits = run.column("time/limit_s")
    if limits is None:
        return
    values = np.interp(limits, base.time_s, base.mean)
    if panel.key == RETURN_RATE:
        values = 10.0 * values / limits
    axes.plot(run.iterations, values, color=C["muted"], linestyle=":", linewidth=1.4)


def _draw_panel(axes: Axes, panel: Panel, runs: Sequence[Run], base: Curve | None) -> None:
    drawn = runs[:1] if panel.key == "time/limit_s" else runs  # every run has the same schedule
    if panel.teams_only:
        drawn = [run for run in runs if run.mode != "solo"]
    for run in drawn:
        values = run.column(panel.key)
        if values is None:
            continue
        _, colour, line = series(run.mode)
        if panel.key == "time/limit_s":
            axes.fill_between(run.iterations, values, color=C["lane"], linewidth=0)
            axes.plot(run.iterations, values, color=C["ink"], linewidth=1.2, drawstyle="steps-post")
            continue
        width = smoothing_width(len(values))
        if width > 1:
            axes.plot(run.iterations, values, color=C[colour], alpha=0.4, linewidth=0.8)
        axes.plot(run.iterations, smooth(values, width), color=C[colour], linestyle=line)
    if panel.reference and base is not None:
        _draw_reference(axes, panel, runs[0], base)
    axes.set_title(panel.title)
    axes.set_ylim(0.0, panel.top if panel.top else max(axes.get_ylim()[1], 1e-3))
    axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 5, 10]))
    axes.set_xlim(0.0, max(1.0, max(float(run.iterations[-1]) for run in runs)))
    axes.set_xlabel("iteration")


def learning_panel(panel: Panel, runs: Sequence[Run], base: Curve | None) -> Figure:
    """One panel of the learning curves. Needs at least one run that has the metric."""
    with style():
        figure = Figure(figsize=(4.4, 2.5), layout="constrained")
        _draw_panel(figure.add_subplot(), panel, runs, base)
    return figure


def learning_curves(runs: Sequence[Run], base: Curve | None, wanted: Sequence[Panel] = PANELS) -> Figure:
    """All panels in two columns under one legend: the mode's colour, raw values thin, the moving average thick."""
    panels = panels_with_data(runs, wanted)
    rows = (len(panels) + 1) // 2
    with style():
        figure = Figure(figsize=(9.0, 0.5 + 2.1 * rows), layout="constrained")
        grid = figure.subplots(rows, 2, sharex=True, squeeze=False)
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        for axes, panel in zip(grid.flat, panels, strict=False):
            _draw_panel(axes, panel, runs, base)
            axes.set_xlabel("iteration" if axes in grid[-1] else "")
        modes = list(dict.fromkeys(run.mode for run in runs))
        handles = [Line2D([], [], color=C[series(m)[1]], linestyle=series(m)[2], label=series(m)[0]) for m in modes]
        if base is not None:
            handles.append(Line2D([], [], color=C["muted"], linestyle=":", label="base at the same limit"))
        figure.legend(handles=handles, loc="outside upper left", ncols=len(handles))
    return figure


def relative_work(run: Run) -> dict[str, Float64Array]:
    """Useful work per second of each team size bucket [iterations], divided by the RUN's average over iterations.

    The reference is one number per run, so the curves rise when the whole run gets better at working; divided by the
    same iteration's average they would not. Buckets without rollouts are NaN there; absent buckets are left out.
    """
    useful = run.column("work/useful_tokens_per_s")
    if useful is None or not np.nanmean(useful) > 0:
        return {}
    average = float(np.nanmean(useful))
    found = {size: run.column(f"work/useful_tps_hires_{size}") for size in SIZES}
    return {size: values / average for size, values in found.items() if values is not None}


def signs_of_life(run: Run) -> Figure:
    """Useful work per second by team size over the run's average: a dot per iteration, the moving average as line."""
    with style():
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.axhline(1.0, color=C["ink"], linewidth=0.9)
        for size, values in relative_work(run).items():
            label, colour, marker = SIZES[size]
            axes.scatter(run.iterations, values, s=9, color=C[colour], alpha=0.35, linewidth=0, marker=marker)
            smoothed = smooth(values, smoothing_width(len(values)) | 4 | 1)
            axes.plot(
                run.iterations, smoothed, color=C[colour], label=label, marker=marker, markevery=0.14, markersize=4
            )
        axes.set_title("Useful work per second ÷ the run's average", pad=26.0)
        axes.legend(  # one row, also where all five sizes occur
            loc="lower left", bbox_to_anchor=(-0.02, 0.99), ncols=len(SIZES), columnspacing=0.9, handlelength=1.3
        )
        axes.set(xlabel="iteration", xlim=(0.0, max(1.0, float(run.iterations[-1]))))
        axes.set_ylim(bottom=0.0)
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True))
    return figure


def _mark_crossing(axes: Axes, crossing: Interval, top: float) -> None:
    axes.axvspan(crossing.low, crossing.high, color=C["ink"], alpha=0.08, linewidth=0)
    axes.axvline(crossing.mean, color=C["ink"], linewidth=0.9, linestyle=(0, (4, 3)))
    text = f"overtakes solo at {crossing.mean:.1f} s\n({crossing.low:.1f} to {crossing.high:.1f} s)"
    left = crossing.high > 0.6 * axes.get_xlim()[1]  # keep the words inside the axes
    place: dict[str, Any] = {"xytext": (-5 if left else 5, 0), "ha": "right" if left else "left", "va": "top"}
    axes.annotate(
        text, (crossing.low if left else crossing.high, top), textcoords="offset points", fontsize=8.5, **place
    )


def return_against_time(curves: Sequence[Curve], limit_s: float, crossing: Interval | None) -> Figure:
    """Mean return at each time with confidence bands, the line's name at its end, the crossing and the limit marked.

    Of several seeds the lowest has the band and the name, the others are thin lines.
    """
    first = {c.organisation: min(o.seed for o in curves if o.organisation == c.organisation) for c in curves}
    top = max(float(np.max(c.high)) for c in curves) * 1.04
    with style():
        figure = Figure(figsize=(5.9, 3.5), layout="constrained")
        axes = figure.add_subplot()
        for curve in curves:
            _, colour, line = series(curve.organisation)
            if curve.seed != first[curve.organisation]:
                axes.plot(curve.time_s, curve.mean, color=C[colour], linestyle=line, linewidth=0.8, alpha=0.7)
                continue
            axes.fill_between(curve.time_s, curve.low, curve.high, color=C[colour], alpha=0.18, linewidth=0)
            axes.plot(curve.time_s, curve.mean, color=C[colour], linestyle=line)
        named = [c for c in curves if c.seed == first[c.organisation]]
        heights = spread([float(c.mean[-1]) for c in named], 0.062 * top)
        for curve, height in zip(named, heights, strict=True):
            label, colour, _ = series(curve.organisation)
            text = f"{label.removeprefix('collective with ')}  {curve.mean[-1]:.2f}"
            axes.annotate(text, (limit_s, height), (6, 0), textcoords="offset points", color=C[colour], va="center")
        axes.axvline(limit_s, color=C["ink"], linewidth=1.6, clip_on=False)
        axes.set(xlim=(0.0, limit_s), ylim=(0.0, top), xlabel="time since the start of the rollout, seconds")
        if crossing is not None:
            _mark_crossing(axes, crossing, top)
        axes.set_title("Mean return earned by each time, held-out tasks")
    return figure
