"""Picking one of several independent attempts; expected values by hand."""

from __future__ import annotations

import numpy as np
import pytest

from rlcr_core.attempts import (
    by_task,
    claimed_best,
    claimed_returns,
    claims,
    mean_returns,
    oracle_curves,
    oracle_returns,
    total_tokens,
)
from rlcr_core.errors import DataError
from rlcr_core.types import Event, EventType, Rollout
from tests.support import rollout


def attempt(task: int, number: int, *work: tuple[float, str, float]) -> Rollout:
    """An attempt with (time, text of the WORK event, reward)."""
    events = []
    for time_s, text, value in work:
        events.append(Event(time_s, EventType.WORK, 0, -1, value, text))
        if value:
            events.append(Event(time_s, EventType.REWARD, 0, -1, value))
    return rollout(task, number, events=events)


# Task 0: the first attempt claims three calls (two of them without reward) and earned 0.1; the second claims one and
# earned 0.4; its duplicate and its failure are not claimed. Task 1: 0.2 and 0.3, one claim each.
ATTEMPTS = [
    attempt(0, 0, (1.0, "done units=1", 0.1), (2.0, "learned", 0.0), (3.0, "learned", 0.0)),
    attempt(0, 1, (2.0, "done units=1", 0.4), (3.0, "dup duplicate=1", 0.0), (4.0, "bad failed=1", 0.0)),
    attempt(1, 0, (1.0, "done", 0.2)),
    attempt(1, 1, (5.0, "done", 0.3)),
]


def test_an_oracle_takes_the_best_return_and_a_claim_what_was_seen_to_succeed() -> None:
    assert [claims(a) for a in ATTEMPTS] == [3, 1, 1, 1]
    assert oracle_returns(ATTEMPTS).tolist() == [0.4, 0.3]
    assert claimed_returns(ATTEMPTS).tolist() == [0.1, 0.2]  # in task 1 the claims are equal: the first attempt
    assert mean_returns(ATTEMPTS).tolist() == pytest.approx([0.25, 0.25])  # (0.1 + 0.4) / 2 and (0.2 + 0.3) / 2


def test_the_leader_may_change_with_time() -> None:
    # Task 0: 0.1 at 1 s by the first, 0.4 from 2 s on by the second. Task 1: 0.2 at 1 s, 0.3 from 5 s on.
    curves = oracle_curves(ATTEMPTS, np.array([0.5, 1.0, 2.0, 5.0]))
    assert curves.tolist() == [[0.0, 0.1, 0.4, 0.4], [0.0, 0.2, 0.2, 0.3]]


def test_the_tokens_of_all_attempts_are_paid() -> None:
    assert total_tokens(ATTEMPTS).tolist() == [8.0, 8.0]  # two attempts of two turns of two tokens


def test_equal_claims_go_to_the_first_in_any_order() -> None:
    assert claimed_best([ATTEMPTS[3], ATTEMPTS[2]]).key.rollout == 0


def test_a_missing_attempt_is_an_error() -> None:
    with pytest.raises(DataError, match=r"equally many attempts, got \[1, 2\]"):
        by_task(ATTEMPTS[:3])
