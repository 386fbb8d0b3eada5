"""Summaries of an evaluation, against values worked out by hand."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from rlcr_core.config import EvaluationConfig
from rlcr_core.errors import ConfigError
from rlcr_core.store import read_rollouts
from rlcr_core.types import Event, EventType, Rollout
from tasks.comparison import headline, summarise, typical, write_comparison
from tasks.evaluation import evaluation_specs
from tasks.grid import MAIN, CellKey
from tasks.organisations import ORGANISATIONS, arranged, organisations
from tasks.table import print_table
from tests.support import changed, rollout, tiny_params

EVERY = [organisation.name for organisation in ORGANISATIONS]
CONFIG = EvaluationConfig(organisations=EVERY, rollouts_per_task=1, limit_s=10.0, bootstrap_resamples=200, confidence=0.95)


def earning(task: int, *rewards: tuple[float, float]) -> Rollout:
    return rollout(task, 0, events=[Event(time_s, EventType.REWARD, 0, -1, value) for time_s, value in rewards])


def results() -> dict[tuple[str, int], list[Rollout]]:
    """Two tasks. Solo earns 0.1 at 1 s; the collective 0.3 and 0.5 at 4 s; the base nothing."""
    return {
        ("base", 0): [earning(0), earning(1)],
        ("collective", 0): [earning(0, (4.0, 0.3)), earning(1, (4.0, 0.5))],
        ("solo", 0): [earning(0, (1.0, 0.1)), earning(1, (1.0, 0.1))],
    }


def grid() -> dict[CellKey, list[Rollout]]:
    return {(name, 10.0, MAIN, seed): rollouts for (name, seed), rollouts in results().items()}


PARAMS = changed(tiny_params(), {"evaluation": CONFIG.model_dump(mode="json")})


def test_means_and_paired_differences() -> None:
    summary = summarise(results(), CONFIG)
    means = {entry["name"]: entry["mean"] for entry in summary["organisations"]}
    assert means == {"base": 0.0, "collective": pytest.approx(0.4), "solo": pytest.approx(0.1)}
    pairs = {(d["a"], d["b"]): d for d in summary["differences"]}
    assert set(pairs) == {("collective", "solo"), ("collective", "base")}
    assert pairs["collective", "solo"]["mean"] == pytest.approx(0.3)  # (0.3 - 0.1 + 0.5 - 0.1) / 2
    assert pairs["collective", "solo"]["low"] == pytest.approx(0.2)  # the worse task drawn twice
    assert (summary["tasks"], summary["limit_s"]) == (2, 10.0)


def test_the_crossing_is_where_the_later_reward_overtakes() -> None:
    crossing = summarise(results(), CONFIG)["crossing"]
    assert (crossing["mean"], crossing["low"], crossing["high"], crossing["never_share"]) == (4.0, 4.0, 4.0, 0.0)
    alone = summarise({("base", 0): results()["base", 0]}, CONFIG)
    assert alone["crossing"]["mean"] is None and alone["differences"] == []


def test_several_seeds_are_kept_apart() -> None:
    more = results() | {("collective", 1): results()["solo", 0], ("solo", 1): results()["solo", 0]}
    summary = summarise(more, CONFIG)
    differences = {d["seed"]: d["mean"] for d in summary["differences"] if (d["a"], d["b"]) == ("collective", "solo")}
    assert differences == {0: pytest.approx(0.3), 1: 0.0}


def test_files_of_a_comparison(tmp_path: Path) -> None:
    summary = write_comparison(tmp_path, grid(), PARAMS)
    assert json.loads((tmp_path / "summary.json").read_text()) == summary
    rows = pq.read_table(tmp_path / "rollouts.parquet").to_pylist()
    assert len(rows) == 6
    assert [(r["task_id"], r["return"]) for r in rows if r["organisation"] == "collective"] == [("task-0", 0.3), ("task-1", 0.5)]
    curves = (tmp_path / "curves.csv").read_text().splitlines()
    assert curves[0] == "organisation,seed,time_s,mean,low,high"
    assert len(curves) == 1 + 3 * 11  # 0, 1, ... 10 s of three organisations
    before, after = (read_rollouts(tmp_path / f"timeline_{when}")[0] for when in ("before", "after"))
    assert before.key == after.key
    assert (before.return_, after.return_) == (0.0, 0.5)


def test_the_same_results_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_comparison(tmp_path / name, grid(), PARAMS)
    files = sorted(path.relative_to(tmp_path / "a") for path in (tmp_path / "a").rglob("*") if path.is_file())
    assert len(files) == 12
    assert all((tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes() for file in files)


def test_the_timeline_shows_a_median_rollout_and_not_the_best() -> None:
    assert typical([earning(0, (1.0, 0.9)), earning(1, (1.0, 0.1)), earning(2, (1.0, 0.5))]) == 2


def test_headline_and_table_show_the_same_means() -> None:
    summary = summarise(results(), CONFIG)
    assert headline(summary)["collective-0"]["return"] == pytest.approx(0.4)
    assert headline(summary)["crossing_s"] == 4.0
    out = io.StringIO()
    print_table(summary, Console(file=out))
    assert "0.400 [0.300, 0.500]" in out.getvalue()
    assert "overtakes trained solo at 4.0 s [4.0, 4.0]" in out.getvalue()


def test_without_a_solo_policy_nothing_is_said_about_overtaking() -> None:
    out = io.StringIO()
    print_table(summarise({key: r for key, r in results().items() if key[0] != "solo"}, CONFIG), Console(file=out))
    assert "nothing to overtake" in out.getvalue() and "overtakes" not in out.getvalue()


def test_organisations_can_be_chosen_and_one_must_be_left() -> None:
    assert [o.name for o in organisations(["collective", "solo"], ["solo", "base"])] == ["base", "solo"]
    with pytest.raises(ConfigError, match=r"organisations solo is there.*got modes collective; change evaluation\.organisations"):
        organisations(["collective"], ["solo"])


def test_organisations_need_their_policy_and_share_every_seed() -> None:
    assert {o.policy for o in organisations(["solo"], EVERY)} == {"base", "solo", "scripted"}
    shown = ["base", "collective", "alone", "solo", "scrambled", "mute"]
    assert {o.name for o in organisations(["collective", "solo"], shown)} == set(shown)
    params = tiny_params()
    by_name = {o.name: arranged(params, o).collective for o in organisations(["collective", "solo"], shown)}
    assert {name: c.max_hires for name, c in by_name.items()} == {
        "base": 8, "collective": 8, "alone": 0, "solo": 0, "scrambled": 8, "mute": 8,
    }  # fmt: skip
    assert by_name["scrambled"].messages == "scrambled" and by_name["mute"].messages == "mute"
    assert [s.key for s in evaluation_specs("e", [], 3, 10.0)] == []
