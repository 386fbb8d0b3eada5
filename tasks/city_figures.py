"""The city's pictures as pure functions: the summary in, matplotlib figures out. Sizes are on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from rlcr_core.scalability import usl
from tasks.figure_style import C, LineStyle, style

Summary = Mapping[str, Any]
HIRING_STYLE: dict[str, tuple[str, str, LineStyle]] = {
    "staff": ("staff given", "blue", "-"),
    "ceo": ("CEO hires", "vermillion", "-"),
}
WORK_TITLES = {"proportional": "Project grows with the team", "fixed": "Project of the training"}


def _main(summary: Summary, work: str, hiring: str, played: str = "policy") -> list[Mapping[str, Any]]:
    """The sweep's cells of one line, by size."""
    return sorted(
        (
            cell for cell in summary["cells"]
            if (cell["work"], cell["hiring"], cell["played"]) == (work, hiring, played)
            and cell["n_tasks"] == summary["rollouts"] and cell["size"] in summary["sizes"]
        ),
        key=lambda cell: int(cell["size"]),
    )  # fmt: skip


def _line(axes: Axes, cells: Sequence[Mapping[str, Any]], measure: str, colour: str, line: LineStyle, label: str) -> None:
    sizes = [cell["size"] for cell in cells]
    entries = [cell["measures"][measure] for cell in cells]
    axes.plot(sizes, [e["mean"] for e in entries], line, color=C[colour], label=label, marker="o", markersize=3)
    low, high = ([e[bound] for e in entries] for bound in ("low", "high"))
    axes.fill_between(sizes, low, high, color=C[colour], alpha=0.15, linewidth=0)


def _size_axis(axes: Axes, summary: Summary, label: bool = True) -> None:
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(summary["sizes"]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.tick_params(axis="x", labelsize=7)
    axes.axvline(summary["training_size"], color=C["muted"], linewidth=0.8, linestyle=":")
    if label:
        axes.set_xlabel("agents allowed, the CEO included (dotted: training)")


def _panels(rows: int, columns: int, height: float) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(4.6 * columns, height * rows), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(rows, columns)).flat)


def returns_figure(summary: Summary) -> Figure:
    """Return against the number of agents, with the scripted ceiling of the same tasks."""
    with style():
        figure, panels = _panels(1, 2, 3.3)
        for axes, (work, title) in zip(panels, WORK_TITLES.items(), strict=True):
            for hiring, (label, colour, line) in HIRING_STYLE.items():
                _line(axes, _main(summary, work, hiring), "return", colour, line, label)
                _line(axes, _main(summary, work, hiring, "ceiling"), "return", colour, ":", f"scripted, all known, {label}")
            _size_axis(axes, summary)
            axes.set_title(title)
            axes.set_ylim(0, 1.02)
        panels[0].set_ylabel(f"return by {summary['limit_s']:g} s")
        panels[1].legend(fontsize=7, loc="lower right")
    return figure


MEASURE_PANELS = (
    ("modules_per_agent", "Modules per agent employed"),
    ("useful_per_agent", "Useful work, tokens per agent"),
    ("talk_per_agent", "Talk, tokens per agent"),
    ("duplicate_share", "Duplicates, share of builds"),
    ("time_reading", "Time spent reading messages, share"),
    ("seen_keys", "Keyed modules shown whose key is in view, share"),
)


def measures_figure(summary: Summary) -> Figure:
    """What becomes of an agent's time and words as the team grows."""
    with style():
        figure, panels = _panels(2, 3, 2.8)
        for axes, (measure, title) in zip(panels, MEASURE_PANELS, strict=True):
            for work, line in (("proportional", "-"), ("fixed", "--")):
                for hiring, (label, colour, _) in HIRING_STYLE.items():
                    words = f"{label}, {'growing' if work == 'proportional' else 'fixed'} project"
                    _line(axes, _main(summary, work, hiring), measure, colour, line, words)  # type: ignore[arg-type]
            _size_axis(axes, summary, label=axes in panels[3:])
            axes.set_title(title)
            axes.set_ylim(bottom=0)
        panels[0].legend(fontsize=7)
    return figure


def shift_figure(summary: Summary) -> Figure:
    """How far observations leave what training showed: growing projects, staff given."""
    cells = _main(summary, "proportional", "staff")
    shift = summary["shift"]
    lines = (
        ("time", "time left", "muted"), ("size", "team size word", "orange"), ("facts", "facts in view", "green"),
        ("code", "last result", "purple"), ("joint", "all together", "blue"),
    )  # fmt: skip
    with style():
        figure, (left, right) = _panels(1, 2, 3.3)
        sizes = [cell["size"] for cell in cells]
        for feature, label, colour in lines:
            values = [shift["cells"][cell["name"]][feature] for cell in cells]
            left.plot(sizes, values, color=C[colour], label=label, marker="o", markersize=3)
        left.axhline(shift["floor"]["joint"], color=C["blue"], linestyle=":", linewidth=1.0, label="two halves of training")
        left.set_title("Divergence from training's observations, bits")
        left.set_ylim(bottom=0)
        left.legend(fontsize=7)
        for measure, label, colour in (("seen_keys", "keyed modules in view with a fact in view", "vermillion"),
                                       ("seen_facts", "facts in view of all there are", "green"),
                                       ("seen_modules", "modules in view of all unfinished", "orange")):  # fmt: skip
            _line(right, cells, measure, colour, "-", label)
        novel = [shift["cells"][cell["name"]]["novel"] for cell in cells]
        right.plot(sizes, novel, color=C["blue"], label="situations never seen in training", marker="o", markersize=3)
        right.set_title("Shares of an observation")
        right.set_ylim(0, 1.02)
        right.legend(fontsize=7)
        for axes in (left, right):
            _size_axis(axes, summary)
    return figure


def fits_figure(summary: Summary) -> Figure:
    """Throughput against team size with both laws, on logarithmic axes."""
    with style():
        figure, panels = _panels(1, 2, 3.3)
        for axes, (work, title) in zip(panels, WORK_TITLES.items(), strict=True):
            for fit in summary["fits"]:
                if fit["work"] != work or fit["hiring"] != "staff" or "error" in fit:
                    continue
                _fit(axes, fit, "blue" if fit["played"] == "policy" else "muted")
            _size_axis(axes, summary)
            axes.set_yscale("log")
            axes.set_title(title)
            axes.legend(fontsize=7, loc="upper left")
        panels[0].set_ylabel("modules per second, staff given")
    return figure


def _fit(axes: Axes, fit: Mapping[str, Any], colour: str) -> None:
    who = "policy" if fit["played"] == "policy" else "scripted"
    axes.plot(fit["sizes"], fit["means"], "o", color=C[colour], markersize=4, label=who)
    grid = np.geomspace(fit["sizes"][0], fit["sizes"][-1], 100)
    universal, amdahl = fit["universal"], fit["amdahl"]
    rate, sigma, kappa = (universal[name]["mean"] for name in ("rate", "sigma", "kappa"))
    axes.plot(grid, usl(grid, rate, sigma, kappa), "-", color=C[colour], linewidth=1.2,
              label=f"{who}: scalability law, σ {sigma:.3f}, κ {kappa:.1e}")  # fmt: skip
    share = amdahl["parallel_share"]["mean"]
    axes.plot(grid, amdahl["rate"]["mean"] / ((1 - share) + share / grid), "--", color=C[colour], linewidth=1.0,
              label=f"{who}: Amdahl, p {share:.3f}")  # fmt: skip


FIGURES = {
    "city_returns": returns_figure,
    "city_measures": measures_figure,
    "city_shift": shift_figure,
    "city_fits": fits_figure,
}
