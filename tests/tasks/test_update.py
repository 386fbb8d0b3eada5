"""Advantages of an iteration, and an update that is done once."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcr_core.config import Params
from rlcr_core.types import Event, EventType, Rollout
from tasks.learner import Learner, keep_recent
from tasks.paths import Project, RunFolder
from tasks.update import advantages_of, training_contexts, update_stage
from tests.support import changed, rollout


def earning(group: int, number: int, value: float, **sizes: int) -> Rollout:
    return rollout(group, number, events=[Event(3.0, EventType.REWARD, 0, -1, value)], **sizes)


def test_the_baseline_is_the_mean_of_the_groups_own_rollouts(params: Params) -> None:
    config = changed(params, {"update": {"scale": "none"}}).update
    rollouts = [earning(0, 0, 0.0), earning(0, 1, 0.5), earning(1, 0, 0.5), earning(1, 1, 0.5)]
    assert advantages_of(rollouts, config) == [-0.25, 0.25, 0.0, 0.0]
    # Rollout 0/1 is excluded: its group has one member left, whose advantage is zero. The other group is as before.
    assert advantages_of([rollouts[0], *rollouts[2:]], config) == [0.0, 0.0, 0.0]


def test_one_scale_for_the_whole_batch(params: Params) -> None:
    # Raw advantages -0.25, 0.25, 0, 0: mean 0, population std sqrt(0.125 / 4) = 0.17678; 0.25 / 0.17678 = 1.41421.
    rollouts = [earning(0, 0, 0.0), earning(0, 1, 0.5), earning(1, 0, 0.5), earning(1, 1, 0.5)]
    assert advantages_of(rollouts, params.update) == pytest.approx([-(2**0.5), 2**0.5, 0.0, 0.0])


def test_every_context_of_a_rollout_has_its_advantage_however_many_agents_it_has(params: Params) -> None:
    config = changed(params, {"update": {"scale": "none"}}).update
    rollouts = [earning(0, 0, 0.0, agents=3, turns=2), earning(0, 1, 0.5, agents=1, turns=1)]
    contexts = training_contexts(rollouts, config)
    assert [(c.rollout, c.advantage) for c in contexts] == [(0, -0.25)] * 6 + [(1, 0.25)]


def trainable(project: Path, params: Params) -> tuple[Learner, list[Rollout], RunFolder]:
    learner = Learner(params, Project(project).base)
    rollouts = [earning(0, 0, 0.0), earning(0, 1, 0.5)]
    return learner, rollouts, RunFolder(project / "runs" / "x")


def test_a_finished_update_is_loaded_instead_of_repeated(project_dir: Path, params: Params) -> None:
    learner, rollouts, run = trainable(project_dir, params)
    arguments = (run.iteration(0), {"a": "b"}, rollouts)
    rest = (params.update, run.checkpoint(1), 1, 7)
    first = update_stage(*arguments, learner, *rest)
    fresh = Learner(params, Project(project_dir).base)
    again = update_stage(*arguments, fresh, *rest)
    assert first[:2] == again[:2]
    assert again[2] == 0.0  # no gradient was taken
    assert fresh.published == learner.published
    for a, b in zip(learner.model.parameters(), fresh.model.parameters(), strict=True):
        assert a.equal(b)
    state, loaded = learner.updater.state_dict(), fresh.updater.state_dict()
    assert state.keys() == loaded.keys() and len(state) > 0
    assert all(state[name].equal(loaded[name]) for name in state)


def test_a_damaged_checkpoint_makes_the_update_run_again_with_the_same_result(project_dir: Path, params: Params) -> None:
    learner, rollouts, run = trainable(project_dir, params)
    arguments = (run.iteration(0), {"a": "b"}, rollouts)
    rest = (params.update, run.checkpoint(1), 1, 7)
    digest = update_stage(*arguments, learner, *rest)[1]
    (run.checkpoint(1) / "checkpoint.json").write_text("{")
    assert update_stage(*arguments, Learner(params, Project(project_dir).base), *rest)[1] == digest


def test_the_last_two_checkpoints_and_every_tenth_stay(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    for version in range(1, 24):
        run.checkpoint(version).mkdir(parents=True)
    keep_recent(run, 23, 10)
    assert sorted(int(path.name) for path in (tmp_path / "checkpoints").iterdir()) == [10, 20, 22, 23]
