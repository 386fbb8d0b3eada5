"""Where the seconds of an iteration go. Wall-clock figures live here and in MLflow, never in metrics files."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rlcr_core.manifests import atomic_write

STAGES = ("plan", "sync", "rollouts", "validation", "update", "evaluation", "store", "tracking")


class Timings:
    """Seconds by stage; `sampling_s` and `gradient_s` are the parts that are the work itself."""

    def __init__(self) -> None:
        self._started = time.monotonic()
        self.stages: dict[str, float] = {}
        self.sampling_s = 0.0
        self.gradient_s = 0.0

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Add the block's duration to a stage."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.stages[stage] = self.stages.get(stage, 0.0) + time.monotonic() - started

    def metrics(self) -> dict[str, float]:
        """`time/<stage>_s`, the whole so far, and the share that is neither sampling nor gradient."""
        total = time.monotonic() - self._started
        work = self.sampling_s + self.gradient_s
        return {f"time/{stage}_s": self.stages.get(stage, 0.0) for stage in STAGES} | {
            "time/sampling_s": self.sampling_s,
            "time/gradient_s": self.gradient_s,
            "time/iteration_s": total,
            "time/overhead_share": max(0.0, 1.0 - work / total) if total > 0 else 0.0,
        }

    def write(self, path: Path) -> dict[str, float]:
        """Write the metrics as JSON and return them. Raises StoreError."""
        metrics = self.metrics()
        atomic_write(path, (json.dumps(metrics, indent=1) + "\n").encode())
        return metrics
