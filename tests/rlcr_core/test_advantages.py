"""The flat collective advantage and its identities; expected values by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.advantages import group_advantages, permute_advantages, scale_advantages
from rlcr_core.errors import ConfigError, DataError
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind

returns = st.floats(-100.0, 100.0, allow_subnormal=False)


def rollout(number, rewards, n_agents=1, turns_each=1, limit_s=10.0):
    """A rollout whose agents each take some turns, with (time_s, value) rewards."""
    turn = [Turn(0, i, i, [2, 3], [4], [-1.0], float(i), i + 1.0, TurnKind.WORK, 0) for i in range(turns_each)]
    return Rollout(
        RolloutKey("r", 0, 0, number), "task", limit_s, seed=0,
        agents=[AgentRecord(a, f"a{a}", 0.0, 0.0) for a in range(n_agents)],
        trajectories={a: list(turn) for a in range(n_agents)},
        events=[Event(time_s, EventType.REWARD, 0, value=value) for time_s, value in rewards],
        stop_reason=StopReason.DEADLINE, end_s=limit_s,
    )  # fmt: skip


def test_one_agent_alone_is_grpo_without_std():
    # Returns 1, 2, 6 have the mean 3, so R - mean = -2, -1, 3.
    assert group_advantages([1.0, 2.0, 6.0]).tolist() == [-2.0, -1.0, 3.0]


def test_the_baseline_is_over_rollouts_however_many_agents_each_has():
    # Returns 1 and 0, mean 1/2. Weighted by agents (1 and 9) the mean would be 0.1 and the advantages 0.9 and -0.1.
    group = [rollout(0, [(5.0, 1.0)], n_agents=1), rollout(1, [], n_agents=9)]
    assert group_advantages([r.return_ for r in group]).tolist() == [0.5, -0.5]


def test_a_silent_agent_leaves_the_baseline_unchanged():
    quiet = rollout(0, [(5.0, 1.0)], n_agents=2)
    quiet.trajectories[1] = []
    alone = rollout(0, [(5.0, 1.0)], n_agents=1)
    other = rollout(1, [(1.0, 0.5)])
    # Returns 1 and 1/2, mean 3/4.
    for group in ([quiet, other], [alone, other]):
        assert group_advantages([r.return_ for r in group]).tolist() == [0.25, -0.25]


@pytest.mark.parametrize("turns_each", [1, 8])
def test_a_return_is_a_sum_by_the_deadline_not_a_mean_per_turn(turns_each):
    # 0.25 + 0.5 at the deadline itself count, 4 after it does not: 0.75. With the sibling's 0.25 the mean is 0.5.
    first = rollout(0, [(2.0, 0.25), (10.0, 0.5), (10.5, 4.0)], n_agents=3, turns_each=turns_each)
    second = rollout(1, [(2.0, 0.25)], turns_each=1)
    assert group_advantages([first.return_, second.return_]).tolist() == [0.25, -0.25]


@given(value=returns, n=st.integers(1, 70))
def test_equal_returns_give_exactly_zero(value, n):
    # 0.1 three times is the classic: its float mean is 0.10000000000000002 and leaves a residue of -1.4e-17.
    for size, number in ((n, value), (3, 0.1)):
        advantages_G = group_advantages([number] * size)
        assert advantages_G.tolist() == [0.0] * size
        for scale in ("none", "batch", "group"):
            assert scale_advantages([advantages_G], scale, 1e-8)[0].tolist() == [0.0] * size


@given(values=st.lists(returns, min_size=1, max_size=16), seed=st.integers(0, 2**32 - 1))
def test_advantages_sum_to_zero_and_follow_a_permutation_bit_for_bit(values, seed):
    order = np.random.default_rng(seed).permutation(len(values))
    advantages_G = group_advantages(values)
    assert abs(advantages_G.sum()) < 1e-11
    assert group_advantages(np.array(values)[order]).tolist() == advantages_G[order].tolist()


GROUPS = [np.array([3.0, -3.0]), np.array([1.0, -1.0])]


@pytest.mark.parametrize(
    ("scale", "floor", "expected"),
    [
        ("none", 0.01, [[3.0, -3.0], [1.0, -1.0]]),
        # One population std of all four: sqrt((9 + 9 + 1 + 1) / 4) = sqrt 5.
        ("batch", 0.01, [[3 / 5**0.5, -3 / 5**0.5], [1 / 5**0.5, -1 / 5**0.5]]),
        # The floor of 10 is above sqrt 5.
        ("batch", 10.0, [[0.3, -0.3], [0.1, -0.1]]),
        # Stds 3 and 1: differences between tasks are gone.
        ("group", 0.01, [[1.0, -1.0], [1.0, -1.0]]),
        # The floor of 2 holds the second group only.
        ("group", 2.0, [[1.0, -1.0], [0.5, -0.5]]),
    ],
)
def test_scales(scale, floor, expected):
    scaled = scale_advantages(GROUPS, scale, floor)
    assert [array.tolist() for array in scaled] == [pytest.approx(row, rel=1e-15) for row in expected]
    assert GROUPS[0].tolist() == [3.0, -3.0]  # the input is left alone


def test_groups_of_different_size_are_allowed():
    # Population variance of 2, -1, -1, 0, 0 is 6 / 5.
    scaled = scale_advantages([np.array([2.0, -1.0, -1.0]), np.array([0.0, 0.0])], "batch", 0.01)
    assert scaled[0].tolist() == pytest.approx([2 / 1.2**0.5, -1 / 1.2**0.5, -1 / 1.2**0.5])
    assert scaled[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_returns_that_are_not_finite_are_named(bad):
    with pytest.raises(DataError, match="Rollout 1 of its group"):
        group_advantages([1.0, bad])
    with pytest.raises(DataError, match="Group 1"):
        scale_advantages([np.zeros(2), np.array([0.0, bad])], "none", 0.01)


def test_an_empty_group_and_a_zero_floor_are_refused():
    with pytest.raises(DataError, match="one return per rollout"):
        group_advantages([])
    with pytest.raises(ConfigError, match="scale_floor"):
        scale_advantages(GROUPS, "batch", 0.0)


@given(st.lists(st.lists(returns, min_size=1, max_size=4), min_size=1, max_size=5), st.integers(0, 99))
def test_permuted_advantages_are_the_same_values_in_groups_of_the_same_sizes(groups, seed):
    arrays = [np.asarray(group) for group in groups]
    dealt = permute_advantages(arrays, seed)
    assert [len(group) for group in dealt] == [len(group) for group in groups]
    assert sorted(np.concatenate(dealt)) == sorted(np.concatenate(arrays))
    assert all((a == b).all() for a, b in zip(dealt, permute_advantages(arrays, seed), strict=True))


def test_permuting_moves_advantages_between_groups():
    dealt = permute_advantages([np.zeros(50), np.ones(50)], seed=0)
    # 25 of the 50 ones are expected in the first group; none or all of them has a chance below 1e-28.
    assert 0 < dealt[0].sum() < 50
