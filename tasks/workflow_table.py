"""The comparison of workflows as one table for the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from tasks.table import LEAST_WIDTH

CONTROL_WORDS = {"mute": "without messages", "scrambled": "with scrambled messages"}


def _labels(question: Mapping[str, Any]) -> dict[str, str]:
    n = question["attempts"]
    return {
        "one_agent": "one agent",
        "attempts_oracle": f"{n} attempts, oracle picks",
        "attempts_claim": f"{n} attempts, own claim",
        "collective": f"collective, up to {question['agents']} hires",
        "mute": "  its messages muted",
        "scrambled": "  its messages scrambled",
    }


VERDICTS = {
    "helped": "helped",
    "harmed": "harmed",
    "both": "helped in one and harmed in the other",
    "unclear": "cannot be told to have changed the outcome",
}


def _time(entry: Mapping[str, Any], limit_s: float) -> str:
    """A median with its interval; what lies beyond the limit is `> limit`."""
    beyond = f"> {limit_s:.0f}"
    value, low, high = (beyond if entry[k] is None else f"{entry[k]:.1f}" for k in ("value", "low", "high"))
    return value if entry["low"] is None else f"{value} [{low}, {high}]"


def _count(entry: Mapping[str, Any], spent: float | None) -> str:
    """A median with its interval; `> n` where most got nothing acceptable for a median of n."""
    if entry["value"] is None:
        return f"> {spent:.0f}"
    return f"{entry['value']:.0f} [{entry['low']:.0f}, {'∞' if entry['high'] is None else format(entry['high'], '.0f')}]"


def _effect_line(name: str, control: str, effect: Mapping[str, Any]) -> str:
    r, t = effect["return"], effect["time_s"]
    return (
        f"{name}: against the same {CONTROL_WORDS[control]}, messages {VERDICTS[effect['verdict']]}: return {r['mean']:+.3f} "
        f"[{r['low']:+.3f}, {r['high']:+.3f}], time {t['mean']:+.1f} s [{t['low']:+.1f}, {t['high']:+.1f}]."
    )


def print_workflows(summary: Mapping[str, Any], console: Console | None = None) -> None:
    """A row for each way to work on each task set, then what the messages changed."""
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = LEAST_WIDTH
    question = summary["question"]
    limit_s, level = question["limit_s"], f"{100 * summary['confidence']:g}%"
    table = Table(
        title=f"{question['environment']}: to a return of {question['acceptable']:g}, {question['tasks']} tasks a set, "
        f"medians with {level} intervals, limit {limit_s:g} s",
        box=box.SIMPLE,
    )
    for heading in ("tasks", "way to work", "acceptable", "time, s", "model calls", "tokens sampled", "return"):
        table.add_column(heading, justify="left" if heading in ("tasks", "way to work") else "right", no_wrap=True)
    labels = _labels(question)
    for name, found in summary["task_sets"].items():
        for organisation, entry in found["organisations"].items():
            table.add_row(
                name if organisation == "one_agent" else "",
                labels[organisation],
                f"{entry['acceptable_share']:.0%}",
                _time(entry["time_s"], limit_s),
                _count(entry["calls"], entry["spent_in_vain"]["calls"]),
                _count(entry["tokens"], entry["spent_in_vain"]["tokens"]),
                f"{entry['return']:.2f}",
            )
        table.add_section()
    console.print(table)
    for name, found in summary["task_sets"].items():
        for control, effect in found["messages"].items():
            console.print(_effect_line(name, control, effect), soft_wrap=True)
    for name, found in summary["task_sets"].items():
        if found["bound_s"] is not None:
            console.print(
                f"{name}: nobody can get there before {found['bound_s']:.1f} s (median of the analytic bounds)."
            )
    console.print("Calls and tokens of attempts are those of all of them. Return: mean of what is handed over.")
