"""Calibrate the latency model to this machine: wall-clock rollouts of the configured engine, a fit, a file and a picture.

As many rollouts run at once as a rollout worker has, because an engine's speed depends on all that it serves; the
constants are for that many. The file is what `latency.calibration` names.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
import yaml
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import envs
from rlcr_core.calibration import Calibration, Timings, calibrate, rollout_sums, timings
from rlcr_core.clock import CONSTANTS
from rlcr_core.config import Params
from rlcr_core.engines.asynchronous import ThreadedEngine, face
from rlcr_core.errors import DataError
from rlcr_core.manifests import atomic_write
from rlcr_core.policy import load_policy
from rlcr_core.rollout import RolloutSpec
from rlcr_core.tokens import load_tokenizer
from rlcr_core.types import Float64Array, Rollout, RolloutKey, StopReason, Task
from rlcr_core.wall import run_wall_rollouts
from rlcr_core.weights import Published
from tasks.engines import build_engine, sync_engine, worker_threads
from tasks.figure_style import C, style, to_png
from tasks.probe import make_probe

WARM_UP_S = 2.0  # a first short rollout, so that what an engine does once is in no figure


def worker_share(params: Params) -> int:
    """How many rollouts one worker runs at once."""
    config = params.rollouts
    return max(2, config.tasks_per_iteration * config.group_size // config.workers)


class Bench:
    """An engine with a policy, ready to play rollouts on the wall clock. Use as a context manager."""

    def __init__(self, policy: Path, params: Params, tasks: Sequence[Task]) -> None:
        torch.set_num_threads(worker_threads(params))
        self.params, self.tasks = params, tasks
        self._engine, self.tokenizer = build_engine(policy, params, tasks[0], -1)
        self._face = face(self._engine)
        try:  # some engines refuse to sample before their weights are proven
            probe = make_probe(load_policy(policy), len(load_tokenizer(policy)))
            sync_engine(self._engine, Published.of(policy, 0), probe, params)
        except BaseException:
            self.__exit__()
            raise

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        if isinstance(self._face, ThreadedEngine):
            asyncio.run(self._face.close())
        else:
            self._engine.close()

    def play(self, count: int, limit_s: float, name: str, params: Params | None = None) -> list[Rollout]:
        """`count` rollouts at once. Raises DataError when more than a tenth of them fail."""
        specs = [
            RolloutSpec(RolloutKey(name, 0, i, 0), self.tasks[i % len(self.tasks)], limit_s) for i in range(count)
        ]
        rollouts = run_wall_rollouts(specs, envs.make, self._face, self.tokenizer, params or self.params)
        failed = [rollout.error for rollout in rollouts if rollout.stop_reason is StopReason.FAILED]
        if len(failed) > count / 10:
            raise DataError(f"{len(failed)} of {count} rollouts failed, the first with: {failed[0]}; nothing can be measured.")
        return rollouts


def measure(policy: Path, params: Params, tasks: Sequence[Task], count: int, limit_s: float) -> Calibration:
    """Play, and fit. Raises DataError when too little comes of it."""
    with Bench(policy, params, tasks) as bench:
        bench.play(1, min(WARM_UP_S, limit_s), "warm-up")
        rollouts = bench.play(count, limit_s, "calibration")
    return calibrate(timings(rollouts, params.latency, params.collective.wait_s is None))


def machine() -> dict[str, Any]:
    """What this machine is, without its name."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "processor": _processor(), "cores": cores, "memory_gib": round(gib, 1), "gpus": gpus, "system": platform.system(),
        "python": platform.python_version(), "torch": str(torch.__version__),
    }  # fmt: skip


def _processor() -> str:
    """The processor's name where the system tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def document(found: Calibration, params: Params, count: int, limit_s: float) -> dict[str, Any]:
    """The calibration file as plain data; `constants` is what rlcr_core.clock reads."""
    constants = {name: getattr(found.constants, name) for name in CONSTANTS}
    return {
        "constants": {name: value if isinstance(value, int) else float(f"{value:.6g}") for name, value in constants.items()},
        "tool_overhead_s": float(f"{found.tool_overhead_s:.3g}"),
        "relative_error": {name: round(value, 4) for name, value in found.errors.items()},
        "warnings": found.warnings,
        "rollouts": {"at_once": count, "limit_s": limit_s, "checked_on": len(np.unique(found.unseen.rollout_N))},
        "turns_checked_on": len(found.unseen),
        "engine": {"kind": params.engine.kind, "dtype": params.engine.dtype, "harness": params.harness.kind},
        "policy": params.policy.model or "the small policy",
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
    }


def write_calibration(path: Path, found: Calibration, params: Params, count: int, limit_s: float) -> Path:
    """Write the file and, beside it, the picture, whose path is returned. Raises StoreError."""
    text = "# Made by `python -m flows.calibrate`; latency.calibration in params.yaml may name this file.\n"
    text += yaml.safe_dump(document(found, params, count, limit_s), sort_keys=False, allow_unicode=True)
    atomic_write(path, text.encode())
    picture = path.with_suffix(".png")
    atomic_write(picture, to_png(derived_against_measured(found.unseen, found.derived_s_N)))
    return picture


def derived_against_measured(turns: Timings, derived_s_N: Float64Array) -> Figure:
    """Derived against measured seconds of the turns [N], and of all turns of each rollout; on the line they agree."""
    with style():
        figure = Figure(figsize=(8.6, 3.9), layout="constrained")
        left, right = figure.subplots(1, 2)
        _scatter(left, turns.measured_s_N, derived_s_N, "Turns", 0.25)
        sums = rollout_sums(turns, turns.measured_s_N), rollout_sums(turns, derived_s_N)
        _scatter(right, *sums, "Rollouts, all turns of all agents", 0.8)
        left.set_ylabel("derived clock, seconds")
    return figure


def _scatter(axes: Axes, measured_s: Float64Array, derived_s: Float64Array, title: str, alpha: float) -> None:
    low = 0.8 * float(min(measured_s.min(), derived_s[derived_s > 0].min(initial=np.inf)))
    high = 1.25 * float(max(measured_s.max(), derived_s.max()))
    line = np.array([low, high])
    axes.fill_between(line, 0.8 * line, 1.2 * line, color=C["lane"], linewidth=0)
    axes.plot(line, line, color=C["muted"], linewidth=1.0)
    axes.plot(measured_s, derived_s, ".", color=C["blue"], markersize=4.0, alpha=alpha)
    axes.set(title=title, xscale="log", yscale="log", xlim=(low, high), ylim=(low, high), xlabel="wall clock, seconds")
    axes.annotate("within 20 %", (high, 0.8 * high), (-4, -14), textcoords="offset points", ha="right", color=C["muted"])
