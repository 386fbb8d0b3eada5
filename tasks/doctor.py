"""What this machine can run, and what to do about the rest: facts are gathered here and given to small pure checks.

    doctor_software   Python, commands, versions, packages that cannot live together
    doctor_machine    cores, memory, disk, GPU, ports, folders
    doctor_services   parameters, MLflow store, Ray, Prefect, base models
    doctor_report     the table, JSON, and which targets the findings stop

To add a check: a function that turns facts into a `Check`, one line in `diagnose`, and a test that provokes its failure.
"""

from __future__ import annotations

import math
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

from tasks import doctor_machine as machine
from tasks import doctor_software as software
from tasks.doctor_report import CLUSTER, DEMO, LLM, NODE, VLLM, Check, guarded
from tasks.paths import Project

PROFILES = {LLM: "demo-llm.yaml", VLLM: "demo-vllm.yaml", NODE: "node-8gpu.yaml", CLUSTER: "ray-cluster.yaml"}


def diagnose(project: Project, params_file: str) -> list[Check]:
    """Every check, in the order of the table. Never raises: what cannot be checked is a finding."""
    return [guarded(name, check) for name, check in _checks(project, params_file)]


def _checks(project: Project, params_file: str) -> Iterator[tuple[str, Callable[[], Check]]]:
    root = project.root
    yield "python", lambda: software.check_python(sys.version_info[:3])
    yield "commands", lambda: software.check_commands({name: shutil.which(name) is not None for name in ("make", "git")})
    installed = software.installed_versions()
    yield "packages", lambda: software.check_packages(software.project_requirements(root), installed)
    file = software.pin_file(root, installed)
    yield (
        "versions",
        lambda: software.check_pins(software.pins(root / file), software.project_requirements(root), installed, file),
    )
    yield "conflicts", lambda: software.check_conflicts(installed, software.installed_requirements())
    yield "torch companions", lambda: software.check_companions(installed, _companion_errors(installed))
    yield "vllm", lambda: software.check_vllm(installed)
    yield "libnuma", lambda: software.check_numa(software.has_numa())
    yield "cores", lambda: machine.check_cores(machine.cores())
    yield "memory", lambda: machine.check_memory(machine.memory_gib())
    yield "shared memory", lambda: machine.check_shared_memory(machine.shared_bytes())
    yield "disk", lambda: machine.check_disk(machine.free_gib(root))
    yield "gpu", lambda: machine.check_gpu(machine.accelerator(), _node_gpus(root))
    yield "ports", lambda: machine.check_ports(sorted(machine.busy_ports()))
    yield "loopback", lambda: machine.check_loopback(machine.loopback_error())
    yield "write access", lambda: machine.check_folders(_folder_errors(project))
    yield from _service_checks(project, params_file)


def _service_checks(project: Project, params_file: str) -> Iterator[tuple[str, Callable[[], Check]]]:
    try:
        from tasks import doctor_services as services
    except ImportError as error:  # a package is missing, which the checks above name
        yield "services", partial(_raise, error)
        return
    params, reason = services.read(project.root / params_file)
    yield "parameters", lambda: services.check_params(params_file, params, reason)
    if params is not None:
        uri = services.store_uri(params, project.root)
        yield "mlflow store", lambda: services.check_store(params.tracking.uri, services.store_error(uri))
    address = os.environ.get("RAY_ADDRESS", "")
    yield "ray", lambda: services.check_ray(address, _ray_error(address))
    api = os.environ.get("PREFECT_API_URL", "")
    yield "prefect", lambda: services.check_prefect(api, _url_error(api))
    for name, targets in _model_users(project.root, params.policy.model if params else "").items():
        yield f"model {name}", partial(_model_check, project, name, targets)


def _raise(error: ImportError) -> Check:
    raise error


def _model_check(project: Project, name: str, targets: tuple[str, ...]) -> Check:
    from tasks.doctor_services import check_model, model_error

    where, error = model_error(name, project.models) if name else ("", "")
    return check_model(name, where, error, targets)


# -- facts that need the project -----------------------------------------------------------------------------------------


def _companion_errors(installed: dict[str, str]) -> dict[str, str]:
    present = [name for name in software.COMPANIONS if name in installed]
    return {name: software.import_error(name, ("torch",)) for name in present}


def _node_gpus(root: Path) -> int:
    """GPUs of the one-node profile: those of its engines and one for the trainer."""
    from rlcr_core.config import load_params

    params = load_params(root / "docs" / "profiles" / PROFILES[NODE])
    return math.ceil(params.rollouts.workers * params.rollouts.gpus_per_worker) + 1


def _folder_errors(project: Project) -> dict[str, str]:
    folders = {
        "artifacts": project.artifacts,
        "runs": project.runs,
        ".prefect": Path(os.environ.get("PREFECT_HOME", str(project.root / ".prefect"))),
        "mlartifacts": project.root / "mlartifacts",
        "temporary files": Path(tempfile.gettempdir()),
    }
    return {name: machine.write_error(folder) for name, folder in folders.items()}


def _ray_error(address: str) -> str:
    from rlcr_core.errors import ConfigError
    from tasks.doctor_services import connect_error, ray_endpoint

    try:
        endpoint = ray_endpoint(address)
    except ConfigError as error:
        return str(error)
    return connect_error(*endpoint) if endpoint else ""


def _url_error(url: str) -> str:
    from tasks.doctor_services import connect_error

    if not url:
        return ""
    try:
        parts = urlsplit(url)
        return connect_error(parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80))
    except ValueError as error:
        return str(error)


def _model_users(root: Path, own: str) -> dict[str, tuple[str, ...]]:
    """Base models by name, each with the targets that use it; params.yaml is what `make demo` runs."""
    from tasks.doctor_services import read

    users: dict[str, tuple[str, ...]] = {own: (DEMO,)} if own else {"": ()}
    for target, file in PROFILES.items():
        params, _ = read(root / "docs" / "profiles" / file)
        if params is not None and params.policy.model:
            users[params.policy.model] = (*users.get(params.policy.model, ()), target)
    return users
