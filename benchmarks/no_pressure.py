"""The control without deadline pressure: `python -m benchmarks.no_pressure --seeds 0 1 2`.

Trains a collective like the demo's on small tasks (2 packages of 6 modules) under a limit of 1,200 s, by which everyone
finishes: every return is 1, the flat advantage is 0, and hiring must not rise by more than chance moves it. Works in
`runs/no-pressure` (interrupted and started again, it goes on) and prints hires over the first and the last ten
iterations, and the mean difference over seeds with its 95 % interval (Student's t): policies of one run are not
independent, so an interval within a run would take a random walk for a trend.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from scipy import stats

ROOT = Path(__file__).resolve().parents[1]
WINDOW = 10
OVERRIDES: dict[str, dict[str, Any]] = {
    "task_set": {"packages": 2, "modules": 6},
    "schedule": {"kind": "constant", "points": []},
    "base": {"checkpoint": str(ROOT / "envs" / "workshop" / "base")},
}


def prepare(folder: Path, seeds: list[int], iterations: int, entropy: float | None, limit_s: float) -> None:
    """Write the demo's parameters with the overrides."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for section, changes in OVERRIDES.items():
        params[section] |= changes
    params["schedule"] |= {"start_s": limit_s, "end_s": limit_s}
    params["evaluation"]["limit_s"] = limit_s
    params["train"] |= {"iterations": iterations, "modes": ["collective"], "seeds": seeds}
    if entropy is not None:
        params["update"]["entropy"] = entropy
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.yaml").write_text(yaml.safe_dump(params, sort_keys=False), encoding="utf-8")


def stage(folder: Path, module: str, *arguments: str) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", module, *arguments], cwd=folder, env=environment, check=True)


def column(rows: list[dict[str, float]], key: str) -> tuple[list[float], list[float]]:
    """A metric over the first and over the last ten iterations."""
    values = [row[key] for row in rows]
    return values[:WINDOW], values[-WINDOW:]


def interval(changes: list[float]) -> tuple[float, float]:
    """Mean of the seeds' changes and half its 95 % interval (Student's t); infinite for one seed."""
    mean = sum(changes) / len(changes)
    if len(changes) < 2:
        return mean, math.inf
    return mean, float(stats.t.ppf(0.975, len(changes) - 1) * stats.sem(changes))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments.add_argument("--iterations", type=int, default=40)
    arguments.add_argument("--entropy", type=float, help="update.entropy (default: that of params.yaml)")
    arguments.add_argument("--limit", type=float, default=1200.0, help="seconds; at 400 one rollout in a thousand is late")
    options = arguments.parse_args()
    name = "no-pressure" if options.entropy is None else f"no-pressure-entropy-{options.entropy:g}"
    folder = ROOT / "runs" / f"{name}-{options.limit:g}"
    prepare(folder, options.seeds, options.iterations, options.entropy, options.limit)
    for module in ("flows.tasks", "flows.schedule", "flows.base"):
        stage(folder, module)
    lines, changes = [], []
    for seed in options.seeds:
        stage(folder, "flows.train", "--mode", "collective", "--seed", str(seed))
        (run,) = folder.glob(f"runs/collective-{seed}-*/metrics.jsonl")
        rows = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
        hires, returns = column(rows, "roster/hires"), column(rows, "reward/return_mean")
        changes.append((sum(hires[1]) - sum(hires[0])) / WINDOW)
        flat = sum(row["reward/zero_variance_groups"] for row in rows) / len(rows)
        lines.append(
            f"| {seed} | {sum(returns[0]) / WINDOW:.3f} | {sum(returns[1]) / WINDOW:.3f} | {flat:.2f} | "
            f"{sum(hires[0]) / WINDOW:.2f} | {sum(hires[1]) / WINDOW:.2f} | {changes[-1]:+.2f} |"
        )
    print("| seed | return, first ten | last ten | groups without variance | hires, first ten | last ten | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(lines))
    print("mean difference over {} seeds: {:+.2f} ± {:.2f}".format(len(changes), *interval(changes)))


if __name__ == "__main__":
    main()
