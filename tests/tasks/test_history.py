"""Finished iterations: manifests are the truth, the other files follow from them."""

from __future__ import annotations

import csv
import json
import shutil
from pathlib import Path

import pytest

from rlcr_core.config import Params
from rlcr_core.errors import WeightError
from tasks.history import History
from tasks.learner import Learner
from tasks.paths import Project, RunFolder


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def filled(run: RunFolder) -> History:
    history = History(run)
    history.add(0, {"reward/return_mean": 0.25, "evaluation/reward/return_mean": 0.5}, "c1")
    history.add(1, {"reward/return_mean": 0.75, "optim/loss": float("nan")}, "c2")
    return history


def test_history_reads_back_from_the_manifests_alone(run: RunFolder) -> None:
    filled(run)
    run.metrics.unlink()
    read = History.read(run)
    assert read.checkpoints == ["c1", "c2"]
    assert read.metrics[1] == {"reward/return_mean": 0.75}  # what is not finite is absent


def test_an_unfinished_iteration_ends_the_history(run: RunFolder) -> None:
    filled(run)
    (run.iteration(0) / "done.json").unlink()
    assert History.read(run).metrics == []


def test_metrics_and_curves_have_a_row_for_each_iteration(run: RunFolder, tmp_path: Path) -> None:
    history = filled(run)
    lines = [json.loads(line) for line in run.metrics.read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [0, 1]
    history.write_curves(tmp_path / "curves.csv")
    with open(tmp_path / "curves.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows == [
        {"iteration": "0", "evaluation/reward/return_mean": "0.5", "reward/return_mean": "0.25"},
        {"iteration": "1", "evaluation/reward/return_mean": "", "reward/return_mean": "0.75"},
    ]


def test_final_metrics_are_means_over_the_last_iterations_and_the_last_evaluation(run: RunFolder) -> None:
    history = filled(run)
    history.add(2, {"reward/return_mean": 0.25}, "c3")
    assert history.final(2) == {"reward/return_mean": 0.5, "evaluation/reward/return_mean": 0.5}


def test_adding_an_iteration_again_changes_nothing(run: RunFolder) -> None:
    history = filled(run)
    before = run.metrics.read_bytes()
    history.add(1, {"reward/return_mean": 0.75}, "c2")
    assert run.metrics.read_bytes() == before
    assert len(history.metrics) == 2


@pytest.fixture
def saved(project_dir: Path, params: Params, run: RunFolder) -> Learner:
    """Three finished iterations with checkpoints 1 to 3."""
    learner = Learner(params, Project(project_dir).base)
    history = History(run)
    for version in (1, 2, 3):
        history.add(version - 1, {"reward/return_mean": 0.1 * version}, learner.save(run.checkpoint(version), version))
    return learner


def test_a_run_goes_on_from_its_newest_checkpoint(saved: Learner, run: RunFolder) -> None:
    saved.load_base()
    History.read(run).resume(saved)
    assert saved.published.version == 3


def test_from_the_one_before_when_the_newest_is_damaged(saved: Learner, run: RunFolder) -> None:
    model = run.checkpoint(3) / "model.safetensors"
    model.write_bytes(model.read_bytes()[:-1])
    history = History.read(run)
    history.resume(saved)
    assert saved.published.version == 2
    assert len(history.metrics) == 2


def test_a_run_without_any_usable_checkpoint_says_so(saved: Learner, run: RunFolder) -> None:
    for version in (1, 2):
        shutil.rmtree(run.checkpoint(version))
    (run.checkpoint(3) / "model.safetensors").write_bytes(b"x")
    with pytest.raises(WeightError, match="expected SHA-256"):
        History.read(run).resume(saved)
