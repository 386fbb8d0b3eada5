"""The ledger accounts for every rollout, also by duration, or refuses."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.ledger import ledger
from rlcr_core.types import Rollout, RolloutKey, StopReason


def plain(group: int, rollout: int, end_s: float = 20.0, stop: StopReason = StopReason.DEADLINE) -> Rollout:
    return Rollout(RolloutKey("run", 3, group, rollout), "t", 20.0, 3, stop_reason=stop, end_s=end_s)


def test_the_ledger_of_ten_rollouts() -> None:
    # Durations 1..10 s, one in each decile; the two longest and the shortest are excluded.
    rollouts = [plain(0, i, end_s=i + 1.0) for i in range(9)]
    rollouts.append(plain(0, 9, end_s=10.0, stop=StopReason.FAILED))
    found = ledger(rollouts, {(0, 9): "failed", (0, 8): "not finite", (0, 0): "failed"})
    assert (found["dispatched"], found["trained"]) == (10, 7)
    assert found["excluded"] == {"failed": 2, "not finite": 1}
    assert [row["excluded"] for row in found["deciles"]] == [1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    assert found["deciles"][3] == {"low_s": 4.0, "high_s": 4.0, "dispatched": 1, "trained": 1, "excluded": 0}


def test_slow_rollouts_that_vanish_are_seen_in_the_last_deciles() -> None:
    rollouts = [plain(0, i, end_s=float(i)) for i in range(20)]
    lost = ledger(rollouts, {(0, i): "timed out" for i in range(16, 20)})["deciles"]
    assert [row["excluded"] for row in lost] == [0] * 8 + [2, 2]
    kept = ledger(rollouts, {})["deciles"]
    assert [row["trained"] for row in kept] == [2] * 10  # none is excluded for its duration alone


def test_rollouts_of_one_duration_are_in_one_decile() -> None:
    # All 6 end at the deadline, ranks 0..5, middle rank 2.5: decile floor(10 * 2.5 / 6) = 4, whoever is excluded.
    rows = ledger([plain(0, i) for i in range(6)], {(0, 5): "failed"})["deciles"]
    assert [row["dispatched"] for row in rows] == [0, 0, 0, 0, 6, 0, 0, 0, 0, 0]
    assert (rows[4]["trained"], rows[4]["excluded"]) == (5, 1)
    assert (rows[0]["low_s"], rows[0]["high_s"]) == (None, None)


@given(st.lists(st.tuples(st.sampled_from([5.0, 7.5, 20.0]), st.sampled_from(["", "a", "b"])), max_size=40))
def test_the_ledger_adds_up(plan: list[tuple[float, str]]) -> None:
    rollouts = [plain(i // 4, i % 4, end_s=end_s) for i, (end_s, _) in enumerate(plan)]
    reasons = {(i // 4, i % 4): why for i, (_, why) in enumerate(plan) if why}
    found = ledger(rollouts, reasons)
    assert found["dispatched"] == len(plan) == found["trained"] + sum(found["excluded"].values())
    for name in ("dispatched", "trained"):
        assert sum(row[name] for row in found["deciles"]) == found[name]
    assert all(row["dispatched"] == row["trained"] + row["excluded"] for row in found["deciles"])
    filled = [row for row in found["deciles"] if row["dispatched"]]
    assert all(shorter["high_s"] < longer["low_s"] for shorter, longer in pairwise(filled))


@pytest.mark.parametrize(
    ("rollouts", "excluded", "match"),
    [
        ([plain(0, 1), plain(0, 1)], {}, r"dispatched more than once: \[\(0, 1\)\]"),
        ([plain(0, 1)], {(0, 2): "lost"}, r"excluded but never dispatched: \[\(0, 2\)\]"),
        ([plain(0, 1, stop=StopReason.FAILED)], {}, r"failed but not excluded: \[\(0, 1\)\]"),
    ],
)
def test_a_ledger_that_does_not_add_up_is_refused(
    rollouts: list[Rollout], excluded: dict[tuple[int, int], str], match: str
) -> None:
    with pytest.raises(DataError, match=match):
        ledger(rollouts, excluded)
