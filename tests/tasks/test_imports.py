"""Who may import what, checked in fresh processes: imports point down, and light modules stay light."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support import ROOT

LIGHT = (
    "rlcr_core.types", "rlcr_core.config", "rlcr_core.seeds", "rlcr_core.clock", "rlcr_core.schedule", "rlcr_core.collective",
    "rlcr_core.rollout", "rlcr_core.metrics", "envs", "envs.checks", "envs.workshop", "envs.workshop.environment",
    "envs.workshop.tasks", "envs.workshop.grammar", "envs.workshop.prose", "envs.workshop.players", "envs.workshop.bounds",
    "rlcr_core.scripted", "rlcr_core.replay", "rlcr_core.workflows", "rlcr_core.chat.harness", "rlcr_core.chat.borders",
    "rlcr_core.wall", "rlcr_core.calibration", "rlcr_core.lanes", "rlcr_core.engines.asynchronous",
    "rlcr_core.matched_tokens", "rlcr_core.scalability", "rlcr_core.across_seeds", "rlcr_core.rescoring", "rlcr_core.frontier",
)  # fmt: skip
ORCHESTRATION = ("prefect", "mlflow", "dvc", "ray", "great_expectations")


def loaded_after(imports: str) -> set[str]:
    """Top-level modules that a fresh Python has loaded after these imports."""
    code = f"{imports}\nimport sys\nprint(' '.join(sorted({{name.split('.')[0] for name in sys.modules}})))"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_light_modules_load_no_torch_and_nothing_heavy() -> None:
    loaded = loaded_after("import " + ", ".join(LIGHT))
    assert not loaded & {"torch", "transformers", "pandas", *ORCHESTRATION, "tasks", "flows"}
    assert {"rlcr_core", "envs"} <= loaded


def test_the_core_and_the_environments_never_load_the_tools_around_them() -> None:
    files = [path.relative_to(ROOT) for name in ("rlcr_core", "envs") for path in (ROOT / name).rglob("*.py")]
    modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in files]
    modules = [name for name in modules if not name.endswith(("engines.vllm", "__main__"))]
    loaded = loaded_after("import " + ", ".join(modules))
    assert not loaded & {*ORCHESTRATION, "tasks", "flows"}
    assert "torch" in loaded


@pytest.mark.parametrize(
    ("tool", "module"),
    [("ray", "tasks.workers"), ("mlflow", "tasks.tracking"), ("great_expectations", "tasks.validation")],
)
def test_one_module_owns_each_tool(tool: str, module: str) -> None:
    importers = []
    for path in sorted((ROOT / "tasks").glob("*.py")):
        lines = [line.strip() for line in path.read_text().splitlines()]
        if any(line.startswith((f"import {tool}", f"from {tool}")) for line in lines):
            importers.append(f"tasks.{path.stem}")
    assert importers == [module]


def test_flows_prepare_the_environment_before_their_tools_are_imported() -> None:
    loaded = loaded_after("import flows, os\nassert os.environ['PREFECT_LOGGING_TO_API_ENABLED'] == 'false'")
    assert not loaded & set(ORCHESTRATION)
