"""Rules behind the signs of life: what is a repost, new, used, waste; how seconds at work add up; what labels keep."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.labels import N_LABELS, SHAPE, label, labels_of, shares
from rlcr_core.metrics import iteration_metrics
from rlcr_core.outcomes import EventCounts, read_events, turn_outcomes
from rlcr_core.signs import Signs, at_work
from rlcr_core.store import from_tables, to_tables
from rlcr_core.types import AgentRecord, CallResult, Event, EventType, Rollout, RolloutKey, Turn, TurnKind
from tests.rlcr_core.toy import NAMES, TASK, Toy, play, toy_params
from tests.rlcr_core.written_out import rollout_a, rollout_b

FULL, NOBODY, REPOST, DUPLICATE, FAILED = range(1, 6)  # the order of outcomes.Waste


def waste_of(turns: list[tuple[str, str]], events: list[Event]) -> list[int]:
    """The waste class of agent 0's turns, turn i from i to i + 1 s, each (tool, code)."""
    trajectory = [
        Turn(0, i, i, [1], [2], [-1.0], i, i + 1, TurnKind.WORK, 0, tool, code, cut=not code)
        for i, (tool, code) in enumerate(turns)
    ]
    agents = [AgentRecord(0, "ada", 0, 0), AgentRecord(1, "bob", 0, 0)]
    rollout = Rollout(RolloutKey("run", 0, 0, 0), "t", 9.0, 0, agents, {0: trajectory}, events, end_s=9.0)
    return [waste for waste, _ in turn_outcomes(trajectory, read_events(rollout, EventCounts()).get(0, []))]


def said(time_s: float, text: str, to: int = -1) -> Event:
    return Event(time_s, EventType.MESSAGE, 0, to, -1.0, text)


HIRED = Event(0.0, EventType.HIRE, 0, 1)


def test_a_turn_of_several_calls_is_waste_only_when_each_call_is() -> None:
    events = [HIRED, said(1, "a"), said(2, "a"), Event(2, EventType.WORK, 0, text="done"), said(3, "a"),
              Event(3, EventType.WORK, 0, text="bad failed=1"), said(4, "a")]  # fmt: skip
    turns = [("post", "posted"), ("post+work", "posted+done"), ("post+work", "posted+bad"), ("hire+post", "full+posted")]
    # A repost beside a success is none; two reasons count as the first in the order of the classes.
    assert waste_of(turns, events) == [0, 0, REPOST, FULL]


def test_a_cut_turn_and_calls_that_others_refuse_are_no_waste() -> None:
    events = [HIRED, Event(1, EventType.WORK, 0, text="dup duplicate=1"), said(2, "a"), said(3, "a")]
    turns = [("work+post", ""), ("post", "posted"), ("post", ""), ("fire", "unknown"), ("hire", "denied"), ("x", "invalid")]
    assert waste_of(turns, events) == [0, 0, 0, 0, 0, 0]


def test_a_post_reaches_nobody_while_the_ceo_is_alone() -> None:
    events = [said(1, "a"), Event(1.5, EventType.HIRE, 0, 1), said(2, "b"), Event(2.5, EventType.FIRE, 0, 1), said(3, "c")]
    turns = [("post", "posted")] * 3 + [("dm", "unknown")]
    assert waste_of(turns, events) == [NOBODY, 0, NOBODY, NOBODY]


def test_a_brief_is_a_message_and_no_repost() -> None:
    brief = [Event(1, EventType.HIRE, 0, 1), said(1, "a", 1), Event(2, EventType.HIRE, 0, 2), said(2, "a", 2)]
    assert waste_of([("hire", "hired"), ("hire", "hired"), ("post", "posted")], [*brief, said(3, "a")]) == [0, 0, REPOST]
    counts = EventCounts()
    read_events(Rollout(RolloutKey("run", 0, 0, 0), "t", 9.0, 0, events=[*brief, said(3, "a")]), counts)
    assert (counts.messages, counts.reposts) == (3, 1)


def shown(agent: int, text: str) -> Event:
    return Event(1.0, EventType.DELIVERY, agent, 0, 0.5, text)


def used(agent: int, text: str) -> Event:
    return Event(2.0, EventType.USE, agent, text=text)


@pytest.mark.parametrize(
    ("events", "new", "n_used"),
    [
        ([shown(1, "a"), used(1, "a"), used(1, "a")], 1, 1),  # one delivery serves any number of successes
        ([shown(1, "a"), shown(1, "a"), used(1, "a")], 1, 1),  # the second told nothing
        ([shown(1, "a"), shown(2, "a"), used(2, "a")], 2, 1),  # each receiver for itself
        ([used(1, "a"), shown(1, "a")], 1, 0),  # used before it came: from elsewhere
        ([said(0.5, "a"), shown(0, "a"), used(0, "a")], 0, 0),  # it had said so itself
        ([shown(1, "b"), used(1, "a")], 1, 0),
    ],
)
def test_new_and_used_deliveries(events: list[Event], new: int, n_used: int) -> None:
    counts = EventCounts()
    read_events(Rollout(RolloutKey("run", 0, 0, 0), "t", 9.0, 0, events=events), counts)
    assert (counts.new, counts.used) == (new, n_used)


def test_use_is_absent_where_the_environment_does_not_tell_it() -> None:
    assert "talk/used" not in iteration_metrics([rollout_b()])  # no fact `uses`
    rollout = rollout_b()
    rollout.events[0].text = "done units=1 uses=0"
    found = iteration_metrics([rollout])
    assert found["talk/used"] == 0.0
    assert "talk/used_share" not in found  # nothing was delivered


def test_nothing_added_has_no_metrics_and_bounds_need_every_fact() -> None:
    assert Signs().metrics() == {}
    rollout = rollout_a()
    rollout.events[0].text = "task total_work_s=40 critical_path_s=12"
    assert not {key for key in iteration_metrics([rollout]) if "speedup_" in key or "critical" in key}
    rollout.events[0].text = "task total_work_s=much"
    with pytest.raises(DataError, match="gives total_work_s the value 'much'"):
        iteration_metrics([rollout])


@pytest.mark.parametrize("end_s", [float("inf"), float("nan")])
def test_damaged_times_of_an_excluded_rollout_end_the_pass_too(end_s: float) -> None:
    rollout = rollout_a()
    rollout.trajectories[0][4].end_s = end_s
    assert iteration_metrics([rollout])["reward/return_mean"] == 0.75


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 6)), max_size=8))
def test_seconds_at_work_equal_a_count_second_by_second(described: list[tuple[int, int]]) -> None:
    intervals = [(float(start), float(start + length)) for start, length in described]
    running = [sum(start <= second < start + length for start, length in described) for second in range(20)]
    assert at_work(intervals) == (sum(n > 0 for n in running), max(running))


def test_labels_keep_who_what_and_waste() -> None:
    places = list(product((0, 1, 3, 5, 9), TurnKind, range(SHAPE[2])))
    labels = [label(*place) for place in places]
    assert sorted(labels) == list(range(1, N_LABELS))
    assert [label(agent, TurnKind.WORK, 0) for agent in (1, 3, 5, 9)] == [
        label(agent, TurnKind.WORK, 0) for agent in (2, 4, 8, 1000)
    ]
    # Agent 1's turns: wait, work failed, work done, talk to nobody, talk.
    kinds = [(TurnKind.WAIT, 0), (TurnKind.WORK, FAILED), (TurnKind.WORK, 0), (TurnKind.TALK, NOBODY), (TurnKind.TALK, 0)]
    assert labels_of(rollout_a())[1] == [label(1, kind, waste) for kind, waste in kinds]


@given(st.lists(st.integers(0, 9), min_size=N_LABELS, max_size=N_LABELS))
def test_shares_split_the_labelled_whole(sums: list[int]) -> None:
    found = shares("x", sums)
    if sum(sums[1:]) == 0:
        assert found == {}
        return
    for part in (("ceo", "staff"), tuple(TurnKind)):
        assert sum(found[f"x_{name}"] for name in part) == pytest.approx(1.0)
    seats = [f"x_agents_{name}" for name in ("1_2", "3_4", "5_8", "9_up")]
    assert sum(found[name] for name in seats) == pytest.approx(found["x_staff"])
    for kind in TurnKind:
        assert found[f"x_ceo_{kind}"] + found[f"x_staff_{kind}"] == pytest.approx(found[f"x_{kind}"])
    assert found["x_waste"] <= 1.0 + 1e-9


class Telling(Toy):
    """A toy whose digs rely on the message "key red", and which says how much work there is."""

    def task_facts(self) -> dict[str, float]:
        return {"total_work_s": 12.5, "critical_path_s": 3.0, "unit_s": 1.0}

    def finish(self, agent: int, call: object, time_s: float) -> CallResult:
        return CallResult(True, "dug", reward=0.1, uses=("key red",) if agent else ())


def test_the_loop_records_task_facts_and_uses_and_the_tables_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.rlcr_core.toy.Toy", Telling)
    scripts = {NAMES[0]: ["hire .", "post all key red .", "dig 1 ."], NAMES[1]: ["wait .", "wait .", "dig 1 ."]}
    rollout, _ = play(scripts, 40.0, toy_params())
    events = [(e.type, e.agent, e.text) for e in rollout.events]
    assert events[0] == (EventType.TASK, -1, "task total_work_s=12.5 critical_path_s=3 unit_s=1")
    assert (EventType.WORK, 0, "dug uses=0") in events
    place = events.index((EventType.WORK, 1, "dug uses=1"))
    assert (EventType.USE, 1, "key red") in events[place:]
    found = iteration_metrics([rollout])
    assert (found["talk/used"], found["parallel/task_work_s"]) == (1.0, 12.5)
    assert from_tables(to_tables([rollout]))[0].events == rollout.events
    assert np.isclose(iteration_metrics(from_tables(to_tables([rollout])))["talk/used_share"], found["talk/used_share"])


def test_an_environment_that_says_nothing_leaves_no_trace() -> None:
    rollout, _ = play({NAMES[0]: ["dig 1 ."]}, 20.0)
    assert Toy(TASK).__class__ is Toy
    assert not {EventType.TASK, EventType.USE} & {event.type for event in rollout.events}
    assert [event.text for event in rollout.events if event.type is EventType.WORK] == ["dug"]
