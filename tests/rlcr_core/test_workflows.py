"""Efforts to an acceptable result, counted by hand: two turns of 2 s and two tokens each, a reward of 0.25 at 3 s."""

from __future__ import annotations

import math

import numpy as np
import pytest

from rlcr_core.clock import LatencyModel
from rlcr_core.config import LatencyConfig
from rlcr_core.types import Event, EventType, Rollout, StopReason
from rlcr_core.workflows import Effort, censored_median, claimed_effort, effort, oracle_effort, time_to
from tests.support import rollout

# Tokens come at 1, 2, 3 and 4 s: no overhead, no prompt, and two tokens in each turn's 2 s.
LATENCY = LatencyModel(LatencyConfig(turn_overhead_s=0.0, prefill_tps=1.0, decode_tps=1.0))


def earning(*rewards: tuple[float, float], number: int = 0, claims: int = 0, **changes: object) -> Rollout:
    events = [Event(time_s, EventType.REWARD, 0, -1, value) for time_s, value in rewards]
    events += [Event(9.0, EventType.WORK, 0, text="done")] * claims
    return rollout(number=number, events=events, **changes)


def test_one_rollout() -> None:
    """By 3 s the turns of 0 and 2 s have begun, and three tokens are sampled."""
    assert effort(rollout(), 0.25, LATENCY) == Effort(3.0, 2, 3, 0.25)
    late = effort(rollout(), 0.5, LATENCY)
    assert late == Effort(math.inf, 2, 4, 0.25) and not late.is_acceptable


def test_rewards_add_up_and_those_after_the_limit_do_not_count() -> None:
    made = earning((1.0, 0.1), (2.0, 0.2), (11.0, 0.5))
    assert time_to(made, 0.3) == 2.0  # 0.1 + 0.2 is 0.30000000000000004, and 0.3 is reached either way
    assert time_to(made, 0.8) == math.inf


def test_an_oracle_pays_for_all_until_the_first_is_acceptable() -> None:
    """At 1 s each of the two attempts is in its first turn and has sampled one token."""
    attempts = [rollout(), earning((1.0, 0.5), number=1)]
    assert oracle_effort(attempts, 0.25, LATENCY) == Effort(1.0, 2, 2, 0.5)
    assert oracle_effort(attempts, 0.75, LATENCY) == Effort(math.inf, 4, 8, 0.5)


def test_without_an_oracle_claims_decide() -> None:
    """Who stops as solved is handed over then. Else the most claims are, at the limit of 10 s, acceptable or not."""
    solved = earning((1.0, 0.5), number=1, stop_reason=StopReason.SOLVED, end_s=4.0)
    assert claimed_effort([rollout(), solved], 0.5, LATENCY) == Effort(4.0, 4, 8, 0.5)
    modest, boastful = earning((1.0, 0.5), claims=1), earning((2.0, 0.1), number=1, claims=2)
    assert claimed_effort([modest, boastful], 0.5, LATENCY) == Effort(math.inf, 4, 8, 0.1)
    assert claimed_effort([modest, boastful], 0.1, LATENCY).time_s == 10.0


def test_a_median_with_values_beyond_the_limit() -> None:
    options = {"resamples": 200, "confidence": 0.95}
    assert censored_median(np.array([[1.0], [np.inf], [3.0]]), **options).value == 3.0  # type: ignore[arg-type]
    assert censored_median(np.array([[1.0, 2.0], [3.0, 4.0]]), **options).value == 2.5  # type: ignore[arg-type]
    beyond = censored_median(np.array([[1.0], [np.inf]]), **options)  # type: ignore[arg-type]
    # Drawn with replacement, two tasks are twice the finite one in a quarter of the resamples; any other has no finite median.
    assert beyond.value is None and beyond.high is None and beyond.share == pytest.approx(0.25, abs=0.1)
