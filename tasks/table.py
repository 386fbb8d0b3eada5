"""The evaluation as one table for the terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


Row = Mapping[str, Any]
Column = tuple[str, Callable[[Row], str]]  # heading, cell


def _table(title: str, columns: Sequence[Column], rows: Sequence[Row]) -> Table:
    table = Table(title=title, box=box.SIMPLE, title_justify="left")
    for i, (heading, _) in enumerate(columns):
        table.add_column(heading, justify="right" if i else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table


def _label(key: str) -> Callable[[Row], str]:
    return lambda row: str(LABELS.get(row[key], row[key]))


def _interval(prefix: str = "", form: str = ".3f") -> Callable[[Row], str]:
    """The cell of a mean with its interval; empty where the row has none."""
    return lambda row: _span(row, prefix, form) if f"{prefix}mean" in row else ""


SEED: Column = ("seed", lambda row: str(row["seed"]))
FURTHER: tuple[tuple[str, str, tuple[Column, ...]], ...] = (  # kind of evidence, title, columns
    ("matched", "A single agent that may spend the collective's tokens", (
        ("single agent", _label("single")), SEED, ("tokens", _interval("tokens_", ".0f")),
        ("its return then", _interval("return_")), ("collective minus this", _interval("behind_", "+.3f")),
        ("time, times as long", _interval("time_ratio_at_tokens_", ".2f")),
        ("time to equal score", _interval("time_ratio_at_score_", ".2f")),
    )),
    ("attempts", "Independent attempts without communication, and the collective", (
        ("independent attempts", lambda row: f"{row['attempts']} solos, {row['family']} tasks"), SEED, ("one", _interval("one_")),
        ("oracle's best", _interval("oracle_")), ("claimed best", _interval("claimed_")),
        ("collective minus the oracle's", _interval("collective_minus_oracle_", "+.3f")),
    )),
    ("families", "Other families of tasks", (
        ("family", lambda row: row["family"]), ("organisation", _label("organisation")), SEED, ("return", _interval()),
        ("collective minus this, paired", _interval("behind_", "+.3f")),
    )),
    ("limits", "Other limits", (
        ("organisation", _label("organisation")), SEED, ("limit", lambda row: f"{row['limit_s']:g} s"),
        ("hires", lambda row: f"{row['hires']:.1f}"), ("told this limit", _interval("fresh_")),
        ("longest limit, cut here", _interval("rescored_")), ("difference", _interval("difference_", "+.3f")),
    )),
)  # fmt: skip


def _organisations(summary: Mapping[str, Any]) -> Table:
    level = f"{100 * summary['confidence']:g}%"
    title = f"Return on {summary['tasks']} test tasks by {summary['limit_s']:g} s, {level} intervals"
    paired = {(d["b"], d["seed"]): _signed(d) for d in summary["differences"] if d["a"] == "collective"}
    columns: tuple[Column, ...] = (
        ("organisation", _label("name")), SEED, ("return", _interval()),
        ("collective minus this, paired", lambda row: paired.get((row["name"], row["seed"]), "")),
        ("hires", lambda row: f"{row['hires']:.1f}"),
        ("true messages", lambda row: "" if row["true_share"] is None else f"{row['true_share']:.2f}"),
        ("tokens", lambda row: f"{row['tokens']:.0f}"),
    )  # fmt: skip
    return _table(title, columns, summary["organisations"])


def print_table(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """Organisations with their return and the collective's lead; then what the rest of the grid shows, where it was run."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = LEAST_WIDTH  # of files and logs, where nothing is cut
    console.print(_organisations(summary))
    console.print(_crossing(summary["crossing"]))
    for kind, title, columns in FURTHER:
        rows = summary.get("evidence", {}).get(kind)
        if rows:
            console.print(_table(title, columns, rows))
