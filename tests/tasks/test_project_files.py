"""The checked-in configuration parses, and dvc.yaml names only what exists."""

from __future__ import annotations

import re
from typing import Any

import yaml

from rlcr_core.config import load_params
from tasks.identity import CODE, relevant
from tests.support import ROOT


def stages() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    return loaded


def test_the_checked_in_parameters_are_valid() -> None:
    params = load_params(ROOT / "params.yaml")
    assert params.train.iterations >= 1


def test_every_parameter_that_a_stage_names_exists() -> None:
    document = yaml.safe_load((ROOT / "params.yaml").read_text())
    for stage in stages().values():
        for name in stage.get("params", []):
            value = document
            for part in name.split("."):
                assert part in value, name
                value = value[part]


def test_every_source_that_a_stage_names_exists() -> None:
    named = [dep for stage in stages().values() for dep in stage.get("deps", [])]
    assert [dep for dep in named if not dep.startswith("artifacts") and not (ROOT / dep).exists()] == []


def test_the_train_stage_depends_on_what_identifies_a_run() -> None:
    train = stages()["train"]
    assert set(CODE) <= set(train["deps"])
    params = load_params(ROOT / "params.yaml")
    read = set()
    for section, values in relevant(params, "collective").items():
        whole = section not in ("train", "evaluation", "policy")
        read |= {section} if whole else {f"{section}.{key}" for key in values}
    assert read == set(train["params"])


def test_working_state_is_no_output() -> None:
    outs = str([stage.get("outs", []) for stage in stages().values()])
    assert not any(name in outs for name in ("mlflow", "mlruns", ".prefect", "runs/"))


def test_every_test_that_the_table_of_faults_names_exists() -> None:
    """`file::name`, `file`, or `…name` of the file named last; an ellipsis stands for the rest of a name."""
    files = {path.relative_to(ROOT / "tests").with_suffix("").as_posix(): path for path in (ROOT / "tests").rglob("test_*.py")}
    file, missing, names = "", [], re.findall(r"`([^`]+)`", (ROOT / "docs" / "faults.md").read_text().split("|", 1)[1])
    for named in names:
        name = named.partition("::")[2] if "::" in named else named if named.startswith("…") else ""
        file = file if named.startswith("…") else named.partition("::")[0]
        text = "".join(path.read_text() for key, path in files.items() if key == file or key.endswith(f"/{file}"))
        pattern = re.escape(name).replace("…", r"\w*") + (r"\(" if name else "")
        if not re.search(f"def test_{pattern}", text):
            missing.append(named)
    assert len(names) > 50 and not missing
