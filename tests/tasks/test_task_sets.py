"""Task files: written whole, read strictly."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcr_core.config import Params
from rlcr_core.errors import TaskError
from rlcr_core.types import Task
from tasks.task_sets import generate_split, read_tasks, write_tasks

TASKS = [Task("a", "workshop@1", "test", 1, {"x": [1, 2]}), Task("b", "workshop@1", "test", 2, {})]


def test_a_task_file_reads_back_as_written_and_equal_tasks_give_equal_bytes(tmp_path: Path) -> None:
    write_tasks(tmp_path / "one.jsonl", TASKS)
    write_tasks(tmp_path / "two.jsonl", read_tasks(tmp_path / "one.jsonl"))
    assert read_tasks(tmp_path / "one.jsonl") == TASKS
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_a_file_cut_in_half_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write_tasks(path, TASKS)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2 + 20])
    with pytest.raises(TaskError, match=r"train\.jsonl is empty or cut short.*dvc repro tasks"):
        read_tasks(path)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"id": "a"}', "line 2: expected an object with the keys"),
        ('{"id": ', "line 2: "),
        ('{"id": "a", "environment": "e", "split": "s", "seed": 0, "spec": {}}', "the task id 'a' occurs twice"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "train.jsonl"
    write_tasks(path, TASKS[:1])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(TaskError, match=reason):
        read_tasks(path)


def test_a_missing_file_is_a_task_error(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"cannot be read.*dvc checkout"):
        read_tasks(tmp_path / "none.jsonl")


def test_splits_have_their_sizes_and_share_no_task(params: Params) -> None:
    splits = {split: generate_split(params.task_set, split) for split in ("train", "validation", "test")}
    assert {name: len(tasks) for name, tasks in splits.items()} == {"train": 8, "validation": 2, "test": 3}
    ids = [task.id for tasks in splits.values() for task in tasks]
    seeds = [task.seed for tasks in splits.values() for task in tasks]
    assert len(set(ids)) == len(set(seeds)) == 13
