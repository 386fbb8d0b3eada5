"""Counterfactual replay: values of messages worked out by hand, equal beginnings, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from rlcr_core.collective import Collective
from rlcr_core.errors import DataError
from rlcr_core.players import PlayerEngine
from rlcr_core.replay import MessageClass, begins_alike, message_values, messages_of, replay_specs
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.types import Call, EventType, Rollout, RolloutKey, TurnKind
from tests.rlcr_core.test_rollout import babble
from tests.rlcr_core.toy import TASK, TOKENIZER, Toy, toy_params

PARAMS = toy_params(collective={"staff": 1})
SPEC = RolloutSpec(RolloutKey("replay", 0, 0, 0), TASK, 20.0)


def told(posts: int) -> PlayerEngine:
    """The chief posts `key red` in its first turns, then waits; ann digs once she was told and waits until then."""
    knows: set[tuple[int, int]] = set()
    said: dict[tuple[int, int], int] = {}

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        said[key] = said.get(key, 0) + 1
        if key[1] == 0:
            return "post all key red ." if said[key] <= posts else "wait ."
        if "key" in observation:
            knows.add(key)
        return "dig 1 ." if key in knows else "wait ."

    return PlayerEngine(speak, TOKENIZER)


def runner(posts: int):  # type: ignore[no-untyped-def]
    def run(specs: Sequence[RolloutSpec]) -> list[Rollout]:
        return run_rollouts(specs, Toy, told(posts), TOKENIZER, PARAMS)

    return run


def test_the_value_of_the_only_message() -> None:
    """The post takes 1 + 5 s. Ann waits 1 + 2 + 1 s a turn and reads it at 8 s: 1 s, two words in 0.2 s, three tokens in 3 s
    and 1 s of digging make 13.2 s, then 5 s a turn: rewards at 13.2 and 18.2 s. Without the message she never digs.
    """
    (original,) = runner(1)([SPEC])
    assert original.return_ == pytest.approx(0.2)
    (message,) = messages_of(original)
    assert (message.number, message.time_s, message.sender, message.text) == (0, 6.0, 0, "key red")
    assert message.kind is MessageClass.FIRST
    (found,) = message_values(original, SPEC, [message], 3, runner(1))
    assert found.value is not None and (found.n, found.invalid) == (3, 0)
    assert (found.same_seeds, found.value.mean, found.value.low, found.value.high) == pytest.approx((0.2, 0.2, 0.2, 0.2))


def test_of_two_copies_each_is_worth_what_the_other_cannot_replace() -> None:
    """The second post is sent at 12 s. Without the first, ann reads it at 12 s and digs by 17.2 s, then by 22.2 s: 0.1 less.
    Without the second she has dug by 13.2 and 18.2 s; with it by 13.2 and, having read two more words, 18.4 s: no difference.
    """
    (original,) = runner(2)([SPEC])
    first, second = messages_of(original)
    assert second.kind is MessageClass.COPY and second.time_s == 12.0
    values = message_values(original, SPEC, [first, second], 2, runner(2))
    assert [value.same_seeds for value in values] == pytest.approx([0.1, 0.0])


def test_messages_are_classed_by_truth_and_repetition() -> None:
    lines = iter(["post all key red .", "post all key blue .", "post all key red ."])

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        return next(lines, "wait .") if key[1] == 0 else "wait ."

    (rollout,) = run_rollouts([SPEC], Toy, PlayerEngine(speak, TOKENIZER), TOKENIZER, PARAMS)
    assert [m.kind for m in messages_of(rollout)] == [MessageClass.FIRST, MessageClass.FALSE, MessageClass.COPY]


def test_replays_begin_alike_and_later_turns_have_seeds_of_their_own() -> None:
    engine = PlayerEngine(babble, TOKENIZER)
    specs = [replace(SPEC, key=RolloutKey("replay", 0, 0, i), limit_s=60.0) for i in range(6)]
    compared = 0
    for spec, original in zip(specs, run_rollouts(specs, Toy, engine, TOKENIZER, PARAMS), strict=True):
        for message in messages_of(original):
            replays = run_rollouts(replay_specs(spec, message, 2), Toy, engine, TOKENIZER, PARAMS)
            assert all(begins_alike(original, again, message) for again in replays)
            later = [[t.action_ids for t in again.turns() if t.start_s >= message.time_s] for again in replays[1::2]]
            if len(later[0]) > 5:  # of 11 things to say, six equal in a row are no coincidence
                assert later[0] != later[1]
                compared += 1
    assert compared >= 5


def test_a_withheld_message_is_seen_and_found_by_nobody() -> None:
    collective = Collective(PARAMS.collective, Toy(TASK), 0, frozenset({0}))
    for text in ("key red", "key blue"):
        collective.finish(0, Call("post", ("all", text), TurnKind.TALK), 1.0)
    assert [text for _, text in collective.collect(1, 2.0)] == ["key blue"]
    assert collective.finish(1, Call("read", ("all",), TurnKind.TALK), 2.0).args == ("key blue",)
    assert collective.finish(1, Call("search", ("key",), TurnKind.TALK), 2.0).args == ("key blue",)
    assert len([e for e in collective.events if e.type is EventType.MESSAGE]) == 2  # the sender is not told


def test_a_replay_that_begins_otherwise_is_left_out_and_counted() -> None:
    (original,) = runner(1)([SPEC])

    def disturbed(specs: Sequence[RolloutSpec]) -> list[Rollout]:
        replays = runner(1)(specs)
        replays[2].trajectories[1][0].code = "other"  # ann's first turn, in the first continuation without the message
        return replays

    (found,) = message_values(original, SPEC, messages_of(original), 3, disturbed)
    assert (found.n, found.invalid) == (2, 1)


def test_replays_of_something_else_are_refused() -> None:
    (original,) = runner(1)([SPEC])
    with pytest.raises(DataError, match="begins as it did"):
        message_values(original, SPEC, messages_of(original), 2, runner(0))
    with pytest.raises(DataError, match="continuations"):
        message_values(original, SPEC, messages_of(original), 1, runner(1))
