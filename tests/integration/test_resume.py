"""Killed at any moment and started again, a run ends with the same bytes as one that was never stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlcr_core.config import Params
from rlcr_core.manifests import digest_files
from tests.support import ROOT, changed, make_project

pytestmark = pytest.mark.slow
# In the order in which they are written, so that every life gets a little further than the one before.
MOMENTS = (
    "plan.json", "turns.parquet", "rollouts.parquet", "rollouts.json", "ledger.json", "validation.json", "0004", "update.json",
    "evaluation.json", "done.json", "metrics.jsonl",
)  # fmt: skip
WALL_CLOCK = ("timings.json", "mlflow.json")


def live(root: Path, *arguments: str) -> int:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    script = ROOT / "tests" / "integration" / "killed_run.py"
    return subprocess.run([sys.executable, str(script), str(root), *arguments], env=environment, cwd=root).returncode


def bytes_of(root: Path) -> dict[str, str]:
    """Every file of the run and of what DVC keeps, but those that hold seconds."""
    (run,) = (root / "runs").iterdir()
    found = digest_files(run) | {f"artifacts/{k}": v for k, v in digest_files(root / "artifacts" / "train").items()}
    return {name: digest for name, digest in found.items() if not name.endswith(WALL_CLOCK)}


def test_killed_before_every_write_of_an_iteration_it_ends_with_the_same_bytes(tmp_path: Path, params: Params) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        make_project(tmp_path / name, changed(params, {"train": {"evaluate_every": 4}}))
    assert live(tmp_path / "whole") == 0
    for moment in MOMENTS:
        assert live(tmp_path / "killed", moment) == -signal.SIGKILL, moment
    assert live(tmp_path / "killed") == 0
    whole, killed = bytes_of(tmp_path / "whole"), bytes_of(tmp_path / "killed")
    assert whole == killed
    assert sum(name.endswith("turns.parquet") for name in whole) == 5
    assert {name.split("/")[1] for name in whole if name.startswith("checkpoints/")} == {"0003", "0004", "0005"}


def train(root: Path) -> subprocess.Popen[str]:
    """The real flow, in a process group of its own."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PREFECT_HOME": str(root / ".prefect")}
    command = [sys.executable, "-m", "flows.train", "--mode", "collective", "--seed", "0"]
    return subprocess.Popen(command, cwd=root, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for(root: Path, pattern: str, process: subprocess.Popen[str]) -> None:
    for _ in range(12000):  # ten minutes: a busy machine starts slowly, and a process that ended is noticed at once
        if any(root.glob(pattern)):
            return
        assert process.poll() is None, process.stdout and process.stdout.read()
        time.sleep(0.05)
    raise AssertionError(f"{pattern} did not appear")


def servers_of(root: Path) -> list[str]:
    """Command lines of processes that were started for this project's Prefect."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"PREFECT_HOME={root}/.prefect".encode() in path.read_bytes():
                command = path.with_name("cmdline").read_bytes().replace(b"\0", b" ").decode()
                found += [command] if "prefect.server" in command else []
        except OSError:
            continue
    return found


def logged_steps(root: Path) -> list[int]:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{root}/mlflow.db")
    (state,) = (root / "runs").glob("*/mlflow.json")
    history = client.get_metric_history(json.loads(state.read_text())["run_id"], "reward/return_mean")
    return sorted(metric.step for metric in history)


def test_the_real_flow_survives_a_kill_and_two_runs_are_equal(tmp_path: Path, params: Params) -> None:
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
        make_project(tmp_path / name, params)
    whole = train(tmp_path / "whole")
    output, _ = whole.communicate()
    assert whole.returncode == 0, output
    assert "train collective-0 5/5" in output

    victim = train(tmp_path / "killed")
    wait_for(tmp_path / "killed", "runs/*/iterations/0003/plan.json", victim)
    assert len(servers_of(tmp_path / "killed")) == 1
    victim.send_signal(signal.SIGKILL)
    victim.communicate()
    again = train(tmp_path / "killed")
    output, _ = again.communicate()
    assert again.returncode == 0, output

    assert bytes_of(tmp_path / "whole") == bytes_of(tmp_path / "killed")
    assert logged_steps(tmp_path / "killed") == [0, 1, 2, 3, 4]
    assert servers_of(tmp_path / "killed") == []
