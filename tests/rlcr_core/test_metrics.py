"""Metrics of a rollout of three agents computed on paper, and the keys' form. The other signs: test_signs_by_hand.

The written-out rollout A (task t, limit 20 s, group 0, rollout 0; it ends at the deadline, end_s = 20):

| agent | turns (kind, sampled tokens)                   | tokens |
|-------|------------------------------------------------|--------|
| 0 CEO | roster 1, roster 1, work 4, talk 3, work 2 cut | 11     |
| 1     | work 4, talk 3, wait 1                         | 8      |
| 2     | invalid 2, work 3                              | 5      |

Tokens: 24 in 10 turns; work 4 + 2 + 4 + 3 = 13, talk 6, roster 2, wait 1, invalid 2; 1 of 10 turns is cut.
Hires at 2 s and 4 s; agent 2 is fired at 18 s. Rewards: 0.25 at 9 s, 0.5 at 12 s, 0.125 at exactly 20 s; 8.0 at
20.5 s is after the limit. Return = 0.875. Work calls: 4, one duplicate, one failed, one with a received key.
Messages: 3, judged true, false, and not judged.

The second rollout B (group 0, rollout 1): the CEO alone, one work turn of 2 tokens, solved at 5 s with return 0.375.
"""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.metrics import (
    iteration_metrics,
    return_curve,
    team_size_bucket,
    work_result,
)
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind

W, K, R, A, X = TurnKind.WORK, TurnKind.TALK, TurnKind.ROSTER, TurnKind.WAIT, TurnKind.INVALID


def trajectory(agent: int, *turns: tuple[TurnKind, int]) -> list[Turn]:
    return [Turn(agent, i, i, [1, 2], [3] * n, [-0.5] * n, float(i), i + 1.0, kind, 0) for i, (kind, n) in enumerate(turns)]


def rollout_a() -> Rollout:
    trajectories = {
        0: trajectory(0, (R, 1), (R, 1), (W, 4), (K, 3), (W, 2)),
        1: trajectory(1, (W, 4), (K, 3), (A, 1)),
        2: trajectory(2, (X, 2), (W, 3)),
    }
    trajectories[0][4].cut = True
    agents = [AgentRecord(0, "ada", 0, 0), AgentRecord(1, "bob", 2, 5), AgentRecord(2, "cy", 4, 7, fired_s=18)]
    rewards = [(9.0, 0.25), (12.0, 0.5), (20.0, 0.125), (20.5, 8.0)]
    work = ["done duplicate=0 received_key=0", "dup duplicate=1", "bad failed=1", "done received_key=1 units=2"]
    events = [Event(time_s, EventType.REWARD, 0, value=value) for time_s, value in rewards]
    events += [Event(8.0 + i, EventType.WORK, 0, text=text) for i, text in enumerate(work)]
    events += [Event(6.0, EventType.MESSAGE, 0, 1, value, "x k") for value in (1.0, 0.0, -1.0)]
    return Rollout(RolloutKey("run", 3, 0, 0), "t", 20.0, 1, agents, trajectories, events, StopReason.DEADLINE, end_s=20.0)


def rollout_b() -> Rollout:
    events = [Event(5.0, EventType.REWARD, 0, value=0.375), Event(5.0, EventType.WORK, 0, text="done")]
    agents = [AgentRecord(0, "ada", 0, 0)]
    return Rollout(
        RolloutKey("run", 3, 0, 1),
        "t",
        20.0,
        2,
        agents,
        {0: trajectory(0, (W, 2))},
        events,
        StopReason.SOLVED,
        end_s=5.0,
    )


def plain(group: int, rollout: int, value: float, end_s: float = 20.0, stop: StopReason = StopReason.DEADLINE) -> Rollout:
    events = [Event(1.0, EventType.REWARD, 0, value=value)]
    return Rollout(
        RolloutKey("run", 3, group, rollout), "t", 20.0, 3, [AgentRecord(0, "ada", 0, 0)], {0: []}, events, stop, end_s
    )


# Derived in the table above; rates are pooled over both rollouts: 25 s in all.
EXPECTED = {
    "reward/return_mean": 0.625,  # (0.875 + 0.375) / 2
    "reward/return_std": 0.25,  # both are 0.25 from the mean
    "reward/return_min": 0.375,
    "reward/return_max": 0.875,
    "reward/group_std": 0.25,  # one group
    "reward/zero_variance_groups": 0.0,
    "roster/hires": 1.0,  # (2 + 0) / 2
    "roster/fires": 0.5,
    "roster/time_of_first_hire_s": 2.0,  # only A hires
    "work/useful_tokens": 7.5,  # (13 + 2) / 2
    "work/useful_tokens_per_s": 0.6,  # 15 / 25
    "work/useful_tps_hires_0": 0.4,  # B: 2 / 5
    "work/useful_tps_hires_1_2": 0.65,  # A: 13 / 20
    "work/calls": 2.5,  # (4 + 1) / 2
    "work/duplicate_share": 0.2,  # 1 of 5
    "work/failed_share": 0.2,
    "work/received_key_share": 0.2,
    "work/received_key_mean": 0.5,  # (1 + 0) / 2
    "talk/messages": 1.5,  # (3 + 0) / 2
    "talk/true_share": 0.5,  # 1 of the 2 that were judged
    "talk/intensity_tps": 0.24,  # 6 / 25
    "tokens/total": 26.0,  # 24 + 2
    "tokens/per_rollout": 13.0,
    "tokens/share_work": 15 / 26,
    "tokens/share_talk": 6 / 26,
    "tokens/share_roster": 2 / 26,
    "tokens/share_wait": 1 / 26,
    "tokens/share_invalid": 2 / 26,
    "turns/total": 11.0,  # 10 + 1
    "turns/cut_share": 1 / 11,
    "time/limit_s": 20.0,
    "time/end_s": 12.5,  # (20 + 5) / 2
    "stop/deadline": 1.0,
    "stop/solved": 1.0,
    "stop/stalled": 0.0,
    "stop/failed": 0.0,
}


def test_the_metrics_of_the_written_out_rollouts() -> None:
    found = iteration_metrics([rollout_a(), rollout_b()])
    assert {key: found[key] for key in EXPECTED} == pytest.approx(EXPECTED)


def test_the_prefix_stands_before_every_key() -> None:
    found = iteration_metrics([rollout_a(), rollout_b()])
    assert iteration_metrics([rollout_a(), rollout_b()], "all") == {f"all/{key}": value for key, value in found.items()}
    assert iteration_metrics([rollout_a()], "all/").keys() == iteration_metrics([rollout_a()], "all").keys()


def test_metrics_without_a_denominator_are_absent() -> None:
    empty = plain(0, 0, 0.5, end_s=0.0)  # no turn, no call, no message, no second
    absent = {key for key in EXPECTED if key.split("/")[1].startswith(("share_", "useful_t"))} - {"work/useful_tokens"}
    absent |= {"roster/time_of_first_hire_s", "turns/cut_share", "talk/true_share", "talk/intensity_tps"}
    absent |= {f"work/{name}_share" for name in ("duplicate", "failed", "received_key")}
    assert set(EXPECTED) - set(iteration_metrics([empty])) == absent
    assert iteration_metrics([]) == {}


def test_spread_is_measured_inside_groups() -> None:
    # Group 0: 0.1 and 0.1 (no spread, exactly), group 1: 0 and 1 (0.5). Mean of the two 0.25; one of two has none.
    # All four together: mean 0.3, squares .04 .04 .09 .49, variance 0.66 / 4 = 0.165.
    found = iteration_metrics([plain(0, 0, 0.1), plain(0, 1, 0.1), plain(1, 0, 0.0), plain(1, 1, 1.0)])
    assert found["reward/group_std"] == pytest.approx(0.25)
    assert found["reward/zero_variance_groups"] == 0.5
    assert found["reward/return_std"] == pytest.approx(0.165**0.5)


def test_dropping_bad_rollouts_raises_the_trained_metric_and_not_the_one_over_all() -> None:
    everyone = [plain(0, 0, 1.0), plain(0, 1, 0.0), plain(0, 2, 0.0), plain(0, 3, 0.0)]
    both = iteration_metrics(everyone, "all") | iteration_metrics(everyone[:2], "trained")
    assert both["all/reward/return_mean"] == 0.25  # 1 / 4
    assert both["trained/reward/return_mean"] == 0.5  # 1 / 2: a reader who sees both is not misled


def test_every_key_is_accepted_by_mlflow() -> None:
    from mlflow.entities import Metric
    from mlflow.utils.validation import _validate_metric

    big = plain(1, 0, 0.5)
    big.agents = [AgentRecord(i, f"a{i}", 0, 0) for i in range(10)]  # the open bucket of team sizes too
    found = iteration_metrics([rollout_a(), rollout_b(), big], "all")
    assert "all/work/useful_tps_hires_9_up" in found
    for key, value in found.items():
        metric = Metric(key, value, 0, 0)
        _validate_metric(metric.key, metric.value, metric.timestamp, metric.step)


def test_the_return_is_the_sum_by_the_deadline_and_can_be_scored_at_an_earlier_limit() -> None:
    rollout = rollout_a()
    # 0.25 at 9 s, 0.5 at 12 s, 0.125 at exactly the limit; 8.0 comes half a second too late.
    assert rollout.return_ == 0.875
    assert [rollout.return_at(t) for t in (8.999, 9.0, 11.9, 12.0, 19.999, 20.0)] == [
        0.0,
        0.25,
        0.25,
        0.75,
        0.75,
        0.875,
    ]


def test_the_return_is_one_number_a_rollout_however_the_work_is_cut_into_turns() -> None:
    few, many = rollout_b(), rollout_b()
    many.trajectories[0] = trajectory(0, *[(W, 1)] * 30)
    assert few.return_ == many.return_ == 0.375


def test_the_return_curve_steps_at_each_reward_and_is_flat_after_the_limit() -> None:
    grid = np.array([0.0, 8.9, 9.0, 12.0, 20.0, 20.5, 100.0])
    assert return_curve(rollout_a(), grid).tolist() == [0.0, 0.0, 0.25, 0.75, 0.875, 0.875, 0.875]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(-8, 8)), max_size=8), st.lists(st.integers(0, 30), min_size=1))
def test_the_return_curve_is_the_return_at_each_time(rewards: list[tuple[int, int]], grid: list[int]) -> None:
    rollout = plain(0, 0, 0.0)
    rollout.events += [Event(float(time_s), EventType.REWARD, 0, value=value / 8) for time_s, value in rewards]
    # Eighths add without rounding, so equality is exact in any order of summation.
    assert return_curve(rollout, np.array(grid, float)).tolist() == [rollout.return_at(min(t, 20.0)) for t in grid]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("done duplicate=1 received_key=0.5", ("done", {"duplicate": 1.0, "received_key": 0.5})),
        ("bad mod_3 k7 failed=1", ("bad", {"failed": 1.0})),
        ("", ("", {})),
    ],
)
def test_work_events_carry_a_code_and_facts(text: str, expected: tuple[str, dict[str, float]]) -> None:
    assert work_result(text) == expected


def test_a_fact_without_a_number_is_refused() -> None:
    with pytest.raises(DataError, match="gives duplicate the value 'yes'"):
        work_result("done duplicate=yes")


def test_team_sizes_fall_into_their_buckets() -> None:
    buckets = [team_size_bucket(n) for n in range(10)]
    assert buckets == ["0", "1_2", "1_2", "3_4", "3_4", "5_8", "5_8", "5_8", "5_8", "9_up"]


def test_metrics_import_without_torch() -> None:
    code = "import sys, rlcr_core.metrics, rlcr_core.statistics; sys.exit(bool({'torch', 'mlflow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
