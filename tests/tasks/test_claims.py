"""The table of claims: figures by seed and verdicts by hand; a verdict only where the whole interval lies on one side."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from rlcr_core.config import load_params
from rlcr_core.errors import ConfigError, DataError
from rlcr_core.statistics import Interval
from tasks.claims import all_claims, crossing_of_seed
from tasks.claims_data import StudyResults, first_tenth, last_tenth
from tasks.claims_page import page, write_claims
from tasks.figures import Curve, Run
from tasks.paths import Project
from tasks.studies import growth, studies
from tasks.verdicts import above, around, below, indifferent, judge, no_gain
from tests.support import ROOT, changed, tiny_params

TIMES = np.array([0.0, 10.0, 20.0, 30.0])


def run(mode: str, seed: int, **columns: list[float]) -> Run:
    n = len(next(iter(columns.values())))
    named = {key.replace("__", "/"): np.asarray(values) for key, values in columns.items()}
    return Run(mode, seed, {"iteration": np.arange(n, dtype=float), **named})


def curve(name: str, seed: int, *means: float) -> Curve:
    values = np.asarray(means)
    return Curve(name, seed, TIMES, values, values, values)


def study(name: str, hires: list[list[float]], returns: dict[str, list[list[float]]]) -> StudyResults:
    """Hires by iteration for each seed, and returns [seed][task] for each organisation."""
    runs = [run("collective", seed, roster__hires=values) for seed, values in enumerate(hires)]
    rows: dict[str, list[object]] = {key: [] for key in ("organisation", "limit_s", "family", "seed", "task_id", "return")}
    for organisation, by_seed in returns.items():
        for seed, values in enumerate(by_seed):
            for task, value in enumerate(values):
                for key, cell in zip(rows, (organisation, 30.0, "test", seed, f"t{task}", value), strict=True):
                    rows[key].append(cell)
    curves = {("collective", s): curve("collective", s, 0.0, 0.1, 0.5, 0.9) for s in range(len(hires))}
    curves |= {("solo", s): curve("solo", s, 0.0, 0.2, 0.3, 0.3) for s in range(len(hires))}
    return StudyResults(name, tuple(runs), {"limit_s": 30.0, "evidence": {}}, rows, curves)


RISING = [[0.0] * 10 + [5.0] * 9 + [6.0 + s / 10] for s in range(3)]  # 20 iterations: a tenth is two of them
MAIN = study("base-0", RISING, {"collective": [[0.5, 0.6]] * 3, "solo": [[0.1, 0.2]] * 3, "silent": [[0.5, 0.6]] * 3})
FLAT = study("no_pressure", [[7.0] * 20, [7.1] * 20, [6.9] * 20], {"collective": [[1.0, 1.0]] * 3})


def test_tenths_leave_out_what_was_not_measured() -> None:
    values = np.array([np.nan, 2.0] + [9.0] * 16 + [4.0, 6.0])
    assert (first_tenth(values), last_tenth(values)) == (2.0, 5.0)
    assert np.isnan(first_tenth(np.array([np.nan, np.nan])))


def test_a_verdict_needs_the_whole_interval() -> None:
    narrow, wide = Interval(3.9, 3.5, 4.3), Interval(3.9, 1.0, 7.0)
    assert judge([narrow], *above(3.0)) == "holds" and judge([narrow], *below(3.0)) == "does not hold"
    assert judge([narrow], *above(4.0)) == "cannot tell"
    assert judge([narrow, Interval(2.0, 1.9, 2.1)], *above(3.0)) == "cannot tell"  # two bases disagree
    assert judge([], *above(0.0)) == "cannot tell"
    assert judge([narrow], *around(4.0)) == "holds" and judge([wide], *around(4.0)) == "cannot tell"
    assert judge([Interval(2.0, 1.5, 2.5)], *around(4.0)) == "does not hold"
    small = Interval(0.0, -0.5, 0.5)
    assert judge([small], *indifferent(1.0)) == "holds" and judge([small], *indifferent(0.4)) == "cannot tell"
    assert judge([Interval(-0.1, -0.2, 0.01)], *no_gain(0.02)) == "holds"
    assert judge([Interval(0.0, -0.2, 0.2)], *no_gain(0.02)) == "cannot tell"  # a wide interval shows no absence


def test_hires_under_pressure_and_without() -> None:
    rows = {claim.id: claim for claim in all_claims({"base-0": MAIN, "no_pressure": FLAT}, None)["claims"]}
    # Last tenth minus first: (5 + 6)/2, (5 + 6.1)/2, (5 + 6.2)/2 = 5.5, 5.55, 5.6; std 0.05, t(2) = 4.303:
    # 5.55 +- 4.303 * 0.05 / sqrt(3) = 5.55 +- 0.12.
    assert rows["deadline"].measured[0] == "base-0: hires +5.55 [+5.43, +5.67] over training"
    assert rows["deadline"].verdict == "holds"


def test_the_crossing_is_where_the_lead_stays() -> None:
    assert crossing_of_seed(MAIN, 0) == 20.0  # behind at 10 s (0.1 against 0.2), ahead from 20 s on
    rows = {claim.id: claim for claim in all_claims({"base-0": MAIN}, None)["claims"]}
    assert rows["overtakes"].verdict == "holds" and "ahead from 20.0 [20.0, 20.0] s on" in rows["overtakes"].measured[0]


def test_what_was_not_run_is_not_claimed() -> None:
    found = all_claims({"base-0": MAIN}, None)
    rows = {claim.id: claim for section in found.values() for claim in section}
    assert rows["larger"].measured == ("not measured: python -m flows.city",) and rows["larger"].verdict == "cannot tell"
    assert rows["growing"].verdict == "cannot tell" and rows["four-times"].verdict == "cannot tell"
    assert "no-parallel" not in rows and "mute" not in rows
    assert rows["silent"].verdict == "cannot tell"  # equal returns: the interval is [0, 0] and not above zero


def test_a_metric_that_a_seed_lacks_gives_no_interval() -> None:
    rows = {claim.id: claim for claim in all_claims({"base-0": MAIN}, None)["claims"]}
    assert rows["talk"].measured == () and rows["talk"].verdict == "cannot tell"


def test_the_page_names_every_study_and_says_what_is_missing() -> None:
    params = load_params(ROOT / "params.yaml")
    every = studies(params)
    text = page(every, {"base-0": MAIN}, all_claims({"base-0": MAIN}, None), params)
    assert all(f"| {study.name} |" in text for study in every)
    assert text.count("not run") == len(every) - 1
    for line in text.splitlines():
        if line.startswith("|"):
            assert line.count("|") - line.count("\\|") in (5, 6)  # four or five columns: no cell breaks the table


def test_without_results_the_command_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"run `python -m flows\.claims` without --table"):
        write_claims(Project(tmp_path), tiny_params(), studies(tiny_params()))


def test_every_study_is_a_sound_parameter_file_and_differs_as_it_says() -> None:
    params = load_params(ROOT / "params.yaml")
    own = {study.name: study.params(params, ROOT) for study in studies(params)}
    assert own["no_parallel"].task_set.parallel_share == 0.0 and own["no_coupling"].task_set.coupling == 0.0
    assert own["permuted"].update.control == "permuted" and own["base-0"].update.control == "none"
    assert own["short_limit"].schedule.kind == "constant" and own["short_limit"].evaluation.limit_s == 16.0
    assert own["base-1"].base.seed == 1 and all(p.rollouts.workers == 1 for p in own.values())
    assert {p.train.iterations for n, p in own.items() if n != "no_pressure"} == {params.claims.iterations}


def test_the_growing_limit_is_squeezed_into_fewer_iterations() -> None:
    params = load_params(ROOT / "params.yaml")
    fewer = changed(params, {"claims": {"iterations": 30}})  # half of 60: the points at 0, 6 and 46 move to 0, 3 and 23
    assert growth(fewer)["points"] == [[0, 16.0], [3, 16.0], [23, 84.0]]


def test_two_seeds_at_least_are_asked_for() -> None:
    with pytest.raises(ConfigError, match=r"claims\.seeds"):
        changed(tiny_params(), {"claims": {"seeds": [0]}})
    assert json.dumps(tiny_params().claims.model_dump(mode="json"))
