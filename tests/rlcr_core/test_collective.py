"""Roster and mail: delivered exactly once, first in first out per pair, at the receiver's next turn, nothing lost in silence."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.collective import Collective
from rlcr_core.types import Call, EventType, StopReason, TurnKind
from tests.rlcr_core.toy import NAMES, TASK, Toy, play, toy_params


def team(n_hires: int, **collective: object) -> Collective:
    made = Collective(toy_params(collective=collective).collective, Toy(TASK), seed=0)
    for _ in range(n_hires):
        assert made.finish(0, Call("hire", ("",), TurnKind.ROSTER), 0.0).code == "hired"
    return made


def dm(to: str, text: str) -> Call:
    return Call("dm", (to, text), TurnKind.TALK)


def post(text: str) -> Call:
    return Call("post", ("all", text), TurnKind.TALK)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["dm", "post", "turn", "fire"]), st.integers(0, 4), st.integers(0, 4)), max_size=60))
def test_exactly_once_and_first_in_first_out(steps: list[tuple[str, int, int]]) -> None:
    """Any order of messages, turns and firings: each receiver gets each message once, in order of sending per sender."""
    collective = team(4)
    expected: dict[int, list[str]] = {agent: [] for agent in range(5)}
    got: dict[int, list[str]] = {agent: [] for agent in range(5)}
    for n, (action, agent, other) in enumerate(steps):
        time_s = float(n)
        if agent not in collective.employed:
            continue
        if action == "turn":
            got[agent] += [text for _, text in collective.collect(agent, time_s)]
        elif action == "fire":
            result = collective.finish(agent, Call("fire", (NAMES[other],), TurnKind.ROSTER), time_s)
            assert result.ok == (agent == 0 and other != 0 and collective.agents[other].fired_s == time_s)
        elif action == "dm":
            result = collective.finish(agent, dm(NAMES[other], f"key {n % 30}"), time_s)
            assert result.code == ("sent" if other in collective.employed and other != agent else "unknown")
            if result.ok:
                expected[other].append(f"key {n % 30}")
        else:
            collective.finish(agent, post(f"all {n % 30}"), time_s)
            for reader in collective.employed:
                if reader != agent:
                    expected[reader].append(f"all {n % 30}")
    for agent in collective.employed:
        got[agent] += [text for _, text in collective.collect(agent, 1e3)]
        assert got[agent] == expected[agent]
        assert collective.collect(agent, 2e3) == () and not collective.has_mail(agent)
    sent = [e for e in collective.events if e.type is EventType.MESSAGE]
    assert len(collective.archive) == len(sent)


def test_unknown_and_fired_recipients_are_errors_shown_to_the_sender() -> None:
    collective = team(1)
    assert collective.finish(0, dm("bob", "key red"), 1.0).code == "unknown"  # never hired
    assert collective.finish(0, Call("fire", ("ann",), TurnKind.ROSTER), 2.0).ok
    assert collective.finish(0, dm("ann", "key red"), 3.0).code == "unknown"
    assert collective.archive == []
    assert collective.begin(0, dm("ann", "key red")) == 1.0  # an impossible call takes error_s


def test_only_the_ceo_hires_and_fires_and_the_cap_holds() -> None:
    collective = team(2, max_hires=2)
    assert collective.finish(0, Call("hire", ("",), TurnKind.ROSTER), 1.0).code == "full"
    assert collective.finish(1, Call("hire", ("",), TurnKind.ROSTER), 1.0).code == "denied"
    assert collective.finish(1, Call("fire", ("bob",), TurnKind.ROSTER), 1.0).code == "denied"
    collective.finish(0, Call("fire", ("bob",), TurnKind.ROSTER), 2.0)
    assert collective.finish(0, Call("hire", ("",), TurnKind.ROSTER), 3.0).args == ("cyd",)  # a freed place, a new agent
    assert [a.fired_s for a in collective.agents] == [None, None, 2.0, None]


def test_a_brief_is_the_hire_s_first_message_and_posts_before_employment_are_in_the_archive_only() -> None:
    collective = team(1)
    collective.finish(1, post("key blue"), 1.0)
    collective.finish(0, Call("hire", ("brief",), TurnKind.ROSTER), 2.0)
    assert collective.collect(2, 5.0) == (("chief", "brief"),)
    assert collective.finish(2, Call("read", ("all",), TurnKind.TALK), 6.0).args == ("key blue",)
    assert collective.finish(2, Call("search", ("blue",), TurnKind.TALK), 6.0).args == ("key blue",)
    assert collective.finish(2, Call("search", ("red",), TurnKind.TALK), 6.0).args == ()


def test_search_and_read_give_the_latest_four_first() -> None:
    collective = team(1)
    for n in range(6):
        collective.finish(0, post(f"key {n}"), float(n))
    assert collective.finish(1, Call("read", ("all",), TurnKind.TALK), 9.0).args == ("key 5", "key 4", "key 3", "key 2")


def test_a_message_above_the_bound_is_refused_with_its_own_code() -> None:
    collective = team(1, max_message_tokens=2)
    assert collective.finish(0, post("key red"), 1.0).ok
    assert collective.finish(0, post("key red blue"), 2.0).code == "long"
    assert collective.finish(0, dm("ann", "key red blue"), 2.0).code == "long"
    assert len(collective.archive) == 1


@pytest.mark.parametrize(
    ("control", "received"),
    [
        ("normal", ["key red", "key red"]),
        ("mute", []),
        ("scrambled", ["key blue", "key blue"]),
        ("first_copies", ["key red"]),
    ],
)
def test_controls_change_what_is_received_and_never_what_the_sender_sees(control: str, received: list[str]) -> None:
    collective = team(1, messages=control)
    assert [collective.finish(0, post("key red"), t).code for t in (1.0, 2.0)] == ["posted", "posted"]
    assert [text for _, text in collective.collect(1, 3.0)] == received


def test_a_waiting_agent_is_woken_once_and_pays_once() -> None:
    """wait_s null: chief hires ann (starts at 6). ann waits: spoken at 9. chief posts at 4 + 1 + 4 = 9 and wakes her.

    ann's one wait lasts from 6 to 9; her next turn starts at 9 and shows the post.
    """
    params = toy_params(collective={"wait_s": None})
    script = {"chief": ["hire .", "post all red ."], "ann": ["wait .", "dig 1 ."]}
    rollout, environment = play(script, 30.0, params)
    ann = rollout.trajectories[1]
    assert [(t.kind.value, t.start_s, t.end_s) for t in ann[:2]] == [("wait", 6.0, 9.0), ("work", 9.0, 14.1)]
    assert [v.new_messages for v in environment.views if v.agent == 1 and v.time_s == 9.0] == [(("chief", "red"),)]
    assert Counter(t.kind for t in ann)[TurnKind.WAIT] == 2  # the second lasts until the end: no polling


def test_no_lost_wake_when_a_message_arrives_while_wait_is_being_said() -> None:
    """ann starts `wait .` at 6 (spoken 9); the post lands at 4 + 1 + 3 = 8, before she has spoken: she must not sleep."""
    params = toy_params(collective={"wait_s": None})
    rollout, _ = play({"chief": ["hire .", "post red ."], "ann": ["wait .", "dig 1 ."]}, 30.0, params)
    first = rollout.trajectories[1][0]
    assert (first.start_s, first.end_s) == (6.0, 9.0)
    assert rollout.return_ == pytest.approx(0.1)


def test_all_waiting_with_nothing_pending_is_stalled() -> None:
    # chief: `wait .` spoken at 1 + 2 = 3; nobody will ever write
    rollout, _ = play({}, 30.0, toy_params(collective={"wait_s": None}))
    assert (rollout.stop_reason, rollout.end_s) == (StopReason.STALLED, 3.0)
    assert play({}, 30.0)[0].stop_reason is StopReason.DEADLINE  # waits of a second go on until the deadline


def test_a_fired_agent_s_turn_in_flight_is_cut_and_its_tokens_stay() -> None:
    """chief: hire ends 4; `fire ann .` 4 + 1 + 3 + 1 = 9. ann: 6 `dig 9 .` tokens at 8, 9, 10: two kept, no reward."""
    rollout, _ = play({"chief": ["hire .", "fire ann ."], "ann": ["dig 9 ."]}, 40.0)
    (turn,) = rollout.trajectories[1]
    assert (turn.n_tokens, turn.cut, turn.end_s) == (2, True, 9.0)
    assert rollout.return_ == 0.0 and rollout.agents[1].fired_s == 9.0


def test_time_left_is_in_every_view() -> None:
    _, environment = play({"chief": ["dig 1 ."] * 3}, 20.0)
    assert [v.time_left_s for v in environment.views] == [20.0 - v.time_s for v in environment.views]
    assert len(environment.views) >= 3


def test_a_delayed_message_is_seen_once_and_in_order_from_its_delay_on() -> None:
    # Sent at 1 (post), 2 (direct) and 4 (post) with a delay of 3: due at 4, 5 and 7.
    collective = team(2, delay_s=3.0)
    collective.finish(0, post("key 1"), 1.0)
    collective.finish(0, dm(NAMES[1], "key 2"), 2.0)
    collective.finish(0, post("key 3"), 4.0)
    assert collective.collect(1, 3.9) == ()
    assert [text for _, text in collective.collect(1, 4.0)] == ["key 1"]
    assert collective.collect(1, 4.9) == ()
    assert [text for _, text in collective.collect(1, 7.0)] == ["key 2", "key 3"]
    assert collective.collect(1, 99.0) == () and not collective.has_mail(1)
    assert [text for _, text in collective.collect(2, 6.9)] == ["key 1"]


def test_the_archive_shows_what_a_control_leaves_and_each_its_own() -> None:
    """Muted, scrambled and delayed messages are so in the archive too; who wrote one finds it as it was and learns nothing."""
    read, search = Call("read", ("all",), TurnKind.TALK), Call("search", ("key",), TurnKind.TALK)
    for control, at_1, at_9 in (
        ({}, ("key red",), ("key red",)), ({"messages": "mute"}, (), ()), ({"delay_s": 5.0}, (), ("key red",)),
        ({"messages": "first_copies"}, ("key red",), ("key red",)),
    ):  # fmt: skip
        collective = team(1, **control)
        collective.finish(0, post("key red"), 1.0)
        for call in (read, search):
            assert collective.finish(0, call, 1.0).args == ("key red",)
            assert collective.finish(1, call, 1.0).args == at_1 and collective.finish(1, call, 9.0).args == at_9
    collective = team(1, messages="scrambled")
    collective.finish(0, post("key red"), 1.0)
    assert collective.finish(0, read, 1.0).args == ("key red",)
    assert collective.finish(1, read, 1.0).args == ("key blue",)  # the toy's way of scrambling, as the delivery is
    assert [text for _, text in collective.collect(1, 1.0)] == ["key blue"]


def test_without_an_archive_nothing_is_found_and_messages_still_arrive() -> None:
    for archive, found in ((True, ("key 1",)), (False, ())):
        collective = team(1, archive=archive)
        collective.finish(0, post("key 1"), 1.0)
        assert collective.finish(1, Call("read", ("all",), TurnKind.TALK), 2.0).args == found
        assert collective.finish(1, Call("search", ("key",), TurnKind.TALK), 2.0).args == found
        assert [text for _, text in collective.collect(1, 2.0)] == ["key 1"]


def test_the_staff_are_there_from_the_start_and_count_as_hires() -> None:
    collective = team(0, staff=2, max_hires=3)
    assert list(collective.employed) == [0, 1, 2] and collective.n_hired == 2
    assert [(e.type, e.time_s, e.other) for e in collective.events if e.type is EventType.HIRE] == [
        (EventType.HIRE, 0.0, 1), (EventType.HIRE, 0.0, 2),
    ]  # fmt: skip
    hire = Call("hire", ("",), TurnKind.ROSTER)
    assert collective.finish(0, hire, 1.0).code == "hired" and collective.finish(0, hire, 2.0).code == "full"


def test_staff_work_from_the_first_second() -> None:
    # A turn of `wait .`, two tokens, starts at 0 for each of the three, not only for the chief.
    rollout, _ = play({}, 10.0, toy_params(collective={"staff": 2, "max_hires": 2}))
    assert [rollout.trajectories[agent][0].start_s for agent in range(3)] == [0.0, 0.0, 0.0]
    assert rollout.n_hires == 2 and [record.started_s for record in rollout.agents] == [0.0, 0.0, 0.0]
