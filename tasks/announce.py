"""Prefect artifacts: what a finished flow wants to be seen in Prefect's own interface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prefect.artifacts import create_markdown_artifact, create_table_artifact

if TYPE_CHECKING:
    from tasks.training import TrainingRun

SHOWN = (
    "reward/return_mean",
    "roster/hires",
    "talk/true_share",
    "work/received_key_mean",
    "evaluation/reward/return_mean",
)


def _key(name: str) -> str:
    """Artifact keys allow lower-case letters, digits and dashes only."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def announce_training(run: TrainingRun) -> None:
    """A table with the metrics of every tenth of the run."""
    metrics = run.history.metrics
    steps = sorted({round(i * (len(metrics) - 1) / 10) for i in range(11)})
    rows = [{"iteration": i, **{key: metrics[i].get(key) for key in SHOWN}} for i in steps]
    create_table_artifact(
        key=_key(f"train-{run.identity.name}"), table=rows, description=f"Run folder {run.folder.name}"
    )


def announce_evaluation(summary: Mapping[str, Any]) -> None:
    """The evaluation's table."""
    lines = ["| organisation | seed | return | interval | hires |", "|---|---|---|---|---|"]
    lines += [
        f"| {e['name']} | {e['seed']} | {e['mean']:.3f} | {e['low']:.3f} to {e['high']:.3f} | {e['hires']:.1f} |"
        for e in summary["organisations"]
    ]
    create_markdown_artifact(key="evaluation", markdown="\n".join(lines), description="Organisations on the test tasks")
