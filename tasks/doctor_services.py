"""The doctor on what a run talks to: parameters, MLflow store, servers of Ray and Prefect, the base model."""

from __future__ import annotations

import importlib.util
import os
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from rlcr_core.config import Params, load_params
from rlcr_core.errors import ConfigError, RLCRError
from tasks import models, tracking
from tasks.doctor_report import CLUSTER, DEMO, HERE, LLM, TARGETS, VLLM, Check, ok, problem, warning
from tasks.model_checks import check_model_files

CONNECT_S = 3.0
ASK_S = 30.0  # for the package index and a hub

# -- facts ---------------------------------------------------------------------------------------------------------------


def connect_error(host: str, port: int) -> str:
    """Why nothing answers there; empty when something does."""
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        return "no answer" if isinstance(error, TimeoutError) else error.strerror or str(error)
    return ""


def store_error(uri: str) -> str:
    """Why the MLflow store cannot be used; empty when it opens, or when it is a file that the first run will make."""
    parts = urlsplit(uri)
    if parts.scheme in ("http", "https"):
        # Asked first: the library tries an unreachable server again for minutes.
        error = connect_error(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
        if error:
            return error
    if uri.startswith(tracking.SQLITE):
        path = Path(uri.removeprefix(tracking.SQLITE))
        if not path.exists():
            return "" if path.parent.is_dir() else "its folder does not exist"
        error = _sqlite_error(path)
        if error:
            return error
    try:
        tracking.check_store(uri)
    except RLCRError as error:
        return str(error.__cause__ or error).strip().splitlines()[0]
    return ""


def _sqlite_error(path: Path) -> str:
    """Whether the file is a database that can be written now: takes the write lock for a moment."""
    if not os.access(path, os.W_OK):
        return "the file is not writable"
    try:
        connection = sqlite3.connect(path, timeout=CONNECT_S)
        try:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.rollback()
        finally:
            connection.close()
    except sqlite3.Error as error:
        return str(error)
    return ""


def index_error() -> str:
    """Why the package index does not offer SmolLM2; empty when it does. One question, nothing is downloaded."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "index", "versions", models.PACKAGE.split("==")[0]]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=ASK_S)
    except subprocess.TimeoutExpired:
        return "no answer"
    if done.returncode:
        return next((line for line in reversed(done.stderr.splitlines()) if line.startswith("ERROR")), "it does not answer")
    return "" if models.PACKAGE.split("==")[1] in done.stdout else f"it has no {models.PACKAGE}"


def model_error(name: str, cache: Path) -> tuple[str, str]:
    """Where a base model comes from, and why it cannot be had or used (empty when it can). Weights are not read."""
    if Path(name).expanduser().is_dir():
        return "a folder", _model_error(Path(name).expanduser())
    if name == models.SMOLLM2:
        if models.is_cached(cache / name):
            return f"in {cache.name}/{name}", _model_error(cache / name)
        missing = [package for package in models.CONVERTERS if importlib.util.find_spec(package) is None]
        if missing:
            return "", f"converting it wants {' and '.join(missing)}: `python -m pip install -e '.[llm]'`"
        return "from the package index at first use (93 MB)", index_error()
    try:
        return "in the hub's cache", _model_error(models.from_hub_cache(name))
    except ConfigError:
        return "from the hub at first use", models.hub_error(name)


def _model_error(folder: Path) -> str:
    try:
        check_model_files(folder)
    except RLCRError as error:
        return str(error)
    return ""


def store_uri(params: Params, root: Path) -> str:
    """tracking.uri as MLflow is given it."""
    return tracking.absolute_uri(params.tracking.uri, root)


def read(path: Path) -> tuple[Params | None, str]:
    """The parameters of a file, or why they cannot be used."""
    try:
        return load_params(path), ""
    except RLCRError as error:
        return None, " ".join(str(error).split())


# -- checks --------------------------------------------------------------------------------------------------------------


def check_params(name: str, params: Params | None, error: str) -> Check:
    if params is None:
        return problem("parameters", error, f"correct {name}; docs/profiles/ has complete examples", HERE)
    what = params.policy.model or "the small policy"
    found = f"{name}: {what}, {params.engine.kind} engine, {params.rollouts.clock} clock, {params.train.iterations} iterations"
    return ok("parameters", found)


def check_store(uri: str, error: str) -> Check:
    """The MLflow store is opened before anything is trained, so one that cannot be used stops every run."""
    where = uri if uri.startswith(("http", "sqlite")) else uri.split(":")[0]
    if error:
        todo = "make the file and its folder writable, start the server, or name another store in tracking.uri"
        return problem("mlflow store", f"{where}: {error}", todo, TARGETS)
    return ok("mlflow store", f"{where} can be used")


def ray_endpoint(address: str) -> tuple[str, int] | None:
    """Host and port of a Ray address; None where Ray looks for one itself. Raises ConfigError for anything else."""
    if address in ("", "auto", "local"):
        return None
    try:
        parts = urlsplit(address if "://" in address else f"//{address}")
        if parts.hostname and parts.port:
            return parts.hostname, parts.port
    except ValueError:
        pass
    raise ConfigError(f"RAY_ADDRESS {address!r} is no address; expected host:port, ray://host:port, auto or nothing.")


def check_ray(address: str, error: str) -> Check:
    """`address` is RAY_ADDRESS; without it every stage starts a local Ray."""
    if error:
        todo = "start the cluster (`ray start --head`), correct RAY_ADDRESS, or unset it to use a local one"
        return problem("ray", f"RAY_ADDRESS is set, but: {error}", todo, TARGETS)
    if not address or address == "local":
        todo = "for a cluster set RAY_ADDRESS"
        return ok("ray", "a local one is started", (CLUSTER,), todo)
    return ok("ray", "RAY_ADDRESS is auto: Ray looks for a cluster here" if address == "auto" else "RAY_ADDRESS answers")


def check_prefect(url: str, error: str) -> Check:
    """`url` is PREFECT_API_URL; without it every flow starts a server of its own."""
    if not url:
        return ok("prefect", "an embedded server is started")
    if error:
        todo = "start it (`prefect server start`), correct PREFECT_API_URL, or unset it to use an embedded one"
        return problem("prefect", f"PREFECT_API_URL is set, but: {error}", todo, HERE)
    return ok("prefect", "the server of PREFECT_API_URL answers")


def check_model(name: str, where: str, error: str, targets: Sequence[str]) -> Check:
    """`targets` use this model."""
    if not name:
        return ok("model", "the small policy, no base model is needed")
    title = f"model {name}"
    if error:
        found, todo = f"{where + ': ' if where else ''}{error}", f"see docs/models.md; {models.SMOLLM2} needs no hub"
        if DEMO in targets:
            return problem(title, found, todo, targets)
        if {LLM, VLLM} & set(targets):
            return warning(title, found, todo, targets)
        return ok(title, found, targets, todo)  # of a profile for other machines than most
    return ok(title, where)
