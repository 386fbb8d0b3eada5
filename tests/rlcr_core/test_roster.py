"""The names of the others, without a copy: the same sequence as a tuple of them, and what was seen stays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.roster import Others
from rlcr_core.types import Call, EventType, TurnKind
from tests.rlcr_core.test_collective import post, team
from tests.rlcr_core.toy import NAMES


@given(st.lists(st.text(max_size=3), min_size=1, unique=True, max_size=8), st.data())
def test_others_is_the_tuple_of_the_others(names: list[str], data: st.DataObject) -> None:
    own = data.draw(st.integers(0, len(names) - 1))
    others, expected = Others(tuple(names), own), tuple(names[:own] + names[own + 1 :])
    assert len(others) == len(expected) and tuple(others) == expected
    assert [others[i] for i in range(-len(expected), len(expected))] == [*expected, *expected]
    assert others[:2] == expected[:2] and others[::-1] == expected[::-1]
    assert others == expected and hash(others) == hash(expected)
    assert others != (*expected, "one more") and bool(others) == bool(expected)
    for outside in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            others[outside]


def test_who_is_hired_or_fired_changes_the_next_view_and_not_the_last() -> None:
    collective = team(3)
    before = collective.others(2)  # of bob: chief, ann, cyd
    assert before == (NAMES[0], NAMES[1], NAMES[3])
    collective.finish(0, Call("fire", (NAMES[1],), TurnKind.ROSTER), 1.0)
    assert before == (NAMES[0], NAMES[1], NAMES[3])
    assert collective.others(2) == (NAMES[0], NAMES[3])
    collective.finish(0, Call("hire", ("",), TurnKind.ROSTER), 2.0)
    assert collective.others(2) == (NAMES[0], NAMES[3], NAMES[4]) and collective.others(0) == (NAMES[2], NAMES[3], NAMES[4])


def test_deliveries_that_are_not_logged_are_delivered() -> None:
    for is_logged in (True, False):
        collective = team(2, log_deliveries=is_logged)
        collective.finish(0, post("key 1"), 1.0)
        assert [collective.collect(agent, 2.0) for agent in (1, 2)] == [((NAMES[0], "key 1"),)] * 2
        delivered = [e.agent for e in collective.events if e.type is EventType.DELIVERY]
        assert delivered == ([1, 2] if is_logged else [])
