"""The sweep over team sizes: which cells, how they are kept, and what their rows come to."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from envs.workshop.names import VILLAGE
from rlcr_core.config import CityConfig, LatencyConfig, Params
from rlcr_core.errors import ConfigError
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Event, EventType, TurnKind
from tasks import city
from tasks.city import check_policy, run_cell
from tasks.city_cells import Cell, cell_params, cell_tasks, control_cells, main_cells, packages, reference
from tasks.city_report import print_city, write_city
from tasks.city_rows import Survey, row_of
from tasks.city_summary import cell_entry, claim_entries, name_entries
from tasks.paths import Project
from tasks.weight_sync import sync_folder
from tests.support import LocalPool, changed, make_project, rollout, tiny_params

SMALL = {"city": {"sizes": [1, 2, 4], "rollouts": 2, "control_sizes": [9], "control_rollouts": 2, "agents_at_once": 8},
         "rollouts": {"workers": 1}}  # fmt: skip


@pytest.fixture
def params() -> Params:
    return changed(tiny_params(), SMALL)


def a_cell(size: int, **changes: object) -> Cell:
    return replace(Cell(size, "proportional", "staff", "policy", 2), **changes)  # type: ignore[arg-type]


def test_projects_grow_with_the_team_by_whole_packages(params: Params) -> None:
    # 4 packages for 9 agents: 4 n / 9 rounded up, so 0.44 -> 1, 2.25 -> 3, 4, 56.9 -> 57 and 444.4 -> 445.
    assert [packages(params, a_cell(n)) for n in (1, 5, 9, 128, 1000)] == [1, 3, 4, 57, 445]
    assert {packages(params, a_cell(n, work="fixed")) for n in (1, 9, 1000)} == {4}


def test_the_cells_of_a_sweep_and_of_its_control(params: Params) -> None:
    cells = main_cells(params)
    assert len(cells) == len(set(cells)) == 3 * 2 * 2 * 2  # sizes, projects, ways of hiring, policy and ceiling
    assert reference(params) == Cell(9, "proportional", "ceo", "names", 2)
    # At the training's size both ways of hiring, with names in full and with nicknames.
    pairs = {(cell.hiring, cell.played) for cell in control_cells(params)}
    assert pairs == {("ceo", "names"), ("ceo", "policy"), ("staff", "names"), ("staff", "policy")}


def test_who_is_there_at_the_start(params: Params) -> None:
    staff, ceo = (cell_params(params, a_cell(16, hiring=hiring)).collective for hiring in ("staff", "ceo"))
    assert (staff.max_hires, staff.staff, staff.log_deliveries) == (15, 15, False)
    assert (ceo.max_hires, ceo.staff) == (15, 0)
    assert cell_params(params, a_cell(1)).collective.max_hires == 0


def test_policy_ceiling_and_names_have_the_same_tasks_in_their_own_environment(params: Params) -> None:
    cells = [a_cell(9, played=played) for played in ("policy", "names", "ceiling")]
    tasks = [cell_tasks(params, cell) for cell in cells]
    assert [t[0].environment for t in tasks] == ["workshop-city@1", "workshop@1", "workshop-names@1"]
    assert [task.spec for task in tasks[0]] == [task.spec for task in tasks[1]] == [task.spec for task in tasks[2]]


def test_a_row_by_hand() -> None:
    """One agent of a project with 4 modules and 2 packages, 10 s: a build from 0 to 2 s, a wait from 2 to 4 s.

    Idle: 10 s less the 2 s of work. Reading: 3 words at 50 words/s in 10 s. First observation: no fact, two open modules of 4
    unfinished, one keyed without its key. Second, after a reward at 2 s: a fact about p07, so 1 of 2 packages; one open module
    of 3 unfinished, which is keyed and has its fact in view.
    """
    empty = "none none none none none none"
    rest = f"msgs {empty} none none team nobody nobody board"
    first = f"ceo time5 size5 none none none notes {empty} {rest} p07 i00 p08 i01 none none none none"
    second = f"ceo time4 size5 done p07 k03 notes p07 k03 none none none none {rest} p07 i01 {empty}"
    tokenizer = WordTokenizer(VILLAGE.vocabulary)
    made = rollout()
    build, wait = made.trajectories[0]
    build.observation_ids, wait.observation_ids = tokenizer.encode(first), tokenizer.encode(second)
    build.code, wait.kind, wait.prompt_tokens = "done", TurnKind.WAIT, 3
    made.events = [
        Event(2.0, EventType.WORK, 0, -1, 0.25, "done units=1"),
        Event(2.0, EventType.REWARD, 0, -1, 0.25),
        Event(2.0, EventType.MESSAGE, 0, -1, 1.0, "p07 k03"),
        Event(3.0, EventType.WORK, 0, -1, 0.0, "dup units=1"),
    ]
    latency = LatencyConfig(turn_overhead_s=0.5, prefill_tps=50.0, decode_tps=2.0)
    row, states = row_of(made, Survey(4, 2, tokenizer.words, latency))
    assert (row["return"], row["modules"], row["work_dup"], row["messages_true"], row["employed"]) == (0.25, 1, 1, 1, 1)
    assert (row["tokens_work"], row["tokens_wait"], row["turns"]) == (2, 2, 2)
    assert (row["time_work"], row["time_idle"], row["time_reading"]) == pytest.approx((0.2, 0.8, 0.006))
    assert (row["seen_facts"], row["seen_modules"]) == pytest.approx((0.25, (2 / 4 + 1 / 3) / 2))
    assert row["seen_keys"] == 0.5 and sum(states.values()) == len(states) == 2


def test_a_sweep_is_kept_cell_by_cell_and_written_out(tmp_path: Path, params: Params, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(make_project(tmp_path, params))
    check_policy(params, project.base)
    cells = [*control_cells(params), *main_cells(params)]
    pool = LocalPool(params, cell_tasks(params, cells[0])[0])
    sync_folder(project.base, 0, pool)  # type: ignore[arg-type]
    counted: Counter[str] = Counter()

    def run(cell: Cell) -> city.CellResult:
        return run_cell(
            project, params, cell, project.base, None if cell.played == "ceiling" else pool,  # type: ignore[arg-type]
            lambda rollouts, turns: counted.update({cell.name: rollouts}),
        )  # fmt: skip

    results = [run(cell) for cell in cells]
    assert counted == {cell.name: cell.n_tasks for cell in cells}
    monkeypatch.setattr(city, "_played", None)  # whoever plays again fails
    assert [run(cell) for cell in cells] == results

    summary = write_city(tmp_path / "out", params, results)
    print_city(summary)
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"rollouts.parquet", "summary.json", "cells.csv", "shift.csv", "names.csv", "fits.csv", "city_returns.png",
                     "city_measures.png", "city_shift.png", "city_fits.png"}  # fmt: skip
    assert len(summary["cells"]) == len(cells) and len(summary["names"]) == 2
    ceiling, policy = (
        next(c for c in summary["cells"] if (c["size"], c["hiring"], c["played"], c["work"]) == (4, "staff", who, "fixed"))
        for who in ("ceiling", "policy")
    )
    assert ceiling["measures"]["return"]["mean"] > policy["measures"]["return"]["mean"]  # of a base with random weights


def _result(cell: Cell, returns: list[float]) -> city.CellResult:
    zeros = dict.fromkeys(
        ("end_s", "modules", "employed", "messages", "messages_true", "work_done", "work_dup", "work_bad", "tokens_work",
         "tokens_talk", "tokens_invalid", "time_effective", "time_work", "time_idle", "time_reading", "seen_facts",
         "seen_modules", "seen_keys"), 0.0,
    )  # fmt: skip
    rows = [zeros | {"task_id": f"t{i}", "return": value} for i, value in enumerate(returns)]
    return city.CellResult(cell, rows, (Counter(), Counter()))


def test_differences_are_paired_and_the_claim_is_judged_by_the_largest_team(params: Params) -> None:
    larger = params.model_copy(update={"city": CityConfig(sizes=(8, 16, 32), rollouts=2)})
    base, same, worse = (_result(a_cell(size), values) for size, values in ((8, [0.5, 0.6]), (16, [0.5, 0.6]), (32, [0.1, 0.2])))
    claims = claim_entries({r.cell: r for r in (base, same, worse)}, larger)
    assert [claim["verdict"] for claim in claims] == ["holds", "does not hold"]
    assert claims[1]["text"].endswith("return -0.400 [-0.400, -0.400]")
    assert cell_entry(base, params.evaluation)["measures"]["return"]["mean"] == pytest.approx(0.55)
    cells = {cell: _result(cell, values) for cell, values in ((a_cell(9), [0.5, 0.7]), (a_cell(9, played="names"), [0.4, 0.6]))}
    (entry,) = name_entries(cells, params)
    assert entry["difference"] == pytest.approx({"mean": 0.1, "low": 0.1, "high": 0.1})


def test_who_cannot_play_a_city_is_told_so(tmp_path: Path, params: Params) -> None:
    WordTokenizer(("one", "two")).save(tmp_path)
    with pytest.raises(ConfigError, match="does not speak the vocabulary of workshop@1"):
        check_policy(params, tmp_path)
    WordTokenizer(VILLAGE.vocabulary).save(tmp_path)
    transcript = changed(params, {"context": {"mode": "transcript"}})
    with pytest.raises(ConfigError, match=r"nicknames hold for one turn, got context\.mode transcript"):
        check_policy(transcript, tmp_path)
    with pytest.raises(ConfigError, match="sizes must rise strictly"):
        changed(params, {"city": {"sizes": [4, 2]}})
