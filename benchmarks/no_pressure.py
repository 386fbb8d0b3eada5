"""The control without deadline pressure: `python -m benchmarks.no_pressure --seeds 0 1 2`.

Trains a collective like the demo's on small tasks (2 packages of 6 modules) under a limit of 400 s, by which everyone
finishes: every return is 1, the flat advantage is 0, and hiring must not rise by more than chance moves it. Works in
`runs/no-pressure` (interrupted and started again, it goes on) and prints hires over the first and the last ten
iterations with the 95 % interval of their difference, iterations taken as independent.
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
    "schedule": {"kind": "constant", "start_s": 400.0, "end_s": 400.0, "points": []},
    "base": {"checkpoint": str(ROOT / "envs" / "workshop" / "base")},
    "evaluation": {"limit_s": 400.0},
}


def prepare(folder: Path, seeds: list[int], iterations: int, entropy: float | None) -> None:
    """Write the demo's parameters with the overrides."""
    params = yaml.safe_load((ROOT / "params.yaml").read_text(encoding="utf-8"))
    for section, changes in OVERRIDES.items():
        params[section] |= changes
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


def difference(first: list[float], last: list[float]) -> tuple[float, float]:
    """Mean of `last` minus mean of `first`, and half its 95 % interval (Welch)."""
    result = stats.ttest_ind(last, first, equal_var=False)
    low, high = result.confidence_interval(0.95)
    return sum(last) / len(last) - sum(first) / len(first), (high - low) / 2 if math.isfinite(high - low) else 0.0


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0])
    arguments.add_argument("--iterations", type=int, default=40)
    arguments.add_argument("--entropy", type=float, help="update.entropy (default: that of params.yaml)")
    options = arguments.parse_args()
    folder = ROOT / "runs" / ("no-pressure" if options.entropy is None else f"no-pressure-entropy-{options.entropy:g}")
    prepare(folder, options.seeds, options.iterations, options.entropy)
    for module in ("flows.tasks", "flows.schedule", "flows.base"):
        stage(folder, module)
    lines = []
    for seed in options.seeds:
        stage(folder, "flows.train", "--mode", "collective", "--seed", str(seed))
        (run,) = folder.glob(f"runs/collective-{seed}-*/metrics.jsonl")
        rows = [json.loads(line) for line in run.read_text(encoding="utf-8").splitlines()]
        hires, returns = column(rows, "roster/hires"), column(rows, "reward/return_mean")
        change, half = difference(*hires)
        flat = sum(row["reward/zero_variance_groups"] for row in rows) / len(rows)
        lines.append(
            f"| {seed} | {sum(returns[0]) / WINDOW:.3f} | {sum(returns[1]) / WINDOW:.3f} | {flat:.2f} | "
            f"{sum(hires[0]) / WINDOW:.2f} | {sum(hires[1]) / WINDOW:.2f} | {change:+.2f} ± {half:.2f} |"
        )
    print("| seed | return, first ten | last ten | groups without variance | hires, first ten | last ten | difference |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
