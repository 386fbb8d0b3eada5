"""What traces cost: `python -m benchmarks.traces runs/<run>/iterations/0019`.

Writes the best, median and worst rollout of a stored iteration into a new sqlite store three times, and prints spans and
real milliseconds of each; CPU seconds are those of the whole process meanwhile. Of the first trace they hold the library's
own start.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from rlcr_core.config import load_params
from rlcr_core.store import read_rollouts
from rlcr_core.tokens import load_tokenizer
from tasks.paths import Project
from tasks.spans import build_spans, pick_rollouts
from tasks.traces import NS, write_traces
from tasks.tracking import open_run


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("iteration", type=Path, help="an iteration's folder")
    picks = pick_rollouts(read_rollouts(arguments.parse_args().iteration / "rollouts"))
    tokenizer, params = load_tokenizer(Project.here().base), load_params()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        tracking = params.tracking.model_copy(update={"uri": f"sqlite:///{root}/mlflow.db"})
        changed = params.model_copy(update={"tracking": tracking})
        with open_run(Project(root), changed, "traces", root / "state.json", {}) as tracker:
            for _ in range(3):
                for pick in picks:
                    began, cpu = time.perf_counter(), time.process_time()
                    spans = build_spans(pick, tokenizer)
                    built = time.perf_counter() - began
                    write_traces(tracker, [(spans, {"pick": pick.name})], time.time_ns() // NS * NS)
                    whole, cpu = time.perf_counter() - began, time.process_time() - cpu
                    times = f"{1e3 * built:8.1f} ms to build{1e3 * whole:9.1f} ms in all{cpu:7.2f} s CPU"
                    print(f"{pick.name:8}{len(spans):5} spans{times}")


if __name__ == "__main__":
    main()
