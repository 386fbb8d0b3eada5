"""The frontier against its definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.frontier import Point, frontier


def test_the_frontier_holds_what_nothing_beats_in_both() -> None:
    # solo is first, team earns more later, slow is beaten by team (later and no better), late earns most; idle is beaten by
    # solo at the same time; twin equals team.
    points = [Point(60, 0.5, "team"), Point(20, 0.2, "solo"), Point(80, 0.5, "slow"), Point(90, 0.6, "late"),
              Point(20, 0.1, "idle"), Point(60, 0.5, "twin")]  # fmt: skip
    assert [point.name for point in frontier(points)] == ["solo", "team", "twin", "late"]
    assert frontier([]) == ()
    with pytest.raises(DataError, match="'lost' has latency inf s"):
        frontier([*points, Point(float("inf"), 0.9, "lost")])


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12), st.sampled_from([0.5, 2.0]))
def test_a_point_is_on_the_frontier_exactly_if_no_other_dominates_it(pairs: list[tuple[int, int]], unit: float) -> None:
    points = [Point(latency, return_, f"{i:02}") for i, (latency, return_) in enumerate(pairs)]
    best = {
        p.name
        for p in points
        if not any(q.latency_s <= p.latency_s and q.return_ >= p.return_ and q[:2] != p[:2] for q in points)
    }
    assert {p.name for p in frontier(points)} == best
    assert frontier(points[::-1]) == frontier(points)
    assert {p.name for p in frontier(p._replace(latency_s=p.latency_s * unit) for p in points)} == best
