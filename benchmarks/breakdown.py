"""Where the seconds of training iterations go: `python -m benchmarks.breakdown runs/collective-0-…`.

Reads the timings that a run wrote beside each iteration and prints the mean seconds per stage, and the share of the whole
time that is neither sampling nor gradient. (`time/overhead_share` among the means is the mean of the iterations' shares,
in which a short first iteration counts as much as a long last one.)
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("run", type=Path, help="a folder under runs/")
    files = sorted(arguments.parse_args().run.glob("iterations/*/timings.json"))
    if not files:
        arguments.error("no iterations/*/timings.json there")
    totals: dict[str, float] = defaultdict(float)
    for file in files:
        for key, value in json.loads(file.read_text(encoding="utf-8")).items():
            totals[key] += float(value)
    print(f"{len(files)} iterations, means")
    for key, value in totals.items():
        print(f"  {key:28}{value / len(files):9.3f}")
    whole = totals["time/iteration_s"]
    work = totals["time/sampling_s"] + totals["time/gradient_s"]
    print(f"{whole:.1f} s in all, {1.0 - work / whole:.1%} of it neither sampling nor gradient")


if __name__ == "__main__":
    main()
