"""The derived clock: the formula by hand, the tokens that a deadline allows, the lookahead, and a whole rollout on paper."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.clock import LatencyModel
from rlcr_core.config import LatencyConfig
from rlcr_core.types import EventType, ToolSpec, TurnKind
from tests.rlcr_core.toy import play, toy_params


def model(**values: float) -> LatencyModel:
    base = {"turn_overhead_s": 0.5, "prefill_tps": 50.0, "decode_tps": 2.0, "shared_capacity": 0}
    return LatencyModel(LatencyConfig.model_validate(base | values))


def test_a_turn_by_hand() -> None:
    # 10 + 0.5 + 25 / 50 + 4 / 2 = 13
    assert model().spoken_s(10.0, 25, 4) == 13.0


def test_sums_of_decimals_compare_as_written() -> None:
    # 0.1 + 0.2 is 0.30000000000000004 in binary; a reward at exactly T must count
    assert model(turn_overhead_s=0.2, decode_tps=10.0).spoken_s(0.0, 0, 1) == 0.3


def test_tokens_by_the_deadline() -> None:
    clock = model()  # first token begins at 10.5 and each takes 0.5 s: ends at 11.0, 11.5, 12.0, ...
    assert [clock.tokens_by(t, 10.0, 0) for t in (10.9, 11.0, 11.4, 11.5, 13.0)] == [0, 1, 1, 2, 5]
    assert clock.tokens_by(10.5, 10.0, 100) == 0  # the prompt is read at 12.5


def test_shared_capacity_slows_decoding() -> None:
    clock = model(shared_capacity=4)
    # up to 4 busy agents 2 tokens/s each; 8 share the same 8 tokens/s: 1 each
    assert [clock.decode_tps(n) for n in (1, 4, 8)] == [2.0, 2.0, 1.0]
    assert clock.spoken_s(0.0, 0, 4, busy=8) == 4.5


def test_shortest_turn_is_the_lookahead() -> None:
    collective = toy_params().collective  # messages are free, hiring and errors take 1 s
    tools = [ToolSpec("work", TurnKind.WORK, 4, 1.0), ToolSpec("post", TurnKind.TALK, 3, 0.0)]
    # work .5 + 4/2 + 1 = 3.5; post .5 + 3/2 + 0 = 2; a malformed word .5 + 1/2 + 1 = 2
    assert model().shortest_turn_s(tools, collective) == 2.0
    # with post gone only the malformed word binds
    assert model(turn_overhead_s=0.25).shortest_turn_s(tools[:1], collective) == 1.75


@given(st.floats(0, 1000), st.integers(0, 500), st.integers(1, 200), st.floats(0, 1200))
def test_tokens_by_is_the_inverse_of_spoken(start: float, prompt: int, n: int, limit: float) -> None:
    clock = model()
    allowed = clock.tokens_by(limit, start, prompt)
    assert allowed == 0 or clock.spoken_s(start, prompt, allowed) <= limit + 1e-6
    assert clock.spoken_s(start, prompt, allowed + 1) > limit - 1e-6


def test_three_agents_two_messages_and_a_deadline_in_mid_turn() -> None:
    """Overhead 1 s, 10 prompt tokens/s, 1 sampled token/s, hire 1 s and 2 s of onboarding, messages free. T = 20.

    chief: 0     `hire .`            2 tokens: spoken 3, ends 4; ann starts at 6
           4     `hire .`            spoken 7, ends 8; bob starts at 10
           8     `post all key red .` 5 tokens: spoken and ends 14
           14    `dig 3 .`           3 tokens: spoken 18, would end 21: cut at 20, all 3 tokens kept
    ann:   6     `dig 2 .`           3 tokens: spoken 10, ends 12 -> reward
           12    `dm bob key blue .` 5 tokens: spoken and ends 18
           18    sees `key red` (posted at 14): 2 new words .2 s; first token at 20.2: past T, no turn
    bob:   10    `dig 4 .`           spoken 14, ends 18 -> reward
           18    sees `key red` and ann's `key blue`, stamped 18: 4 new words .4 s; first token at 20.4: no turn
    """
    rollout, environment = play(
        {
            "chief": ["hire .", "hire .", "post all key red .", "dig 3 ."],
            "ann": ["dig 2 .", "dm bob key blue ."],
            "bob": ["dig 4 ."],
        },
        limit_s=20.0,
    )
    times = {(t.agent, t.index): (t.start_s, t.end_s, t.n_tokens, t.cut) for t in rollout.turns()}
    assert times == {
        (0, 0): (0.0, 4.0, 2, False),
        (0, 1): (4.0, 8.0, 2, False),
        (0, 2): (8.0, 14.0, 5, False),
        (0, 3): (14.0, 20.0, 3, True),
        (1, 0): (6.0, 12.0, 3, False),
        (1, 1): (12.0, 18.0, 5, False),
        (2, 0): (10.0, 18.0, 3, False),
    }
    rewards = [(e.time_s, e.agent) for e in rollout.events if e.type is EventType.REWARD]
    assert rewards == [(12.0, 1), (18.0, 2)]
    assert rollout.return_ == pytest.approx(0.2)
    shown = {v.agent: v.new_messages for v in environment.views if v.time_s == 18.0}
    assert shown == {1: (("chief", "key red"),), 2: (("chief", "key red"), ("ann", "key blue"))}
    assert (rollout.stop_reason, rollout.end_s) == ("deadline", 20.0)


def test_a_reward_at_exactly_the_deadline_counts() -> None:
    # `dig 4 .`: 1 + 3 + 4 = 8
    assert play({"chief": ["dig 4 ."]}, limit_s=8.0)[0].return_ == pytest.approx(0.1)
    rollout = play({"chief": ["dig 4 ."]}, limit_s=7.999)[0]
    assert rollout.return_ == 0.0
    assert [(t.n_tokens, t.cut, t.end_s) for t in rollout.turns()] == [(3, True, 7.999)]


def test_a_turn_cut_while_sampling_keeps_the_tokens_of_the_clock() -> None:
    # tokens of `dig 4 .` are sampled at 2, 3 and 4 s; at T = 3.5 two of them exist, and the action has no effect
    (turn,) = play({"chief": ["dig 4 ."]}, limit_s=3.5)[0].turns()
    assert (turn.n_tokens, turn.cut, turn.end_s, turn.kind) == (2, True, 3.5, TurnKind.WORK)


def test_nothing_is_sampled_that_the_clock_does_not_allow() -> None:
    assert play({"chief": ["dig 4 ."]}, limit_s=1.5)[0].turns() == []


def test_rescoring_at_an_earlier_limit() -> None:
    # digs end at 1 + 3 + 2 = 6, 12 and 18
    rollout = play({"chief": ["dig 2 ."] * 3}, limit_s=18.0)[0]
    assert [rollout.return_at(t) for t in (5.9, 6.0, 12.0)] == [0.0, pytest.approx(0.1), pytest.approx(0.2)]
    assert rollout.return_ == pytest.approx(0.3)
