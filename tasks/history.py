"""What a run has finished: one manifest per iteration is the truth, metrics.jsonl and curves.csv are made from them."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

from rlcr_core.errors import RLCRError
from rlcr_core.manifests import Manifest, atomic_write, read_manifest, write_manifest
from tasks.learner import Learner
from tasks.paths import RunFolder

STAGE = "done"


@dataclass(slots=True)
class History:
    """Metrics of finished iterations, in order, and the digest of the checkpoint each left."""

    run: RunFolder
    metrics: list[dict[str, float]] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, run: RunFolder) -> History:
        """Every iteration from 0 on whose manifest is there."""
        history = cls(run)
        while (manifest := read_manifest(run.iteration(len(history.metrics)), STAGE, {})) is not None:
            history.metrics.append(dict(manifest.data["metrics"]))
            history.checkpoints.append(str(manifest.data["checkpoint"]))
        return history

    def resume(self, learner: Learner) -> None:
        """Load the newest checkpoint that is whole into the learner, and forget the iterations after it.

        When the newest is damaged the iterations since the one before are done again, from their own stored stages.
        Raises the newest checkpoint's error when none can be loaded.
        """
        first_error: RLCRError | None = None
        for version in range(len(self.metrics), 0, -1):
            try:
                learner.load(self.run.checkpoint(version), self.checkpoints[version - 1], version)
            except RLCRError as error:
                first_error = first_error or error
                continue
            del self.metrics[version:], self.checkpoints[version:]
            return
        if first_error is not None:
            raise first_error

    def add(self, iteration: int, metrics: dict[str, float], checkpoint: str) -> None:
        """Mark an iteration as done, then bring metrics.jsonl up to date; may be repeated. Raises StoreError."""
        finite = {key: value for key, value in sorted(metrics.items()) if math.isfinite(value)}
        write_manifest(
            self.run.iteration(iteration), Manifest(STAGE, {}, {}, {"metrics": finite, "checkpoint": checkpoint})
        )
        self.metrics[iteration:] = [finite]
        self.checkpoints[iteration:] = [checkpoint]
        self.write()

    def write(self) -> None:
        """metrics.jsonl: one line per finished iteration, no wall-clock fields."""
        lines = [json.dumps({"iteration": i, **m}, sort_keys=True) for i, m in enumerate(self.metrics)]
        atomic_write(self.run.metrics, "".join(f"{line}\n" for line in lines).encode())

    def write_curves(self, path: Path) -> None:
        """curves.csv: a row per iteration, a column per metric that ever occurred, empty where it did not."""
        columns = ["iteration", *sorted({key for metrics in self.metrics for key in metrics})]
        buffer = io.StringIO()
        writer = csv.DictWriter(buffer, columns, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows({"iteration": i, **{k: repr(v) for k, v in m.items()}} for i, m in enumerate(self.metrics))
        atomic_write(path, buffer.getvalue().encode())

    def final(self, window: int) -> dict[str, float]:
        """Mean of each metric over the last `window` iterations in which it occurred; evaluation figures: the last one."""
        last = self.metrics[-window:]
        found = {}
        for key in sorted({key for metrics in self.metrics for key in metrics}):
            values = [
                metrics[key] for metrics in (self.metrics if key.startswith("evaluation/") else last) if key in metrics
            ]
            if values:
                found[key] = values[-1] if key.startswith("evaluation/") else sum(values) / len(values)
        return found
