"""The tables of docs/results.md from the last evaluation: `python -m benchmarks.results > table.md`.

Reads artifacts/evaluation/summary.json and artifacts/train/*/curves.csv; run `dvc repro` first, for several
seeds with `train.seeds: [0, 1, 2]` in params.yaml.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

from tasks.table import LABELS

ARTIFACTS = Path("artifacts")


def interval(entry: dict[str, Any], signed: bool = False) -> str:
    form = "{:+.3f} [{:+.3f}, {:+.3f}]" if signed else "{:.3f} [{:.3f}, {:.3f}]"
    return form.format(entry["mean"], entry["low"], entry["high"])


def table(header: list[str], rows: list[list[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def returns(summary: dict[str, Any]) -> str:
    rows = [
        [LABELS[o["name"]], str(o["seed"]), interval(o), f"{o['hires']:.1f}",
         "" if o["true_share"] is None else f"{o['true_share']:.2f}", f"{o['received_keys']:.1f}", f"{o['tokens']:.0f}"]
        for o in sorted(summary["organisations"], key=lambda o: list(LABELS).index(o["name"]))
    ]  # fmt: skip
    return table(["organisation", "seed", "return", "hires", "true messages", "modules with a received key", "tokens"], rows)


def differences(summary: dict[str, Any]) -> str:
    rows = [
        [f"{LABELS[d['a']]} − {LABELS[d['b']]}", str(d["seed"]), interval(d, signed=True)] for d in summary["differences"]
    ]
    return table(["difference, paired by task", "seed", "mean"], rows)


def signs_of_life() -> str:
    """Hires and true messages at the start, at the fewest hires, and over the last ten iterations."""
    rows = []
    for path in sorted(ARTIFACTS.glob("train/collective-*/curves.csv")):
        with open(path, newline="", encoding="utf-8") as file:
            curves = list(csv.DictReader(file))
        hires = [float(row["roster/hires"]) for row in curves]
        true = [float(row["talk/true_share"]) for row in curves if row["talk/true_share"]]
        limits = [float(row["time/limit_s"]) for row in curves]
        fewest = hires.index(min(hires))
        rows.append([
            path.parent.name, f"{hires[0]:.1f}", f"{hires[fewest]:.1f} at {limits[fewest]:.0f} s",
            f"{sum(hires[-10:]) / 10:.1f}", f"{true[0]:.2f}", f"{sum(true[-10:]) / 10:.2f}",
        ])  # fmt: skip
    header = ["run", "hires at first", "fewest, at limit", "last ten", "true messages at first", "last ten"]
    return table(header, rows)


def main() -> None:
    summary = json.loads((ARTIFACTS / "evaluation" / "summary.json").read_text(encoding="utf-8"))
    crossing = summary["crossing"]
    level = f"{100 * summary['confidence']:g}% bootstrap intervals"
    print(f"{summary['tasks']} held-out tasks, limit {summary['limit_s']:g} s, {level}.\n")
    print(returns(summary))
    print(differences(summary))
    if crossing["mean"] is not None:
        print(f"The trained collective overtakes trained solo at {crossing['mean']:.1f} s "
              f"[{crossing['low']:.1f}, {crossing['high']:.1f}].\n")  # fmt: skip
    print(signs_of_life(), end="")


if __name__ == "__main__":
    main()
