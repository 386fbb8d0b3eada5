"""Figures of what the grid shows beyond one limit: latency, time and tokens that a return costs. Rows in, Figure out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from tasks.figure_style import C, series, spread, style

Rows = Sequence[Mapping[str, Any]]
TOKEN_LINES = ("collective", "silent", "base", "alone_long", "solo_long", "greedy")  # others would hide them


def _first_seed(rows: Rows) -> list[Mapping[str, Any]]:
    """The rows of the lowest seed: one line an organisation, the others are in the data."""
    lowest = min(row["seed"] for row in rows)
    return [row for row in rows if row["seed"] == lowest]


def latency_figure(rows: Rows) -> Figure:
    """Return against latency for every organisation and limit; the line joins what no other point beats in both."""
    shown = _first_seed(rows)
    with style():
        figure = Figure(figsize=(5.9, 3.5), layout="constrained")
        axes = figure.add_subplot()
        best = sorted((row for row in shown if row["is_best"]), key=lambda row: row["end_s"])
        axes.plot([r["end_s"] for r in best], [r["mean"] for r in best], color=C["ink"], linewidth=1.0, drawstyle="steps-post")
        longest_s = max(row["limit_s"] for row in shown)
        for row in shown:
            label, colour, _ = series(row["organisation"])
            axes.errorbar(
                row["end_s"], row["mean"], yerr=[[row["mean"] - row["low"]], [row["high"] - row["mean"]]], color=C[colour],
                marker="o", markersize=4, linewidth=1.0,
            )  # fmt: skip
        last = sorted((row for row in shown if row["limit_s"] == longest_s), key=lambda row: row["mean"])
        top = max(row["high"] for row in shown)
        for row, height in zip(last, spread([float(row["mean"]) for row in last], 0.052 * top), strict=True):
            label, colour, _ = series(row["organisation"])
            place: dict[str, Any] = {"xytext": (9, 0), "textcoords": "offset points", "va": "center", "annotation_clip": False}
            axes.annotate(label.removeprefix("collective with "), (longest_s, height), color=C[colour], size=7.5, **place)
        axes.set(xlabel="mean end of the rollouts, seconds", xlim=(0.0, longest_s * 1.02), ylim=(0.0, top * 1.05))
        axes.set_title("Return against latency; the steps join what nothing beats")
    return figure


def time_ratio_figure(rows: Rows) -> Figure:
    """How many times as long as the collective a single agent needs for each score, with the interval as a band."""
    shown = _first_seed(rows)
    with style():
        figure = Figure(figsize=(5.9, 3.1), layout="constrained")
        axes = figure.add_subplot()
        top = 1.1 * max((row["high"] or row["mean"] or 1.0 for row in shown), default=1.0)
        for name in dict.fromkeys(row["single"] for row in shown):
            mine = [row for row in shown if row["single"] == name]
            label, colour, line = series(name)
            score, ratio, low, high = (
                np.array([np.nan if row[key] is None else row[key] for row in mine], dtype=float)
                for key in ("score", "mean", "low", "high")
            )
            high = np.where(np.isnan(high) & ~np.isnan(low), top, high)  # bounded by nothing that was observed
            axes.fill_between(score, low, high, color=C[colour], alpha=0.18, linewidth=0)
            axes.plot(score, ratio, color=C[colour], linestyle=line, label=label)
        axes.axhline(1.0, color=C["ink"], linewidth=0.9)
        axes.set(xlabel="return", ylim=(0.0, top))
        axes.set_title("A single agent's time ÷ the collective's, to the same return")
        axes.legend(loc="upper left")
    return figure


def tokens_figure(rows: Rows) -> Figure:
    """Mean return against mean tokens spent, as time goes on: what more inference buys."""
    shown = [row for row in _first_seed(rows) if row["organisation"] in TOKEN_LINES]
    with style():
        figure = Figure(figsize=(5.9, 3.1), layout="constrained")
        axes = figure.add_subplot()
        for name in dict.fromkeys(row["organisation"] for row in shown):
            mine = [row for row in shown if row["organisation"] == name and row["tokens"] > 0]
            label, colour, line = series(name)
            axes.plot([r["tokens"] for r in mine], [r["return"] for r in mine], color=C[colour], linestyle=line, label=label)
        axes.set_xscale("log")
        axes.set(xlabel="tokens sampled, mean a rollout", ylim=(0.0, None))
        axes.set_title("Return against tokens")
        axes.legend(loc="upper left", fontsize=8)
    return figure


def limits_figure(rows: Rows) -> Figure:
    """Fresh rollouts that were told a shorter limit (points), beside those of the longest limit cut there (lines)."""
    shown = _first_seed(rows)
    with style():
        figure = Figure(figsize=(5.9, 3.1), layout="constrained")
        axes = figure.add_subplot()
        for name in dict.fromkeys(row["organisation"] for row in shown):
            mine = sorted((row for row in shown if row["organisation"] == name), key=lambda row: row["limit_s"])
            label, colour, line = series(name)
            limit_s = [row["limit_s"] for row in mine]
            fresh = np.array([[row[f"fresh_{key}"] for key in ("mean", "low", "high")] for row in mine])
            axes.plot(limit_s, [row["rescored_mean"] for row in mine], color=C[colour], linestyle=line, linewidth=1.1, alpha=0.8)
            reach = np.abs(fresh[:, 1:] - fresh[:, :1]).T
            axes.errorbar(limit_s, fresh[:, 0], reach, color=C[colour], marker="o", markersize=4, linestyle="none", label=label)
        axes.set(xlabel="limit, seconds", ylim=(0.0, None))
        axes.set_title("Told the limit (points), or cut there (lines)")
        axes.legend(loc="upper left", fontsize=8)
    return figure


FIGURES = {  # evidence rows -> (name of the picture, what it is, how it is drawn)
    "points": ("latency", "return against latency of every organisation and limit", latency_figure),
    "time_curve": ("time_ratio", "time of a single agent over the collective's at equal return", time_ratio_figure),
    "token_curves": ("tokens", "return against tokens", tokens_figure),
    "limits": ("limits", "fresh rollouts under shorter limits and long ones cut there", limits_figure),
}
