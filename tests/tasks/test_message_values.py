"""Values of messages from stored rollouts to the file that the viewer reads, with a policy of random weights."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import envs
from flows import values as flow
from rlcr_core.config import Params
from rlcr_core.errors import DataError
from rlcr_core.replay import messages_of
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.store import to_tables, write_rollouts
from rlcr_core.types import Rollout, RolloutKey
from tasks.engines import build_engine
from tasks.message_values import chosen, sample_messages
from tasks.paths import Project
from tasks.task_sets import read_tasks


@pytest.fixture
def stored(project_dir: Path, params: Params) -> list[Rollout]:
    """Rollouts of the kept base policy on the test tasks, in the project's folder."""
    tasks = read_tasks(Project(project_dir).tasks("test"))
    engine, tokenizer = build_engine(Path(params.base.checkpoint).resolve(), params, tasks[0], version=0)
    specs = [RolloutSpec(RolloutKey("values", 0, g, 0), task, 84.0) for g, task in enumerate(tasks)]
    rollouts = run_rollouts(specs, envs.make, engine, tokenizer, params)
    write_rollouts(project_dir / "rollouts", to_tables(rollouts))
    return rollouts


def test_values_are_written_for_the_viewer(
    stored: list[Rollout], project_dir: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    base = str(Path("envs/workshop/base").resolve())
    monkeypatch.chdir(project_dir)
    best = max(stored, key=lambda r: len(messages_of(r)))
    common = ["rollouts", "--policy", base, "--messages", "3", "--continuations", "2"]
    assert flow.main([*common, "--group", str(best.key.group), "--rollout", "0", "--out", "one.json"]) == 0
    found = json.loads((project_dir / "one.json").read_text())
    assert [int(number) for number in found] == [m.number for m in sample_messages(best, 3)]
    assert all(set(entry) == {"mean", "low", "high", "n"} and entry["n"] == 2 for entry in found.values())
    summary = json.loads((project_dir / "one.summary.json").read_text())
    assert summary["messages"] == 3 and summary["pairs"] == 6 and summary["invalid_pairs"] == 0
    assert "6 pairs of replays" in capsys.readouterr().out
    assert flow.main([*common, "--out", "all.json"]) == 0
    every = json.loads((project_dir / "all.json").read_text())
    assert set(every) == {f"{r.key.group}/0" for r in stored}
    assert every[f"{best.key.group}/0"] == found  # other rollouts beside it change nothing


def test_what_is_not_there_is_named(stored: list[Rollout], project_dir: Path, monkeypatch: pytest.MonkeyPatch,
                                    capsys: pytest.CaptureFixture[str]) -> None:  # fmt: skip
    with pytest.raises(DataError, match="no rollout with group 99"):
        chosen(stored, 99, None)
    monkeypatch.chdir(project_dir)
    assert flow.main(["rollouts", "--policy", "nowhere", "--tasks", "missing.jsonl"]) == 1
    assert "--tasks" in capsys.readouterr().err
