"""MLflow: a run is resumed, keys and digests arrive, and a store that cannot be written is one clear paragraph."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from rlcr_core.config import Params
from rlcr_core.errors import StoreError
from rlcr_core.metrics import iteration_metrics
from tasks.paths import Project
from tasks.timings import Timings
from tasks.tracking import Tracker, absolute_uri, flatten, open_run, versions_of
from tests.support import changed, rollout


def test_a_relative_sqlite_uri_becomes_the_projects(tmp_path: Path) -> None:
    assert absolute_uri("sqlite:///mlflow.db", Path("/project")) == "sqlite:////project/mlflow.db"
    assert absolute_uri("sqlite:////srv/mlflow.db", Path("/project")) == "sqlite:////srv/mlflow.db"
    assert absolute_uri("http://127.0.0.1:5000", Path("/project")) == "http://127.0.0.1:5000"


def test_parameters_are_flat_and_lists_are_text() -> None:
    assert flatten({"update": {"lr": 0.1, "betas": [0.9, 0.99]}, "points": [], "empty": {}}) == {
        "update.lr": 0.1, "update.betas": "[0.9, 0.99]", "points": "[]", "empty": "{}",
    }  # fmt: skip


def test_versions_are_those_of_the_dvc_lock(tmp_path: Path) -> None:
    assert versions_of(Project(tmp_path)) == {}
    lock = {"schema": "2.0", "stages": {"tasks": {"cmd": "x", "outs": [{"path": "artifacts/tasks", "md5": "abc.dir"}]}, "x": {}}}
    (tmp_path / "dvc.lock").write_text(yaml.safe_dump(lock))
    assert versions_of(Project(tmp_path)) == {"artifacts/tasks": "abc.dir"}


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory, params: Params) -> dict[str, Any]:
    """A run that logged an iteration, failed, was resumed, logged the next and ended; and the store's view of it."""
    import mlflow

    root = tmp_path_factory.mktemp("tracked")
    project, state = Project(root), root / "runs" / "x" / "mlflow.json"
    lock = {"stages": {"tasks": {"outs": [{"path": "artifacts/tasks", "md5": "abc.dir"}]}}}
    (root / "dvc.lock").write_text(yaml.safe_dump(lock))
    project.tasks("train").parent.mkdir(parents=True)
    project.tasks("train").write_text("{}\n")
    metrics = iteration_metrics([rollout(0, 0), rollout(0, 1)], "evaluation") | iteration_metrics([rollout()])
    metrics |= Timings().metrics()
    inputs, tags = {"train": project.tasks("train")}, {"mode": "x"}
    ids = []
    with pytest.raises(KeyError), open_run(project, params, "x-0", state, inputs, tags) as run:
        run.log(metrics, 0)
        ids.append(run.run_id)
        raise KeyError("killed")
    client = mlflow.MlflowClient()
    status = client.get_run(ids[0]).info.status
    checkpoint = root / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    with open_run(project, params, "x-0", state, inputs, tags) as run:
        known = run.logged("reward/return_mean")
        run.log(metrics, 1)
        for _ in range(2):  # a repeated export makes no second model
            run.log_model(checkpoint, "x-0", {"reward/return_mean": 0.25})
        ids.append(run.run_id)
    return {"client": client, "ids": ids, "status": status, "known": known, "metrics": metrics, "state": state}


def test_a_run_that_ended_in_an_error_is_marked_and_resumed(opened: dict[str, Any]) -> None:
    assert opened["status"] == "FAILED"
    assert opened["ids"][0] == opened["ids"][1] == json.loads(opened["state"].read_text())["run_id"]
    assert opened["known"] == {0}
    run = opened["client"].get_run(opened["ids"][0])
    assert run.info.status == "FINISHED"
    assert run.data.params["rollouts.group_size"] == "2"


def test_every_key_that_the_code_can_log_is_accepted(opened: dict[str, Any]) -> None:
    logged = opened["client"].get_run(opened["ids"][0]).data.metrics
    assert set(opened["metrics"]) <= set(logged)


def test_inputs_carry_the_digest_of_the_versioned_data(opened: dict[str, Any]) -> None:
    run = opened["client"].get_run(opened["ids"][0])
    assert [i.dataset.digest for i in run.inputs.dataset_inputs] == ["abc.dir"]
    assert run.data.tags["dvc.train"] == "abc.dir"
    assert run.data.tags["mode"] == "x"


def test_checkpoints_are_artifacts_and_one_model_with_metrics(opened: dict[str, Any]) -> None:
    client = opened["client"]
    run = client.get_run(opened["ids"][0])
    assert [f.path for f in client.list_artifacts(run.info.run_id, "checkpoint")] == ["checkpoint/model.safetensors"]
    models = client.search_logged_models([run.info.experiment_id])
    assert [model.model_id for model in models] == [run.data.tags["model_id"]]
    assert ("reward/return_mean", 0.25) in {(m.key, m.value) for m in models[0].metrics}


def test_what_the_background_could_not_write_is_said_at_the_next_call_and_written_then() -> None:
    class Store:
        broken, got = True, {}

        def log_metrics(self, metrics: dict[str, float], step: int, run_id: str) -> None:
            if self.broken:
                raise OSError("database is locked")
            self.got[step] = metrics

    store = Store()
    with ThreadPoolExecutor(1) as writer:
        tracker = Tracker(store, "sqlite:///x.db", "id", writer)
        tracker.log({"a": 1.0}, 0)
        with pytest.raises(StoreError, match=r"x\.db cannot be used: database is locked"):
            tracker.log({"a": 2.0}, 1)
        store.broken = False
        tracker.log({"a": 2.0}, 1)  # the orchestrator's retry
        tracker.flush()
    assert store.got == {0: {"a": 1.0}, 1: {"a": 2.0}}


@pytest.mark.parametrize("uri", ["sqlite:///{blocked}/mlflow.db", "nonsense://x"])
def test_an_unusable_store_stops_before_any_work(tmp_path: Path, params: Params, uri: str) -> None:
    (tmp_path / "blocked").write_text("a file where a folder should be")
    bad = changed(params, {"tracking": {"uri": uri.format(blocked=tmp_path / "blocked")}})
    with (
        pytest.raises(StoreError, match=r"MLflow store .* cannot be used: .*Nothing is lost.*tracking\.uri"),
        open_run(Project(tmp_path), bad, "x", tmp_path / "state.json", {}),
    ):
        raise AssertionError("opened")
    assert not (tmp_path / "state.json").exists()


def test_a_store_that_is_no_database_is_named(tmp_path: Path, params: Params) -> None:
    (tmp_path / "mlflow.db").write_text("no database at all, but long enough to be looked at as one" * 20)
    with (
        pytest.raises(StoreError, match=r"mlflow\.db cannot be used"),
        open_run(Project(tmp_path), params, "x", tmp_path / "state.json", {}),
    ):
        raise AssertionError("opened")
