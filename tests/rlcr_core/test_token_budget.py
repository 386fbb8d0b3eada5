"""Tokens over time, and comparisons at matched tokens, on rollouts written out by hand and played on the derived clock."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.clock import LatencyModel
from rlcr_core.config import LatencyConfig
from rlcr_core.errors import DataError
from rlcr_core.matched_tokens import matched_tokens
from rlcr_core.statistics import Interval
from rlcr_core.token_budget import Spent, at_tokens, return_at_tokens, time_of_tokens, token_times, tokens_curve
from rlcr_core.types import Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tests.rlcr_core.toy import play, toy_params

CLOCK = LatencyModel(toy_params().latency)  # 1 s a turn, 10 prompt tokens a second, 1 sampled token a second


def turn(agent: int, index: int, start_s: float, n: int, end_s: float, prompt: int = 0, tool_s: float = 0.0) -> Turn:
    return Turn(agent, index, 0, (), (7,) * n, (-1.0,) * n, start_s, end_s, TurnKind.WORK, 0, prompt_tokens=prompt, tool_s=tool_s)


def rollout(
    turns: list[Turn], rewards: list[tuple[float, float]], limit_s: float, stop: StopReason = StopReason.DEADLINE, task: str = "t"
) -> Rollout:
    found = Rollout(RolloutKey("hand", 0, 0, 0), task, limit_s, 0, stop_reason=stop, end_s=limit_s)
    for each in turns:
        found.trajectories.setdefault(each.agent, []).append(each)
    found.events = [Event(time_s, EventType.REWARD, 0, value=value) for time_s, value in rewards]
    return found


# Agent 0: start 0, overhead 1, prompt 20 / 10 = 2: reads until 3; speaks 2 tokens at 4 and 5; tool 3: ends at 8.
# Agent 1: start 2, overhead 1: speaks 3 tokens at 4, 5, 6; no tool. Rewards: 0.25 at 6, 0.5 at 8.
HAND = rollout([turn(0, 0, 0, 2, 8, prompt=20, tool_s=3), turn(1, 0, 2, 3, 6)], [(6, 0.25), (8, 0.5)], 10)


def test_tokens_fall_where_the_clock_samples_them() -> None:
    assert token_times(HAND, CLOCK).tolist() == [4, 4, 5, 5, 6]
    assert tokens_curve(HAND, [0, 3.9, 4, 5.5, 6, 99], CLOCK).tolist() == [0, 0, 2, 4, 5, 5]
    assert time_of_tokens(HAND, 3, CLOCK) == time_of_tokens(HAND, 2.5, CLOCK) == 5.0


def test_the_return_at_a_budget_is_what_has_landed_when_its_last_token_is_sampled() -> None:
    # The tool that the tokens at 4 and 5 called lands at 8, when the budget of 5 is long spent (6).
    spent = at_tokens(HAND, [0, 4, 5], CLOCK)
    assert spent == (Spent(0.0, 0.0, True), Spent(5.0, 0.0, True), Spent(6.0, 0.25, True))
    assert return_at_tokens(HAND, 5, CLOCK) == (0.25, True)


def test_a_rollout_that_ends_before_its_budget_says_so() -> None:
    assert return_at_tokens(HAND, 6, CLOCK) == (0.75, False)
    assert time_of_tokens(HAND, 6, CLOCK) == math.inf  # the deadline: a longer limit would have spent more
    solved = rollout(HAND.turns(), [(6, 0.25), (8, 0.5)], 10, StopReason.SOLVED)
    solved.end_s = 8.0
    assert at_tokens(solved, [6], CLOCK) == (Spent(8.0, 0.75, False),)


def test_budgets_and_rollouts_that_mean_nothing_are_refused() -> None:
    for budget in (-1.0, math.inf, math.nan):
        with pytest.raises(DataError, match="finite number of tokens"):
            at_tokens(HAND, [budget], CLOCK)
    with pytest.raises(DataError, match="exclude failed rollouts"):
        at_tokens(rollout([], [], 10, StopReason.FAILED), [1], CLOCK)


SCRIPTS = {
    "chief": ["hire .", "hire .", "dig 3 .", "post key red .", "dig 7 .", "dig 5 ."],
    "ann": ["dig 2 .", "dm chief key 7 .", "dig 4 .", "dig 9 ."],
    "bob": ["wait .", "dig 1 .", "read all .", "dig 6 ."],
}


PARAMS = {capacity: toy_params(latency={"shared_capacity": capacity}) for capacity in (0, 1)}


@settings(max_examples=25, deadline=None)
@given(st.floats(0.5, 60), st.sampled_from(sorted(PARAMS)))
def test_the_curve_is_what_a_deadline_at_that_time_would_have_kept(limit_s: float, capacity: int) -> None:
    """The players do not look at the clock, so a rollout under a shorter limit is the beginning of the longer one."""
    params = PARAMS[capacity]
    clock = LatencyModel(params.latency)
    whole, short = play(SCRIPTS, 60.0, params)[0], play(SCRIPTS, limit_s, params)[0]
    kept = sum(each.n_tokens for each in short.turns())
    # A turn that the whole rollout's own deadline cut has its last tokens up to one token late.
    assert kept - 3 * (limit_s > 50) <= tokens_curve(whole, [limit_s], clock)[0] <= kept
    assert whole.return_at(limit_s) == short.return_


def line(task: str, rate: int, n: int, limit_s: float, reward: float = 0.1) -> Rollout:
    """One agent that speaks one token a second from 1 s on and earns `reward` with every `rate`-th of its n tokens."""
    rewards = [(1.0 + k, reward) for k in range(rate, n + 1, rate)]
    return rollout([turn(0, 0, 0, n, 1.0 + n)], rewards, limit_s, task=task)


def test_a_comparison_at_matched_tokens_by_hand() -> None:
    # Collective, limit 11 s, 10 tokens in both tasks: a reward of 0.1 every 2nd token: 0.5 at 11 s.
    # Single, limit 61 s, 60 tokens: a reward every 5th. At 10 tokens (11 s): 0.2. Score 0.5 at token 25: 26 s.
    # Equal tasks: intervals have no width. Time ratio at tokens 11 / 11 = 1, at score 26 / 11.
    tasks = ("x", "y")
    found = matched_tokens([line(t, 2, 10, 11.0) for t in tasks], [line(t, 5, 60, 61.0) for t in tasks], CLOCK, step_s=1.0)
    assert found.tokens == Interval(10.0, 10.0, 10.0)
    for interval, value in ((found.collective_return, 0.5), (found.single_return, 0.2), (found.difference, 0.3)):
        assert (interval.mean, interval.low, interval.high) == pytest.approx((value, value, value))
    assert (found.time_at_tokens_s.value, found.time_at_tokens_s.high) == (11.0, 11.0)
    assert (found.time_ratio_at_tokens.value, found.time_ratio_at_tokens.low) == (1.0, 1.0)
    assert (found.at_score.time_a_s, found.at_score.time_b_s) == (11.0, 26.0)
    assert (found.at_score.value, found.at_score.low, found.at_score.high) == pytest.approx((26 / 11,) * 3)
    assert found.spent_share == 1.0


def test_every_pair_of_a_tasks_rollouts_counts_once() -> None:
    # Task x: budgets 4 and 8 against singles that earn every 2nd and every 4th token: returns .2 .1 and .4 .2, mean .225,
    # times 5, 5, 9, 9. Task y: budget 8 against one that earns every 8th: 0.1 at 9 s. Means: .1625, (7 + 9) / 2 = 8.
    collective = [line("x", 2, 4, 11.0), line("x", 2, 8, 11.0), line("y", 2, 8, 11.0)]
    single = [line("y", 8, 60, 61.0), line("x", 2, 60, 61.0), line("x", 4, 60, 61.0)]
    found = matched_tokens(collective, single, CLOCK, step_s=1.0)
    assert found.tokens.mean == 7.0
    assert found.single_return.mean == pytest.approx(0.1625)
    assert found.time_at_tokens_s.value == 8.0
    assert matched_tokens(collective[::-1], single[::-1], CLOCK, step_s=1.0) == found


def test_a_single_agent_cut_before_the_budget_leaves_the_time_open() -> None:
    # Its 6 tokens of 10 by its deadline give 0.1 (a lower bound) in task y, where x spends the budget: half the pairs.
    collective = [line(t, 2, 10, 11.0) for t in "xy"]
    found = matched_tokens(collective, [line("x", 5, 12, 13.0), line("y", 5, 6, 13.0)], CLOCK, step_s=1.0, resamples=4000)
    assert (found.spent_share, found.single_return.mean) == (0.5, pytest.approx(0.15))
    assert (found.time_at_tokens_s.value, found.time_at_tokens_s.low, found.time_at_tokens_s.high) == (None, 11.0, None)
    assert found.time_at_tokens_s.share == pytest.approx(0.25, abs=0.03)  # both draws are task x
    # The mean curve of the single agent ends at 0.15: it never has 0.5, so it takes at least 13 / 11 as long.
    assert (found.at_score.value, found.at_score.high) == (None, None)
    assert (found.at_score.at_least, found.at_score.low) == pytest.approx((13 / 11, 13 / 11))


def test_rollouts_that_cannot_be_compared_are_refused() -> None:
    good = [line(t, 2, 10, 11.0) for t in "xy"]
    for single, match in (
        ([line(t, 2, 10, 11.0) for t in "xz"], "2 in one alone"),
        ([good[0], line("y", 2, 10, 12.0)], "one limit"),
        ([good[0], rollout([], [], 11.0, StopReason.FAILED, "y")], "1 failed"),
        ([], "got 0"),
    ):
        with pytest.raises(DataError, match=match):
            matched_tokens(good, single, CLOCK)
    with pytest.raises(DataError, match="two or more tasks"):
        matched_tokens(good[:1], good[:1], CLOCK)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 4), st.integers(1, 6), st.sampled_from([0.25, 0.5, 2.0, 4.0]))  # exact in nanoseconds and in binary
def test_scaling_time_scales_every_time(fast: int, slow: int, unit: float) -> None:
    def slower(one: Rollout) -> Rollout:
        turns = [turn(0, 0, 0, t.n_tokens, t.end_s * unit, tool_s=t.tool_s * unit) for t in one.turns()]
        return rollout(turns, [(e.time_s * unit, e.value) for e in one.events], one.limit_s * unit, task=one.task_id)

    clock, slow_clock = (
        LatencyModel(LatencyConfig(turn_overhead_s=u, prefill_tps=10.0, decode_tps=1 / u)) for u in (1.0, unit)
    )
    arms = [line(t, fast, 12, 13.0) for t in "xy"], [line("x", slow, 60, 61.0), line("y", slow + 1, 60, 61.0)]
    before = matched_tokens(*arms, clock, step_s=0.5, resamples=50)
    after = matched_tokens(*([slower(one) for one in arm] for arm in arms), slow_clock, step_s=0.5 * unit, resamples=50)
    assert (after.single_return, after.tokens, after.spent_share) == (before.single_return, before.tokens, before.spent_share)
    assert after.time_at_tokens_s.value == pytest.approx(np.multiply(before.time_at_tokens_s.value, unit))
    assert after.time_ratio_at_tokens.value == pytest.approx(before.time_ratio_at_tokens.value)
