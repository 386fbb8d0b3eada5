"""The timeline of a small rollout written by hand: three agents, two messages, a hire, a dismissal, a cut turn."""

import pytest

from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind
from tasks.figure_style import to_png
from tasks.timeline import MAX_LANES, Bar, Timeline, timeline_figure, timeline_of


def turn(agent, index, kind, start_s, end_s, tool="", cut=False):
    return Turn(agent, index, 0, [1], [2], [-0.1], start_s, end_s, kind, 0, tool, "ok", cut)


@pytest.fixture
def rollout():
    """Limit 20 s. The CEO hires agents 1 and 2, posts at 8 s (true); 1 answers at 11 s (false); 2 is fired at 14 s."""
    agents = [AgentRecord(0, "ada", 0, 0), AgentRecord(1, "bo", 2, 5), AgentRecord(2, "cy", 4, 7, 14)]
    turns = {
        0: [
            turn(0, 0, TurnKind.ROSTER, 0, 2, "hire"),
            turn(0, 1, TurnKind.ROSTER, 2, 4, "hire"),
            turn(0, 2, TurnKind.TALK, 4, 8, "post"),
            turn(0, 3, TurnKind.WORK, 12, 25, "work", cut=True),
        ],
        1: [turn(1, 0, TurnKind.WORK, 5, 9, "work"), turn(1, 1, TurnKind.TALK, 9, 11, "tell")],
        2: [turn(2, 0, TurnKind.WAIT, 7, 9, "wait")],
    }
    events = [
        Event(2, EventType.HIRE, 0, 1),
        Event(4, EventType.HIRE, 0, 2),
        Event(8, EventType.MESSAGE, 0, -1, 1.0, "x k1"),
        Event(9, EventType.REWARD, 1, -1, 0.25),
        Event(9, EventType.DELIVERY, 1, 0, 8.0, "x k1"),
        Event(9, EventType.DELIVERY, 2, 0, 8.0, "x k1"),
        Event(11, EventType.MESSAGE, 1, 0, 0.0, "y k2"),
        Event(12, EventType.DELIVERY, 0, 1, 11.0, "y k2"),
        Event(14, EventType.FIRE, 0, 2),
        Event(20, EventType.REWARD, 1, -1, 0.5),
        Event(20.5, EventType.REWARD, 1, -1, 1.0),
    ]
    key = RolloutKey("run", 0, 0, 0)
    return Rollout(key, "task-7", 20.0, 1, agents, turns, events, StopReason.DEADLINE, 20.0)


def test_messages_go_from_sending_to_showing(rollout):
    # One post is shown to two colleagues; the answer, untrue, to its receiver.
    arrows = [(a.sender, a.receiver, a.sent_s, a.shown_s, a.truth) for a in timeline_of(rollout).arrows]
    assert arrows == [(0, 1, 8.0, 9.0, 1.0), (0, 2, 8.0, 9.0, 1.0), (1, 0, 11.0, 12.0, 0.0)]
    assert timeline_of(rollout).sent == 2


def test_a_showing_without_a_judged_message_is_unjudged(rollout):
    rollout.events = [e for e in rollout.events if e.type is not EventType.MESSAGE]
    assert {arrow.truth for arrow in timeline_of(rollout).arrows} == {-1.0}


def test_lanes_end_with_employment_and_the_ceo_is_named(rollout):
    lanes = [(lane.label, lane.hired_s, lane.started_s, lane.left_s) for lane in timeline_of(rollout).lanes]
    assert lanes == [("CEO", 0, 0, 20.0), ("bo", 2, 5, 20.0), ("cy", 4, 7, 14)]


def test_nothing_is_drawn_after_the_deadline(rollout):
    timeline = timeline_of(rollout)
    assert timeline.rewards == ((9, 0.25), (20, 0.5))  # exactly at the limit counts, later does not
    assert timeline.return_ == 0.75
    assert timeline.bars[-1] == Bar(0, TurnKind.WORK, 12, 20.0, "work", "ok")


def test_hires_are_kept_with_their_times(rollout):
    assert timeline_of(rollout).hires == ((2, 1), (4, 2))


def test_rows_hold_everything_drawn(rollout):
    rows = timeline_of(rollout).rows()
    counts = {record: sum(row["record"] == record for row in rows) for record in {row["record"] for row in rows}}
    # 3 lanes; 4 + 2 + 1 turns; 3 showings; 2 hires; 2 rewards by the limit.
    assert counts == {"lane": 3, "turn": 7, "message": 3, "hire": 2, "reward": 2}
    assert {tuple(row) for row in rows} == {("record", "agent", "other", "start_s", "end_s", "kind", "value")}


def test_figure_has_a_lane_per_agent_with_the_ceo_on_top(rollout):
    axes = timeline_figure(timeline_of(rollout), "Before").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["CEO", "bo", "cy"]
    bottom, top = axes.get_ylim()
    assert top < 0 < bottom  # lane 0, the CEO's, is the uppermost
    deadline = [line for line in axes.get_lines() if list(line.get_xdata()) == [20.0, 20.0]]
    assert len(deadline) == 1


def test_figure_explains_each_colour_and_sign(rollout):
    figure = timeline_figure(timeline_of(rollout), "Before")
    named = [text.get_text() for text in figure.legends[0].get_texts()]
    kinds = ["work", "talk", "roster", "wait", "invalid"]
    assert named == [*kinds, "hired", "message", "untrue message", "reward"]


def test_a_ceo_who_does_nothing_can_be_drawn():
    rollout = Rollout(RolloutKey("run", 0, 0, 0), "t", 5.0, 1, [AgentRecord(0, "ada", 0, 0)], {0: []}, [])
    figure = timeline_figure(timeline_of(rollout), "Before")
    assert to_png(figure, dpi=40).startswith(b"\x89PNG")


def test_of_too_many_lanes_the_first_are_drawn_and_the_title_says_so(rollout):
    rollout.agents += [AgentRecord(i, f"a{i}", 5, 6) for i in range(3, 60)]
    timeline: Timeline = timeline_of(rollout)
    axes = timeline_figure(timeline, "After").axes[0]
    assert len(axes.get_yticks()) == MAX_LANES == 40
    assert axes.get_title(loc="left") == "After, first 40 of 60 agents"
