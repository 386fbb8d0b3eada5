"""An iteration's plan: fixed by seed and iteration alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from rlcr_core.config import Params
from rlcr_core.types import RolloutKey, Task
from tasks.plan import draw, make_plan

TASKS = [Task(f"t{i}", "workshop@1", "train", i, {}) for i in range(6)]


def test_tasks_are_drawn_without_replacement_and_depend_on_seed_and_iteration_only() -> None:
    assert sorted(draw(TASKS, 6, 0, 0)) == [f"t{i}" for i in range(6)]
    assert draw(TASKS, 3, 0, 1) == draw(TASKS, 3, 0, 1)
    assert len({draw(TASKS, 3, seed, iteration) for seed in range(3) for iteration in range(3)}) > 5


def test_groups_are_tasks_and_every_rollout_has_its_own_key(tmp_path: Path, params: Params) -> None:
    plan = make_plan(tmp_path, "solo-0", 0, 7, TASKS, 16.0, "digest", params.rollouts)
    specs = plan.specs(TASKS)
    assert [spec.key for spec in specs] == [RolloutKey("solo-0", 7, g, r) for g in (0, 1) for r in (0, 1)]
    assert [spec.task.id for spec in specs] == [plan.task_ids[0]] * 2 + [plan.task_ids[1]] * 2
    assert {spec.limit_s for spec in specs} == {16.0}


def test_a_valid_plan_is_kept_and_other_weights_write_a_new_one(tmp_path: Path, params: Params) -> None:
    plan = make_plan(tmp_path, "solo-0", 0, 7, TASKS, 16.0, "digest", params.rollouts)
    before = (tmp_path / "plan.json").stat().st_mtime_ns
    assert make_plan(tmp_path, "solo-0", 0, 7, TASKS, 16.0, "digest", params.rollouts) == plan
    assert (tmp_path / "plan.json").stat().st_mtime_ns == before
    other = make_plan(tmp_path, "solo-0", 0, 7, TASKS, 16.0, "other", params.rollouts)
    assert other == replace(plan, weights="other")
    assert b"other" in (tmp_path / "plan.json").read_bytes()
