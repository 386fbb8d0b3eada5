"""The base stage: the kept checkpoint when it fits, refused when damaged or too weak, retrained when it does not fit."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from rlcr_core.config import Params
from rlcr_core.errors import DataError, GateError
from rlcr_core.manifests import digest_file
from tasks import base_policy
from tasks.base_policy import RECORD, base_digest, keep_base, make_base
from tasks.paths import Project
from tasks.task_sets import read_tasks
from tests.support import changed

GOOD = {"base/divergence_nats": 0.1, "base/retrieval_notes": 0.8, "base/retrieval_messages": 0.8}


class Kept:
    """A project whose repository keeps its (untrained) base, with a record that calls it good."""

    def __init__(self, root: Path, params: Params) -> None:
        self.project, self.params = Project(root), params
        self.tasks = read_tasks(self.project.tasks("train"))
        self.project.base_metrics.write_text(json.dumps(GOOD))
        self.kept = keep_base(self.project, params, self.tasks)

    def make(self, params: Params | None = None) -> str:
        return make_base(self.project, params or self.params, self.tasks, None)


@pytest.fixture
def kept(project_dir: Path, params: Params) -> Kept:
    return Kept(project_dir, params)


@pytest.fixture
def refuse_training(monkeypatch: pytest.MonkeyPatch) -> None:
    def train(*_: object) -> dict[str, float]:
        raise RuntimeError("trained")

    monkeypatch.setattr(base_policy, "train_base", train)


def test_the_kept_base_is_taken_when_its_configuration_fits(kept: Kept, refuse_training: None) -> None:
    weights = digest_file(kept.kept / "model.safetensors")
    assert kept.make().startswith("kept base policy")
    assert digest_file(kept.project.base / "model.safetensors") == weights
    assert not (kept.project.base / RECORD).exists()
    assert json.loads(kept.project.base_metrics.read_text()) == GOOD


@pytest.mark.parametrize(
    "changes", [{"base": {"seed": 5}}, {"base": {"steps": 7}}, {"policy": {"hidden_size": 32}}, {"policy": {"rope_theta": 100.0}}]
)
def test_another_configuration_is_trained(kept: Kept, refuse_training: None, changes: dict[str, dict[str, object]]) -> None:
    with pytest.raises(RuntimeError, match="trained"):
        kept.make(changed(kept.params, changes))


def test_what_does_not_decide_the_weights_keeps_the_base(kept: Kept, params: Params) -> None:
    other = changed(params, {"base": {"checkpoint": "elsewhere", "gate_retrieval": 0.1}, "update": {"lr": 0.5}})
    assert base_digest(other, kept.tasks[0]) == base_digest(params, kept.tasks[0])


def test_a_weak_base_is_refused(kept: Kept) -> None:
    with pytest.raises(GateError, match=r"retrieval_notes 0\.800.*at least 0\.90"):
        kept.make(changed(kept.params, {"base": {"gate_retrieval": 0.9}}))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("model.safetensors", truncate, "its record says"),
        (RECORD, lambda path: path.write_text("{"), "is no record of a base policy"),
    ],
)
def test_a_damaged_kept_base_is_named(kept: Kept, file: str, damage: Callable[[Path], None], message: str) -> None:
    damage(kept.kept / file)
    with pytest.raises(DataError, match=message):
        kept.make()
