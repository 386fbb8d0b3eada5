"""Fit the latency model to this machine: `python -m flows.calibrate`, then name the file in latency.calibration.

Plays rollouts of the configured engine on the wall clock, as many at once as a rollout worker has, fits turn_overhead_s,
prefill_tps, decode_tps and shared_capacity on half of them and tells the error on the other half. Writes a YAML file and,
beside it, a picture of derived against measured time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from flows import cli
from rlcr_core.calibration import Calibration
from rlcr_core.config import load_params
from rlcr_core.errors import ConfigError
from tasks.calibration import measure, worker_share, write_calibration
from tasks.paths import Project
from tasks.runtime import keep_memory, settle
from tasks.task_sets import generate_split


def calibrate(options: argparse.Namespace) -> None:
    """Measure, write, and say what was found. Raises ConfigError, DataError, StoreError, WeightError."""
    project, params = Project.here(), load_params(options.params)
    count, limit_s = options.rollouts or worker_share(params), options.limit or params.schedule.start_s
    if count < 2 or limit_s <= 0:
        raise ConfigError(f"A calibration needs 2 rollouts and a positive limit, got {count} and {limit_s:g} s.")
    keep_memory()
    settle()
    out = project.root / options.out
    print(f"{count} rollouts at once, {limit_s:g} s of real time", flush=True)
    found = measure(project.root / options.policy, params, generate_split(params.task_set, "validation"), count, limit_s)
    picture = write_calibration(out, found, params, count, limit_s)
    print(report(found))
    print(f"Written: {options.out} and {picture.name}; name it in latency.calibration to use it.")
    for warning in found.warnings:
        print(f"warning: {warning}", file=sys.stderr)


def report(found: Calibration) -> str:
    """The constants and errors in a few lines."""
    c, e = found.constants, found.errors
    capacity = f"for up to {c.shared_capacity} busy agents" if c.shared_capacity else "however many agents are busy"
    return (
        f"  turn_overhead_s  {c.turn_overhead_s:.4g} (of which tools are late {found.tool_overhead_s:.2g} s)\n"
        f"  prefill_tps      {c.prefill_tps:.4g}\n"
        f"  decode_tps       {c.decode_tps:.4g} {capacity}\n"
        f"Error on rollouts that were not fitted: median {e['rollout_median']:.1%}, 90 % within {e['rollout_p90']:.1%}; "
        f"without their tool time {e['rollout_without_tools_median']:.1%} and {e['rollout_without_tools_p90']:.1%}; "
        f"turns {e['turn_median']:.1%} and {e['turn_p90']:.1%}."
    )


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    default = Project(Path()).base
    arguments.add_argument("--policy", type=Path, default=default, help="checkpoint folder (default: %(default)s)")
    arguments.add_argument("--rollouts", type=int, default=0, help="rollouts at once (default: those of one worker)")
    arguments.add_argument("--limit", type=float, default=0.0, help="seconds of each (default: schedule.start_s)")
    arguments.add_argument(
        "--out", type=Path, default=Path("artifacts/calibration/calibration.yaml"), help="file to write (default: %(default)s)"
    )
    return cli.run(calibrate, arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
