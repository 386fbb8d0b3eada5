"""What the grid shows beyond one limit and one family: rows worked out by hand on two tasks."""

from __future__ import annotations

import pytest

from rlcr_core.types import Event, EventType, Rollout
from tasks.evidence import attempts, families, limits, matched, points, time_curve, token_curves
from tasks.grid import MAIN
from tests.support import changed, rollout, tiny_params

PARAMS = changed(
    tiny_params(),
    {
        "evaluation": {
            "organisations": ["collective", "solo", "solo_long", "attempts"], "swept": ["collective", "solo"], "limits_s": [4.0],
            "limit_s": 10.0, "bootstrap_resamples": 200, "attempts": 2, "long_factor": 2.0,
        }
    },
)  # fmt: skip
CONFIG = PARAMS.evaluation


def earning(task: int, limit_s: float, *rewards: tuple[float, float], number: int = 0) -> Rollout:
    """Two turns of 2 s with two tokens each, from 0 to 4 s; (time, reward) pairs; the deadline at the limit."""
    events = [Event(time_s, EventType.REWARD, 0, -1, value) for time_s, value in rewards]
    events += [Event(time_s, EventType.WORK, 0, -1, value, "done units=1") for time_s, value in rewards]
    return rollout(task, number, events=events, limit_s=limit_s, end_s=limit_s)


GRID = {
    # The collective earns 0.2 at 3 s and 0.4 more at 8 s in both tasks; told 4 s it earns 0.3 at 2 s.
    ("collective", 10.0, MAIN, 0): [earning(t, 10.0, (3.0, 0.2), (8.0, 0.4)) for t in (0, 1)],
    ("collective", 4.0, MAIN, 0): [earning(t, 4.0, (2.0, 0.3)) for t in (0, 1)],
    ("collective", 10.0, "separable", 0): [earning(t, 10.0, (3.0, 0.5)) for t in (0, 1)],
    ("solo", 10.0, MAIN, 0): [earning(t, 10.0, (1.0, 0.1)) for t in (0, 1)],
    ("solo", 10.0, "separable", 0): [earning(t, 10.0, (1.0, 0.4)) for t in (0, 1)],
    # Under 20 s solo earns 0.2 at 6 s and 0.6 in all at 16 s.
    ("solo_long", 10.0, MAIN, 0): [earning(t, 20.0, (6.0, 0.2), (16.0, 0.4)) for t in (0, 1)],
    ("attempts", 10.0, MAIN, 0): [
        earning(t, 10.0, *(((2.0, 0.05 * (n + 1)),) * (n + 1)), number=n) for t in (0, 1) for n in (0, 1)
    ],
}


def test_fresh_and_rescored_returns_at_a_shorter_limit() -> None:
    (row,) = limits(GRID, CONFIG)  # solo was not run under 4 s
    assert (row["organisation"], row["limit_s"]) == ("collective", 4.0)
    assert (row["fresh_mean"], row["rescored_mean"]) == (pytest.approx(0.3), pytest.approx(0.2))  # 0.2 had come by 4 s
    assert row["difference_mean"] == pytest.approx(0.1)


def test_families_beside_the_test_tasks() -> None:
    rows = {(row["family"], row["organisation"]): row for row in families(GRID, CONFIG)}
    assert set(rows) == {(f, o) for f in (MAIN, "separable") for o in ("collective", "solo")}
    assert rows[MAIN, "solo"]["behind_mean"] == pytest.approx(0.5)  # 0.6 - 0.1
    assert rows["separable", "solo"]["behind_mean"] == pytest.approx(0.1)  # 0.5 - 0.4
    assert "behind_mean" not in rows[MAIN, "collective"]


def test_attempts_by_an_oracle_and_by_their_claims() -> None:
    (row,) = attempts(GRID, CONFIG)
    # The first attempt earns 0.05 in one call, the second 0.1 in each of two: means (0.05 + 0.2) / 2.
    assert (row["one_mean"], row["oracle_mean"], row["claimed_mean"]) == tuple(pytest.approx(x) for x in (0.125, 0.2, 0.2))
    assert row["collective_minus_oracle_mean"] == pytest.approx(0.4)
    assert row["tokens"] == 8.0  # two attempts of four tokens


def test_a_single_agent_with_the_same_tokens_and_with_the_same_score() -> None:
    (row,) = matched(GRID, PARAMS)
    # The collective's four tokens are spent by the single agent's second turn, at 4 s, before its first reward.
    assert row["tokens_mean"] == 4.0 and row["return_mean"] == 0.0
    assert row["behind_mean"] == pytest.approx(0.6)
    assert row["time_ratio_at_tokens_mean"] == pytest.approx(0.4)  # 4 s of the collective's 10
    # 0.6 is reached at 16 s, and by the collective at 8 s.
    assert row["time_ratio_at_score_mean"] == pytest.approx(2.0)


def test_the_time_ratio_grows_with_the_score() -> None:
    rows = time_curve(GRID, CONFIG)
    by_score = {round(row["score"], 2): row["mean"] for row in rows}
    assert by_score[0.18] == pytest.approx(2.0)  # 0.2 comes at 3 s and at 6 s
    assert by_score[0.6] == pytest.approx(2.0)


def test_points_that_no_other_beats() -> None:
    rows = {(row["organisation"], row["limit_s"]): row for row in points(GRID, CONFIG)}
    # 0.6 by 10 s is the best; 0.3 by 4 s the earliest; solo's 0.1 by 10 s is beaten by both.
    assert {key: row["is_best"] for key, row in rows.items()} == {
        ("collective", 10.0): True, ("collective", 4.0): True, ("solo", 10.0): False,
    }  # fmt: skip


def test_return_against_tokens_ends_at_all_of_them() -> None:
    rows = [row for row in token_curves(GRID, PARAMS) if row["organisation"] == "collective"]
    assert (rows[0]["tokens"], rows[0]["return"]) == (0.0, 0.0)
    assert (rows[-1]["tokens"], rows[-1]["return"]) == (4.0, pytest.approx(0.6))
