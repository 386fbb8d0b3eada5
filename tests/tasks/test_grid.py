"""The grid of an evaluation: which cells there are, that a cell runs once, and what makes it run again."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlcr_core.config import Params, parse_params
from rlcr_core.errors import ConfigError
from tasks.grid import MAIN, cell_folder, cell_inputs, cells, run_cell
from tasks.organisations import BY_NAME, arranged, organisations
from tasks.paths import Project
from tasks.task_sets import generate_variant, write_tasks
from tests.support import LocalPool, changed, make_project, tiny_params

NAMES = ["base", "hires_2", "staffed", "alone_long", "attempts", "collective"]


@pytest.fixture
def params() -> Params:
    return changed(
        tiny_params(),
        {
            "task_set": {"variants": {"separable": {"coupling": 0.0, "test": 2}}},
            "evaluation": {"organisations": NAMES, "swept": ["base"], "limits_s": [8.0], "attempts": 2, "delay_s": 5.0},
            "rollouts": {"workers": 1},
        },
    )


def test_swept_organisations_have_more_limits_and_families(params: Params) -> None:
    chosen = [BY_NAME["base"], BY_NAME["hires_2"]]
    found = [cell.key for cell in cells(params.evaluation, chosen, ["separable"], [3])]
    # Both at the limit of 20 s on the test tasks; the swept one also under 8 s and on the variant.
    assert found == [
        ("base", 20.0, MAIN, 3), ("hires_2", 20.0, MAIN, 3), ("base", 8.0, MAIN, 3), ("base", 20.0, "separable", 3),
    ]  # fmt: skip


def test_what_organisations_change(params: Params) -> None:
    made = {name: arranged(params, organisation).collective for name, organisation in BY_NAME.items()}
    assert (made["hires_2"].max_hires, made["alone"].max_hires, made["staffed"].max_hires) == (2, 0, 8)
    assert (made["staffed"].staff, made["collective"].staff, made["delayed"].delay_s) == (8, 0, 5.0)
    assert not made["no_archive"].archive and made["mute"].archive
    smaller = changed(params, {"collective": {"max_hires": 3}})
    assert arranged(smaller, BY_NAME["hires_8"]).collective.max_hires == 3  # a cap never raises the project's own
    assert BY_NAME["alone_long"].limit_s(20.0, params.evaluation) == 200.0
    assert BY_NAME["attempts"].rollouts_per_task(params.evaluation) == 2


def test_a_cell_runs_once_and_again_when_what_decides_it_changes(
    tmp_path: Path, params: Params, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_project(tmp_path, params)
    project = Project(tmp_path)
    write_tasks(project.tasks("test-separable"), generate_variant(params.task_set, "separable"))
    (base, _, separable) = cells(params.evaluation, organisations([], ["base"]), ["separable"], [0])
    pool = LocalPool(params, generate_variant(params.task_set, "separable")[0])
    first = run_cell(project, params, base, pool)  # type: ignore[arg-type]
    assert len(first) == 3 and {r.limit_s for r in first} == {20.0}
    assert len(run_cell(project, params, separable, pool)) == 2  # type: ignore[arg-type]

    def refuse(*arguments: object) -> None:
        raise AssertionError("a finished cell was run again")

    monkeypatch.setattr("tasks.grid._sampled", refuse)
    assert run_cell(project, params, base, pool) == first  # type: ignore[arg-type]
    slower = changed(params, {"latency": {"decode_tps": 1.0}})
    folders = {cell_folder(project, base, cell_inputs(project, p, base)) for p in (params, slower)}
    assert len(folders) == 2
    with pytest.raises(AssertionError, match="run again"):
        run_cell(project, slower, base, pool)  # type: ignore[arg-type]


def test_sweeping_what_is_not_evaluated_is_refused(params: Params) -> None:
    data = params.model_dump(mode="json")
    data["evaluation"]["swept"] = ["mute"]
    with pytest.raises(ConfigError, match=r"got mute in swept alone; change evaluation\.organisations or evaluation\.swept"):
        parse_params(data)
    data["evaluation"] |= {"swept": [], "limits_s": [20.0]}
    with pytest.raises(ConfigError, match=r"change evaluation\.limits_s"):
        parse_params(data)
