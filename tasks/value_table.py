"""The values of messages as one table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from rlcr_core.replay import MessageClass
from tasks.table import LEAST_WIDTH

LABELS = {
    MessageClass.FIRST: "true, first copy",
    MessageClass.COPY: "true, sent before",
    MessageClass.FALSE: "false",
    MessageClass.UNJUDGED: "not judged",
}


def print_values(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """The mean value of a message by class, and how many pairs of replays it rests on."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = LEAST_WIDTH
    table = Table(title="Return with a message minus return without it", box=box.SIMPLE)
    for name in ("message", "value", "messages", "rollouts"):
        table.add_column(name, justify="left" if name == "message" else "right", no_wrap=True)
    for kind, label in LABELS.items():
        entry = summary["classes"].get(kind.value)
        if entry:
            bounds = f" [{entry['low']:+.4f}, {entry['high']:+.4f}]" if "low" in entry else ""
            table.add_row(label, f"{entry['mean']:+.4f}{bounds}", str(entry["messages"]), str(entry["rollouts"]))
    console.print(table)
    pairs, invalid = summary["pairs"], summary["invalid_pairs"]
    console.print(f"{pairs} pairs of replays; {invalid} more did not begin like their rollout and are left out.")
