"""Stored rollouts re-scored at earlier limits."""

from __future__ import annotations

import pytest

from rlcr_core.errors import DataError
from rlcr_core.rescoring import returns_at_limits
from rlcr_core.types import Event, EventType, Rollout, RolloutKey, StopReason


def rollout(
    task: str, rewards: list[tuple[float, float]], limit_s: float = 20.0, stop: StopReason = StopReason.DEADLINE
) -> Rollout:
    events = [Event(time_s, EventType.REWARD, 0, value=value) for time_s, value in rewards]
    return Rollout(RolloutKey("hand", 0, 0, 0), task, limit_s, 0, events=events, stop_reason=stop, end_s=limit_s)


def test_returns_at_earlier_limits_are_means_of_each_task() -> None:
    # b: 0.25 at 5 s and 0.5 at 10 s, and a second rollout with 1 at 20 s; a: nothing until 12 s. Rewards at a limit count.
    rollouts = [rollout("b", [(5, 0.25), (10, 0.5)]), rollout("a", [(12, 0.5)]), rollout("b", [(20, 1.0)])]
    tasks, returns = returns_at_limits(rollouts, [4.0, 5.0, 12.0, 20.0])
    assert tasks == ("a", "b")
    assert returns.tolist() == [[0.0, 0.0, 0.5, 0.5], [0.0, 0.125, 0.375, 0.875]]


@pytest.mark.parametrize("limits", [[21.0], [-1.0], [float("nan")], []])
def test_limits_that_were_not_observed_are_refused(limits: list[float]) -> None:
    with pytest.raises(DataError, match="re-scored at limits of 0 to 15 s"):
        returns_at_limits([rollout("a", []), rollout("b", [], 15.0)], limits)
    with pytest.raises(DataError, match="got 1 with 1 failed"):
        returns_at_limits([rollout("a", [], stop=StopReason.FAILED)], [1.0])
