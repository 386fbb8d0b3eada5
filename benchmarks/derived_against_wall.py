"""How far the derived clock is from the wall after a calibration: `python -m benchmarks.derived_against_wall FOLDER`.

FOLDER is a policy that fits the parameter file (`--params`). Calibrates on wall-clock rollouts, writes the file, names it
in latency.calibration and plays other tasks: the error of a rollout is that between the sum of its turns' recorded
`derived_s` and the time that those turns really took. Exit code 1 when its median is above 15 %.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from flows.calibrate import report
from rlcr_core.calibration import calibrate, derived_s, errors_of, timings, warnings_of
from rlcr_core.config import load_params
from tasks.calibration import Bench, machine, worker_share, write_calibration
from tasks.runtime import keep_memory, settle
from tasks.task_sets import generate_split

ALLOWED = 0.15


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("policy", type=Path)
    arguments.add_argument("--params", default="params.yaml", help="parameter file (default: %(default)s)")
    arguments.add_argument("--rollouts", type=int, default=0, help="rollouts at once (default: those of one worker)")
    arguments.add_argument("--limit", type=float, default=0.0, help="seconds of each (default: schedule.start_s)")
    arguments.add_argument("--keep", type=Path, help="write the calibration here instead of a temporary file")
    options = arguments.parse_args()
    params = load_params(options.params)
    count, limit_s = options.rollouts or worker_share(params), options.limit or params.schedule.start_s
    keep_memory()
    settle()
    sleeps = params.collective.wait_s is None
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "calibration.yaml"
        latency = params.latency.model_copy(update={"calibration": str(path)})
        with Bench(options.policy, params, generate_split(params.task_set, "validation")) as bench:
            bench.play(1, min(2.0, limit_s), "warm-up")
            found = calibrate(timings(bench.play(count, limit_s, "calibration"), params.latency, sleeps))
            write_calibration(path, found, params, count, limit_s)
            bench.tasks = generate_split(params.task_set, "test")
            fresh = bench.play(count, limit_s, "check", params.model_copy(update={"latency": latency}))
        turns = timings(fresh, latency, sleeps)
        model_s_N = derived_s(turns, latency)
    print(f"{count} rollouts at once, {limit_s:g} s each; {machine()}")
    print(report(found))
    errors = errors_of(turns, model_s_N)
    print(f"Other tasks with the calibrated clock: {len(fresh)} rollouts, {len(turns)} complete turns")
    for name, value in errors.items():
        print(f"  {name:32}{value:8.1%}")
    for warning in warnings_of(turns, model_s_N):
        print(f"  warning: {warning}")
    return 0 if errors["rollout_median"] <= ALLOWED else 1


if __name__ == "__main__":
    sys.exit(main())
