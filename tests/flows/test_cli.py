"""Entry points: an error is one paragraph and exit code 1, and a failed stage fails its flow."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest

from flows import cli
from rlcr_core.errors import GateError
from tests.support import ROOT


def run(name: str, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = os.environ | {"PYTHONPATH": str(ROOT), **environment}
    command = [sys.executable, "-m", f"flows.{name}", *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True)


def refuse(_: argparse.Namespace) -> None:
    try:
        raise GateError("too weak; raise base.steps.")
    except GateError as error:
        raise RuntimeError("wrapped by an orchestrator") from error


def test_the_projects_error_is_found_behind_what_wraps_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(refuse, cli.parser(""), []) == 1
    assert capsys.readouterr().err == "error: too weak; raise base.steps.\n"


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(RuntimeError, match="wrapped"):
        cli.run(refuse, cli.parser(""), ["--debug"])


def test_an_unknown_error_is_not_hidden() -> None:
    def broken(_: argparse.Namespace) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        cli.run(broken, cli.parser(""), [])


def test_an_interrupt_says_that_nothing_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(_: argparse.Namespace) -> None:
        raise KeyboardInterrupt

    assert cli.run(interrupted, cli.parser(""), []) == 130
    assert "goes on after the last finished stage" in capsys.readouterr().err


def test_a_misspelt_parameter_is_one_paragraph(tmp_path: Path) -> None:
    text = (ROOT / "params.yaml").read_text().replace("growth_iterations:", "grwoth_iterations:")
    (tmp_path / "params.yaml").write_text(text)
    done = run("schedule", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: params.yaml cannot be used: ")
    assert "grwoth_iterations" in done.stderr and "Traceback" not in done.stderr


def test_tasks_and_schedule_are_made_from_the_parameters_alone(project_dir: Path) -> None:
    before = {path: path.read_bytes() for path in (project_dir / "artifacts").rglob("*.*") if path.suffix in (".jsonl", ".csv")}
    assert len(before) == 4
    for name in ("tasks", "schedule"):
        assert run(name, cwd=project_dir).returncode == 0
    assert {path: path.read_bytes() for path in before} == before


def test_a_schedule_without_a_server_says_how_to_start_one(project_dir: Path) -> None:
    done = run("serve", cwd=project_dir, PREFECT_API_URL="")
    assert done.returncode == 1
    assert "prefect server start" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_cut_task_file_fails_the_flow_and_is_named(project_dir: Path) -> None:
    path = project_dir / "artifacts" / "tasks" / "validation.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    done = run("train", "--mode", "solo", cwd=project_dir, PREFECT_HOME=str(project_dir / ".prefect"))
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: The task file") and "validation.jsonl" in last
