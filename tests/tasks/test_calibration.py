"""The calibration file, its picture, and the entry point that makes them."""

from __future__ import annotations

import platform
import shutil
import socket
from pathlib import Path

import numpy as np
import pytest
import yaml

from flows.calibrate import main, report
from rlcr_core.calibration import Calibration, Timings, calibrate, derived_s
from rlcr_core.clock import calibrated
from rlcr_core.config import LatencyConfig, Params
from rlcr_core.errors import DataError
from tasks.calibration import Bench, derived_against_measured, machine, worker_share, write_calibration
from tasks.task_sets import generate_split
from tests.support import ROOT, changed

MODEL = LatencyConfig(turn_overhead_s=0.5, prefill_tps=50.0, decode_tps=2.0, shared_capacity=3)


def found(factor: float = 1.0) -> Calibration:
    """A calibration on 80 turns of ten rollouts that MODEL made, the odd rollouts slower by a factor."""
    n = np.arange(80.0)
    blank = Timings(n % 10, n * 7 % 40, 1 + n * 3 % 11, 1 + n * 5 % 6, n, n % 3, np.full(80, 0.01))
    slow_N = np.where(n % 2 == 1, factor, 1.0)
    measured_s_N = derived_s(blank, MODEL) * slow_N
    return calibrate(Timings(n % 10, blank.prompt_N, blank.tokens_N, blank.busy_N, measured_s_N, n % 3, blank.tool_late_s_N))


def test_the_file_gives_the_clock_its_constants_and_says_where_they_come_from(tmp_path: Path, params: Params) -> None:
    path = tmp_path / "folder" / "calibration.yaml"
    picture = write_calibration(path, found(), params, 64, 16.0)
    config = calibrated(params.latency.model_copy(update={"calibration": str(path)}))
    got = config.turn_overhead_s, config.prefill_tps, config.decode_tps
    assert got == pytest.approx((0.5, 50.0, 2.0), rel=1e-4)
    assert config.shared_capacity == 3
    document = yaml.safe_load(path.read_text())
    assert document["relative_error"]["rollout_median"] == pytest.approx(0.0, abs=1e-4)
    assert document["rollouts"] == {"at_once": 64, "limit_s": 16.0, "checked_on": 5}
    assert (document["tool_overhead_s"], document["turns_checked_on"], document["engine"]["kind"]) == (0.01, 40, "torch")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.name == "calibration.png"


def test_the_machine_is_described_without_its_name() -> None:
    described = machine()
    assert described["cores"] >= 1 and described["memory_gib"] > 0 and described["python"] == platform.python_version()
    words = {word for value in described.values() for word in str(value).split()}
    assert socket.gethostname() not in words and platform.node() not in words


def test_the_picture_has_a_point_for_each_turn_and_each_rollout() -> None:
    got = found()
    left, right = derived_against_measured(got.unseen, got.derived_s_N).axes
    for axes, n in ((left, 40), (right, 5)):
        line, points = axes.get_lines()
        assert list(line.get_xdata()) == list(line.get_ydata())
        assert len(points.get_xdata()) == n
        np.testing.assert_allclose(points.get_xdata(), points.get_ydata(), rtol=1e-6)


def test_the_report_names_constants_and_errors() -> None:
    # the unseen rollouts take twice as long: the model has half of their time
    text = report(found(2.0))
    assert "decode_tps       2 for up to 3 busy agents" in text and "median 50.0%" in text


def test_a_worker_s_share_is_what_it_runs_at_once(params: Params) -> None:
    rollouts = {"tasks_per_iteration": 8, "group_size": 8, "workers": 2}
    assert worker_share(changed(params, {"rollouts": rollouts})) == 32
    assert worker_share(changed(params, {"rollouts": rollouts | {"workers": 64}})) == 2


def test_rollouts_that_fail_are_no_measurement(params: Params) -> None:
    tasks = generate_split(params.task_set, "validation")
    narrow = changed(params, {"context": {"max_tokens": 8}})
    with Bench(ROOT / "envs/workshop/base", narrow, tasks) as bench, pytest.raises(DataError, match=r"raise context\.max_tokens"):
        bench.play(2, 0.2, "fails")


@pytest.mark.slow
def test_calibrating_the_small_policy_end_to_end(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten seconds of real rollouts: a file that the clock reads, a picture, exit code 0; too short a limit is refused."""
    monkeypatch.chdir(project_dir)
    shutil.copytree(ROOT / "envs/workshop/base", project_dir / "kept")
    arguments = ["--policy", "kept", "--rollouts", "64", "--out", "out/calibration.yaml"]
    assert main([*arguments, "--limit", "10"]) == 0
    config = calibrated(MODEL.model_copy(update={"calibration": "out/calibration.yaml"}))
    assert config.turn_overhead_s > 0 and (project_dir / "out/calibration.png").is_file()
    assert main([*arguments, "--limit", "0.05"]) == 1
