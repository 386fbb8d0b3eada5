"""The evaluation as one table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

LABELS = {
    "base": "base collective",
    "collective": "trained collective",
    "alone": "its policy alone",
    "solo": "trained solo",
    "scrambled": "collective, keys scrambled",
    "mute": "collective, messages off",
}

LEAST_WIDTH = 120


def _signed(entry: Mapping[str, Any]) -> str:
    return f"{entry['mean']:+.3f} [{entry['low']:+.3f}, {entry['high']:+.3f}]"


def _crossing(crossing: Mapping[str, Any]) -> str:
    if crossing["never_share"] is None:
        return "No policy was trained solo and evaluated beside the collective: nothing to overtake."
    if crossing["mean"] is None:
        return "The trained collective does not overtake trained solo."
    low, high = (f"{value:.1f}" if value is not None else "never" for value in (crossing["low"], crossing["high"]))
    return f"The trained collective overtakes trained solo at {crossing['mean']:.1f} s [{low}, {high}]."


def print_table(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Organisations with their mean return and interval, the paired difference of the trained collective to each."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = LEAST_WIDTH  # of files and logs, where nothing is cut
    level = f"{100 * summary['confidence']:g}%"
    table = Table(
        title=f"Return on {summary['tasks']} test tasks by {summary['limit_s']:g} s, {level} intervals", box=box.SIMPLE
    )
    for name in ("organisation", "seed", "return", "collective minus this, paired", "hires", "true messages"):
        table.add_column(name, justify="left" if name == "organisation" else "right", no_wrap=True)
    paired = {(d["b"], d["seed"]): _signed(d) for d in summary["differences"] if d["a"] == "collective"}
    for entry in summary["organisations"]:
        true = entry["true_share"]
        table.add_row(
            LABELS.get(entry["name"], entry["name"]),
            str(entry["seed"]),
            f"{entry['mean']:.3f} [{entry['low']:.3f}, {entry['high']:.3f}]",
            paired.get((entry["name"], entry["seed"]), ""),
            f"{entry['hires']:.1f}",
            "" if true is None else f"{true:.2f}",
        )
    console.print(table)
    console.print(_crossing(summary["crossing"]))
