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
from tasks.evaluation_runs import nested_run
from tasks.paths import Project
from tasks.registry import PolicyVersion, model_name, weights_digest
from tasks.timings import Timings
from tasks.tracking import Tracker, absolute_uri, flatten, log_figures, open_run, versions_of
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
    return {
        "client": client, "ids": ids, "status": status, "known": known, "metrics": metrics, "state": state, "project": project,
    }  # fmt: skip


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


@pytest.fixture(scope="module")
def registered(opened: dict[str, Any], params: Params) -> dict[str, Any]:
    """Four policies trained and registered in turn: (digest, return, measure) -> where `best` was after each."""
    project, client = opened["project"], opened["client"]
    own = changed(params, {"tracking": {"experiment": "town/registry"}})
    name, numbers, best, runs = model_name("town/registry", "collective"), [], [], {}
    trained = [("aa", 0.5, "m"), ("bb", 0.25, "m"), ("aa", 0.5, "m"), ("cc", 0.5, "m"), ("dd", 0.75, "m"), ("ee", 0.125, "n")]
    for seed, (content, return_, measure) in enumerate(trained):
        folder = project.trained("collective", seed) / "checkpoint"
        folder.mkdir(parents=True)
        (folder / "model.safetensors").write_bytes(content.encode())
        with open_run(project, own, f"collective-{seed}", project.runs / f"{seed}.json", {}) as run:
            run.log_model(folder, f"collective-{seed}", {})
            numbers.append(run.register_model(PolicyVersion(name, weights_digest(folder), seed, return_, measure)))
            runs[seed] = run.run_id
        best.append(str(client.get_registered_model(name).aliases["best"]))
    return {"client": client, "name": name, "numbers": numbers, "best": best, "runs": runs, "project": project, "params": own}


def test_equal_weights_are_one_version_and_best_moves_only_to_a_higher_return(registered: dict[str, Any]) -> None:
    """aa 0.5 is version 1; bb is lower; aa again is no version; cc is equal and later; dd is higher; ee is measured anew."""
    assert registered["name"] == "town-registry-collective"
    assert registered["numbers"] == ["1", "2", "1", "3", "4", "5"]
    assert registered["best"] == ["1", "1", "1", "1", "4", "5"]


def test_the_best_policy_is_loaded_by_its_alias(registered: dict[str, Any], tmp_path: Path) -> None:
    import mlflow

    client, name = registered["client"], registered["name"]
    version = client.get_model_version_by_alias(name, "best")
    assert {"return": "0.125", "seed": "5", "measure": "n"}.items() <= version.tags.items()
    assert version.run_id == registered["runs"][5]
    folder = Path(mlflow.artifacts.download_artifacts(f"models:/{name}@best", dst_path=str(tmp_path)))
    assert (folder / "model.safetensors").read_bytes() == b"ee"
    assert weights_digest(folder) == version.tags["digest"]


def test_a_folder_without_weights_is_no_version(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="has no weights"):
        weights_digest(tmp_path)


def test_an_evaluation_is_nested_under_the_run_that_trained_its_weights(registered: dict[str, Any]) -> None:
    """Seeds 0 and 2 ended with the same weights: the newer run counts. Seed 6 came from elsewhere."""
    project, own, runs = registered["project"], registered["params"], registered["runs"]
    elsewhere = project.trained("collective", 6) / "checkpoint"
    elsewhere.mkdir(parents=True)
    (elsewhere / "model.safetensors").write_bytes(b"ff")
    tags, ids = {}, []
    with open_run(project, own, "evaluation", project.runs / "e.json", {}) as whole:
        for seed in (1, 2, 6, 1):
            with nested_run(project, own, "collective", seed, {}, {"when": "test"}) as run:
                run.log({"evaluation/return": 0.5}, 0)
                ids.append(run.run_id)
            tags[seed] = registered["client"].get_run(run.run_id).data.tags
        whole.log({"evaluation/return": 0.25}, 0)
    parents = {seed: found["mlflow.parentRunId"] for seed, found in tags.items()}
    assert parents == {1: runs[1], 2: runs[2], 6: whole.run_id}
    assert ids[0] == ids[3]  # evaluated again, it goes on in the same run
    assert {"mode": "collective", "seed": "1", "when": "test"}.items() <= tags[1].items()
    metrics = [registered["client"].get_run(i).data.metrics["evaluation/return"] for i in (ids[0], whole.run_id)]
    assert metrics == [0.5, 0.25]


def test_figures_are_artifacts_of_their_own(registered: dict[str, Any], tmp_path: Path) -> None:
    for name in ("b.png", "a.png", "page.html"):
        (tmp_path / name).write_bytes(b"x")
    project, client = registered["project"], registered["client"]
    with open_run(project, registered["params"], "figures", project.runs / "f.json", {}) as run:
        assert log_figures(run, tmp_path) == 2
    assert [f.path for f in client.list_artifacts(run.run_id, "figures")] == ["figures/a.png", "figures/b.png"]
