"""MLflow: parameters, curves, versioned inputs, checkpoints and reports. One writer: this process, never a Ray worker.

A run's id is kept beside its working state, so a run that is killed and started again goes on in the same MLflow run.
The store is opened before anything is trained: one that cannot be written stops the run while nothing is lost.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock

from rlcr_core.config import Params
from rlcr_core.errors import StoreError
from rlcr_core.manifests import atomic_write, digest_file
from tasks.paths import Project
from tasks.registry import PolicyVersion, register, weights_digest

LOGGER = logging.getLogger(__name__)
SQLITE = "sqlite:///"
MAX_DIGEST = 36  # characters of an MLflow dataset digest
CHECKPOINT = "checkpoint"  # the tag with the digest of the weights that a training run ended with
PARENT = "mlflow.parentRunId"  # the tag that nests a run in the UI
TRACING = {  # how MLflow writes traces: one writer, as for metrics, and the spans of a trace in one transaction
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_WORKERS": "1",
    "MLFLOW_ASYNC_TRACE_LOGGING_MAX_SPAN_BATCH_SIZE": "512",
}


def absolute_uri(uri: str, root: Path) -> str:
    """`sqlite:///mlflow.db` of the project, wherever the process stands; other schemes stay as they are."""
    if uri.startswith(SQLITE) and not uri.startswith(SQLITE + "/"):
        return f"{SQLITE}{root / uri.removeprefix(SQLITE)}"
    return uri


def flatten(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested parameters as `section.key`."""
    flat: dict[str, Any] = {}
    for key, entry in value.items():
        if isinstance(entry, Mapping) and entry:
            flat |= flatten(entry, f"{prefix}{key}.")
        else:
            flat[f"{prefix}{key}"] = json.dumps(entry) if isinstance(entry, list | tuple | Mapping) else entry
    return flat


def versions_of(project: Project) -> dict[str, str]:
    """Path of every DVC output -> its MD5 in dvc.lock; empty when there is no lock yet."""
    try:
        lock = yaml.safe_load((project.root / "dvc.lock").read_text(encoding="utf-8")) or {}
    except (OSError, yaml.YAMLError):
        return {}
    outs = [out for stage in lock.get("stages", {}).values() for out in stage.get("outs", [])]
    return {str(out["path"]): str(out["md5"]) for out in outs if "md5" in out}


def _mlflow() -> Any:
    """The library, imported when it is first needed: it takes seconds."""
    for name, value in TRACING.items():
        os.environ.setdefault(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about its own dependencies, while it imports
        import mlflow
        import mlflow.pyfunc  # the first trace would import it, and warn then
    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
    return mlflow


def check_store(uri: str) -> None:
    """Raises StoreError unless the store opens."""
    with store_errors(uri):
        _mlflow().MlflowClient(tracking_uri=uri).search_experiments(max_results=1)


@contextmanager
def store_errors(uri: str) -> Iterator[None]:
    """Turn whatever the store raises into one StoreError."""
    try:
        yield
    except StoreError:
        raise
    except Exception as error:
        raise StoreError(
            f"The MLflow store {uri} cannot be used: {_root_cause(error)}. Nothing is lost: finished stages and iterations are "
            "on disk. Free disk space, make the file and its folder writable, or name another store in tracking.uri of "
            "params.yaml, then run the same command again; it goes on where it was."
        ) from error


def _root_cause(error: BaseException) -> str:
    """The first line of the innermost exception: what wraps the database's own words says less than they do."""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    return (str(error).strip().splitlines() or [repr(error)])[0]


class Tracker:
    """One MLflow run. Open it with `open_run`; every call names the run, so no thread-local state matters."""

    def __init__(self, mlflow: Any, uri: str, run_id: str, writer: Executor) -> None:
        self.mlflow, self._uri, self.run_id, self._writer = mlflow, uri, run_id, writer
        self._pending: dict[int, dict[str, float]] = {}  # step -> metrics that the store does not have yet
        self._writing: Future[None] | None = None
        self._warned: set[str] = set()

    @cached_property
    def experiment_id(self) -> str:
        return str(self.mlflow.MlflowClient().get_run(self.run_id).info.experiment_id)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """All metrics of an iteration in one call, written in the background. Raises StoreError for the writing before this.

        What could not be written is kept and written by the next call.
        """
        self._pending[step] = dict(metrics)
        self.flush()
        self._writing = self._writer.submit(self._write)

    def flush(self) -> None:
        """Wait until what was logged is on record. Raises StoreError."""
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.result()

    def _write(self) -> None:
        for step, metrics in list(self._pending.items()):
            with store_errors(self._uri):
                self.mlflow.log_metrics(metrics, step=step, run_id=self.run_id)
            del self._pending[step]

    def attempt(self, what: str, job: Callable[[], None]) -> None:
        """Run a job that nothing depends on, after what was logged before it. Its failure is a warning, once for each `what`."""
        self._writer.submit(self._attempt, what, job)

    def _attempt(self, what: str, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception as error:
            if what not in self._warned:
                self._warned.add(what)
                reason = (str(error) or repr(error)).rstrip(".")
                LOGGER.warning("No %s in MLflow: %s. The run goes on without them.", what, reason)

    def has_trace(self, tags: Mapping[str, str]) -> bool:
        """Whether this run has a trace with all of these tags."""
        wanted = " AND ".join(f"tags.`{key}` = '{value}'" for key, value in tags.items())
        client = self.mlflow.MlflowClient()
        found = client.search_traces(
            locations=[self.experiment_id], filter_string=wanted, run_id=self.run_id, max_results=1, include_spans=False
        )
        return bool(found)

    def logged(self, key: str) -> set[int]:
        """The steps at which a metric is on record."""
        self.flush()
        with store_errors(self._uri):
            history = self.mlflow.MlflowClient().get_metric_history(self.run_id, key)
        return {metric.step for metric in history}

    def log_folder(self, folder: Path, name: str) -> None:
        """A folder's or a file's content as artifacts under `name`. Raises StoreError."""
        with store_errors(self._uri):
            if folder.is_dir():
                self.mlflow.log_artifacts(str(folder), name, run_id=self.run_id)
            else:
                self.mlflow.log_artifact(str(folder), name, run_id=self.run_id)

    def log_model(self, folder: Path, name: str, metrics: Mapping[str, float]) -> None:
        """A checkpoint as artifacts, and as a model that these metrics belong to. Logged once per run. Raises StoreError."""
        self.log_folder(folder, "checkpoint")
        with store_errors(self._uri):
            client = self.mlflow.MlflowClient()
            if "model_id" not in client.get_run(self.run_id).data.tags:
                model = self.mlflow.create_external_model(name=name, source_run_id=self.run_id, model_type="policy")
                client.set_tag(self.run_id, "model_id", model.model_id)
            model_id = client.get_run(self.run_id).data.tags["model_id"]
            self.mlflow.log_metrics(dict(metrics), model_id=model_id, run_id=self.run_id)
            client.set_tag(self.run_id, CHECKPOINT, weights_digest(folder))

    def register_model(self, version: PolicyVersion) -> str:
        """A version of the logged checkpoint in the model registry, the alias `best` where it belongs. Raises StoreError."""
        with store_errors(self._uri):
            client = self.mlflow.MlflowClient()
            return register(client, self.run_id, client.get_run(self.run_id).data.tags["model_id"], version)


def _experiment(mlflow: Any, name: str, root: Path) -> str:
    """The experiment's id; made here, in the driver, because the first use migrates the store."""
    found = mlflow.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    return str(mlflow.create_experiment(name, artifact_location=(root / "mlartifacts").as_uri()))


def _known_run(mlflow: Any, path: Path, uri: str) -> str | None:
    """The run id kept in `path`, if this store still has the run."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(kept, dict) or kept.get("uri") != uri:
        return None
    try:
        run = mlflow.MlflowClient().get_run(kept["run_id"])
    except mlflow.exceptions.MlflowException:
        return None
    return str(run.info.run_id) if run.info.lifecycle_stage == "active" else None


def _training_run(mlflow: Any, experiment: str, checkpoint: Path) -> str | None:
    """The id of the newest run that ended with these weights."""
    wanted = f"tags.{CHECKPOINT} = '{weights_digest(checkpoint)}'"
    found = mlflow.MlflowClient().search_runs([experiment], wanted, max_results=1, order_by=["attributes.start_time DESC"])
    return str(found[0].info.run_id) if found else None


def _log_inputs(mlflow: Any, project: Project, inputs: Mapping[str, Path]) -> None:
    """Input files as datasets of the active run: the digest is the one in dvc.lock, else the file's own SHA-256."""
    import pandas as pd

    versions = versions_of(project)
    for name, path in inputs.items():
        relative = path.relative_to(project.root).as_posix()
        whole = next((md5 for out, md5 in versions.items() if relative == out or relative.startswith(f"{out}/")), None)
        digest = whole or digest_file(path)
        mlflow.set_tag(f"dvc.{name}", digest)
        frame = pd.DataFrame({"path": [relative], "digest": [digest]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # two of its plug-ins claim local paths; either will do
            dataset = mlflow.data.from_pandas(frame, source=str(path), name=name, digest=digest[:MAX_DIGEST])
        mlflow.log_input(dataset, context=name)


@contextmanager
def open_run(
    project: Project,
    params: Params,
    name: str,
    state: Path,
    inputs: Mapping[str, Path],
    tags: Mapping[str, str] | None = None,
    trained: Path | None = None,
) -> Iterator[Tracker]:
    """Open or resume the MLflow run whose id is kept in the file `state`; it is closed as FAILED when the block raises.

    Parameters, tags and input digests are logged when the run is new. The run is nested under the one that trained the weights
    of the folder `trained`; when none is known, under the run that is open, if one is. Raises StoreError when the store cannot
    be used.
    """
    uri = absolute_uri(params.tracking.uri, project.root)
    with store_errors(uri):
        if uri.startswith(SQLITE):
            _check_writable(Path(uri.removeprefix(SQLITE)))
        mlflow = _mlflow()
        mlflow.set_tracking_uri(uri)
        with _alone(uri):
            experiment = _experiment(mlflow, params.tracking.experiment, project.root)
        run_id = _known_run(mlflow, state, uri)
        mlflow.start_run(
            run_id=run_id, experiment_id=experiment, run_name=None if run_id else name, log_system_metrics=False, nested=True
        )
        parent = None if trained is None else _training_run(mlflow, experiment, trained)
        if parent is not None:
            mlflow.set_tag(PARENT, parent)
        run_id, is_new = mlflow.active_run().info.run_id, run_id is None
    status = "FAILED"
    try:
        with store_errors(uri):
            if is_new:
                mlflow.log_params(flatten(params.model_dump(mode="json")))
                experiment_name = os.environ.get("DVC_EXP_NAME", "")
                mlflow.set_tags({**(tags or {}), **({"dvc.experiment": experiment_name} if experiment_name else {})})
                _log_inputs(mlflow, project, inputs)
        atomic_write(state, (json.dumps({"uri": uri, "run_id": run_id}) + "\n").encode())
        with ThreadPoolExecutor(1, "mlflow") as writer:
            tracker = Tracker(mlflow, uri, run_id, writer)
            yield tracker
            tracker.flush()
        status = "FINISHED"
    finally:
        with store_errors(uri):
            mlflow.end_run(status)


def _alone(uri: str) -> AbstractContextManager[Any]:
    """Two processes must not make, or bring up to date, the tables of one sqlite file at the same time."""
    return FileLock(f"{uri.removeprefix(SQLITE)}.lock") if uri.startswith(SQLITE) else nullcontext()


def _check_writable(path: Path) -> None:
    """Raise OSError unless the sqlite file, or a new one in its folder, can be written: MLflow itself retries for minutes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        with open(path, "r+b"):
            return
    probe = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    probe.touch()
    probe.unlink()


def evaluation_run_file(project: Project, params: Params) -> Path:
    """Where the id of the evaluation's MLflow run is kept: one for each configuration and set of policies."""
    weights = sorted(project.artifacts.glob("train/*/checkpoint/*.safetensors"))
    document = [params.digest(), *(digest_file(path) for path in weights)]
    digest = hashlib.sha256(json.dumps(document).encode()).hexdigest()
    return project.runs / f"evaluation-{digest[:8]}.json"


def log_figures(tracker: Tracker, folder: Path) -> int:
    """The PNGs of a folder as artifacts `figures/…`, which the UI shows as pictures; returns how many. Raises StoreError."""
    pictures = sorted(folder.glob("*.png"))
    for picture in pictures:
        tracker.log_folder(picture, "figures")
    return len(pictures)


def log_report(project: Project, params: Params) -> None:
    """Add the report to the MLflow run of the evaluation that it shows. Raises StoreError."""
    inputs = {"test": project.tasks("test")}
    with open_run(project, params, "evaluation", evaluation_run_file(project, params), inputs) as tracker:
        tracker.log_folder(project.report, "report")
        log_figures(tracker, project.report)
