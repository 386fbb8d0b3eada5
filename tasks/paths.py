"""Where everything lies. `artifacts/` belongs to DVC; `runs/` is working state, kept when a DVC stage starts over."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

SPLITS = ("train", "validation", "test")


def variant_name(variant: str) -> str:
    """The name of a further test set's file."""
    return f"test-{variant}"


@dataclass(frozen=True, slots=True)
class Project:
    """Paths of the project in `root`."""

    root: Path

    @classmethod
    def here(cls) -> Project:
        return cls(Path.cwd().resolve())

    @property
    def artifacts(self) -> Path:
        return self.root / "artifacts"

    def tasks(self, split: str) -> Path:
        return self.artifacts / "tasks" / f"{split}.jsonl"

    @property
    def schedule(self) -> Path:
        return self.artifacts / "schedule.csv"

    @property
    def base(self) -> Path:
        return self.artifacts / "base" / "checkpoint"

    @property
    def base_metrics(self) -> Path:
        return self.artifacts / "base" / "metrics.json"

    @property
    def models(self) -> Path:
        """Models taken by name, outside of DVC's outputs: a download is kept when a stage starts over."""
        return self.artifacts / "models"

    def trained(self, mode: str, seed: int) -> Path:
        return self.artifacts / "train" / f"{mode}-{seed}"

    @property
    def evaluation(self) -> Path:
        return self.artifacts / "evaluation"

    @property
    def report(self) -> Path:
        return self.artifacts / "report"

    @property
    def runs(self) -> Path:
        return self.root / "runs"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """One training run's working state: runs/<mode>-<seed>-<digest>/."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    def iteration(self, iteration: int) -> Path:
        """Folder of one iteration: the manifests of its stages and the files they name."""
        return self.path / "iterations" / f"{iteration:04d}"

    def checkpoint(self, version: int) -> Path:
        """Folder of the policy that iteration `version` samples with; version 0 is the base policy."""
        return self.path / "checkpoints" / f"{version:04d}"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def tracking(self) -> Path:
        return self.path / "mlflow.json"
