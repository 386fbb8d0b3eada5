"""What a training run depends on. Equal identities share a folder and resume; any change starts a new one."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rlcr_core.clock import calibrated
from rlcr_core.config import Mode, Params
from rlcr_core.errors import DataError
from rlcr_core.manifests import digest_file
from tasks.paths import Project, RunFolder

MODEL_FILE = "model.safetensors"
CODE = (  # what decides a run's bytes; dvc.yaml names the same files as dependencies of the train stage
    "rlcr_core", "envs", "tasks/engines.py", "tasks/learner.py", "tasks/plan.py", "tasks/rejection.py", "tasks/rollouts.py",
    "tasks/training.py", "tasks/trajectory_frames.py", "tasks/update.py", "tasks/validation.py", "tasks/workers.py",
)  # fmt: skip
RELEVANT = ("latency", "collective", "context", "harness", "engine", "rollouts", "update", "validation")
SOURCES = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Identity:
    """Mode, seed and everything whose change would change the bytes of a run."""

    mode: Mode
    seed: int
    params: dict[str, Any]
    inputs: dict[str, str]  # input file, or `code` -> SHA-256

    @property
    def name(self) -> str:
        """`collective-0`; part of every rollout's key."""
        return f"{self.mode}-{self.seed}"

    @property
    def digest(self) -> str:
        document = {"mode": self.mode, "seed": self.seed, "params": self.params, "inputs": self.inputs}
        return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()

    def folder(self, project: Project) -> RunFolder:
        return RunFolder(project.runs / f"{self.name}-{self.digest[:8]}")


def relevant(params: Params, mode: Mode) -> dict[str, Any]:
    """The parameters that a training run reads itself; the others reach it through the digests of its input files."""
    everything = params.for_mode(mode).model_dump(mode="json")
    chosen = {k: everything[k] for k in RELEVANT}
    chosen["policy"] = {"lora": everything["policy"]["lora"]}
    chosen["latency"] = calibrated(params.latency).model_dump(mode="json")  # what is in the file, not its name
    train = everything["train"]
    chosen["train"] = {k: train[k] for k in ("iterations", "evaluate_every", "checkpoint_every")}
    chosen["evaluation"] = {"limit_s": everything["evaluation"]["limit_s"]}
    return chosen


@cache
def code_digest() -> str:
    """One SHA-256 of the Python files that decide a run's bytes: changed code starts a new run instead of resuming an old one."""
    paths = [
        path for name in CODE for path in ([SOURCES / name] if name.endswith(".py") else (SOURCES / name).rglob("*.py"))
    ]
    lines = [f"{digest_file(path)}  {path.relative_to(SOURCES).as_posix()}\n" for path in sorted(paths)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def identify(project: Project, params: Params, mode: Mode, seed: int) -> Identity:
    """The identity of a run in this project. Raises StoreError when an input file of an earlier stage is missing."""
    files = {
        "train": project.tasks("train"),
        "validation": project.tasks("validation"),
        "schedule": project.schedule,
        "base": project.base / MODEL_FILE,
    }
    inputs = {name: digest_file(path) for name, path in files.items()}
    return Identity(mode, seed, relevant(params, mode), inputs | {"code": code_digest()})


def read_schedule(path: Path, iterations: int) -> list[float]:
    """The limits in seconds of iterations 0 … iterations - 1. Raises DataError for a file that is cut or malformed."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            rows = [(int(row["iteration"]), float(row["limit_s"])) for row in csv.DictReader(file)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"The schedule {path} cannot be read ({error!r}); run `dvc repro schedule` to make it again."
        ) from error
    if [i for i, _ in rows] != list(range(iterations)):
        raise DataError(
            f"The schedule {path} has {len(rows)} rows, expected one for each of the iterations 0 to {iterations - 1}; "
            "run `dvc repro schedule` after a change of train.iterations."
        )
    return [limit_s for _, limit_s in rows]
