"""The evaluation as one table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tasks.organisations import ORGANISATIONS

LABELS = {organisation.name: organisation.label for organisation in ORGANISATIONS}

LEAST_WIDTH = 150


def _signed(entry: Mapping[str, Any]) -> str:
    return f"{entry['mean']:+.3f} [{entry['low']:+.3f}, {entry['high']:+.3f}]"


def _crossing(crossing: Mapping[str, Any]) -> str:
    if crossing["never_share"] is None:
        return "No policy was trained solo and evaluated beside the collective: nothing to overtake."
    if crossing["mean"] is None:
        return "The trained collective does not overtake trained solo."
    low, high = (f"{value:.1f}" if value is not None else "never" for value in (crossing["low"], crossing["high"]))
    return f"The trained collective overtakes trained solo at {crossing['mean']:.1f} s [{low}, {high}]."


def _span(entry: Mapping[str, Any], prefix: str = "", form: str = ".3f") -> str:
    """A mean with its interval; what lies beyond what was observed is `never`."""
    mean, low, high = (entry.get(f"{prefix}{name}") for name in ("mean", "low", "high"))
    words = ["never" if value is None else format(value, form) for value in (mean, low, high)]
    return f"{words[0]} [{words[1]}, {words[2]}]"


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for i, name in enumerate(columns):
        table.add_column(name, justify="right" if i else "left", no_wrap=True)
    return table


def _organisations(summary: Mapping[str, Any]) -> Table:
    level = f"{100 * summary['confidence']:g}%"
    title = f"Return on {summary['tasks']} test tasks by {summary['limit_s']:g} s, {level} intervals"
    columns = ("organisation", "seed", "return", "collective minus this, paired", "hires", "true messages", "tokens")
    table = _table(title, columns)
    paired = {(d["b"], d["seed"]): _signed(d) for d in summary["differences"] if d["a"] == "collective"}
    for entry in summary["organisations"]:
        true = entry["true_share"]
        table.add_row(
            LABELS.get(entry["name"], entry["name"]), str(entry["seed"]), _span(entry),
            paired.get((entry["name"], entry["seed"]), ""), f"{entry['hires']:.1f}", "" if true is None else f"{true:.2f}",
            f"{entry['tokens']:.0f}",
        )  # fmt: skip
    return table


def _matched(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        "single agent",
        "seed",
        "tokens",
        "its return then",
        "collective minus this",
        "time, times as long",
        "time to equal score",
    )
    table = _table("A single agent that may spend the collective's tokens", columns)
    for row in rows:
        table.add_row(
            LABELS[row["single"]], str(row["seed"]), _span(row, "tokens_", ".0f"), _span(row, "return_"),
            _span(row, "behind_", "+.3f"), _span(row, "time_ratio_at_tokens_", ".2f"),
            _span(row, "time_ratio_at_score_", ".2f"),
        )  # fmt: skip
    return table


def _attempts(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (
        "independent attempts",
        "seed",
        "one",
        "best by an oracle",
        "best by their claims",
        "collective minus the oracle's",
    )
    table = _table("Independent attempts without communication, and the collective", columns)
    for row in rows:
        lead = _span(row, "collective_minus_oracle_", "+.3f") if "collective_minus_oracle_mean" in row else ""
        name = f"{row['attempts']} solos, {row['family']} tasks"
        table.add_row(name, str(row["seed"]), *(_span(row, pick) for pick in ("one_", "oracle_", "claimed_")), lead)
    return table


def _families(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("Other families of tasks", ("family", "organisation", "seed", "return", "collective minus this, paired"))
    for row in rows:
        lead = _span(row, "behind_", "+.3f") if "behind_mean" in row else ""
        table.add_row(row["family"], LABELS[row["organisation"]], str(row["seed"]), _span(row), lead)
    return table


def _limits(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = ("organisation", "seed", "limit", "hires", "told this limit", "longest limit, cut here", "difference")
    table = _table("Other limits", columns)
    for row in rows:
        table.add_row(
            LABELS[row["organisation"]], str(row["seed"]), f"{row['limit_s']:g} s", f"{row['hires']:.1f}", _span(row, "fresh_"),
            _span(row, "rescored_"), _span(row, "difference_", "+.3f"),
        )  # fmt: skip
    return table


DRAWN = (("matched", _matched), ("attempts", _attempts), ("families", _families), ("limits", _limits))


def print_table(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Organisations with their return and the collective's lead; then what the rest of the grid shows, where it was run."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = LEAST_WIDTH  # of files and logs, where nothing is cut
    console.print(_organisations(summary))
    console.print(_crossing(summary["crossing"]))
    for kind, draw in DRAWN:
        rows = summary.get("evidence", {}).get(kind)
        if rows:
            console.print(draw(rows))
