"""What single messages were worth: a rollout is played again from the moment of a message, with it and without it.

On the derived clock equal keys and weights give equal rollouts, so a replay that withholds message m is the same as the
original until m was sent; what differs afterwards, m has caused. One continuation is one noisy draw: turns that start at
or after that moment are sampled again with other seeds, C times, each time with m and without it under equal seeds.

    value(m) = mean over c of [return with m in continuation c - return without m in continuation c]

with Student's interval over the C differences. A replay whose beginning is not the original's (other weights, another
batch whose rounding tipped a token) measures something else: that pair is left out and counted.

Of several copies of a fact each is withheld alone, so a copy that others repeat is worth little by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from rlcr_core.errors import DataError
from rlcr_core.precision import half_width
from rlcr_core.rollout import RolloutSpec
from rlcr_core.statistics import Interval
from rlcr_core.types import Event, EventType, Rollout, StopReason, Turn

Run = Callable[[Sequence[RolloutSpec]], list[Rollout]]


class MessageClass(StrEnum):
    """By the environment's judgement, and whether the same text was sent before in this rollout by anybody."""

    FIRST = "first_copy"
    COPY = "later_copy"
    FALSE = "false"
    UNJUDGED = "unjudged"


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of a rollout: its number in order of sending, which is that of the rollout's MESSAGE events."""

    number: int
    time_s: float
    sender: int
    text: str
    kind: MessageClass


@dataclass(frozen=True, slots=True)
class MessageValue:
    """`value` is None with fewer than two valid pairs. `same_seeds`: original minus its one replay without reseeding, None
    where that replay began otherwise. `invalid`: pairs of replays that did not begin like the original.
    """

    message: Sent
    value: Interval | None
    n: int
    invalid: int
    same_seeds: float | None


def _class(event: Event, is_repeated: bool) -> MessageClass:
    if event.value < 0:
        return MessageClass.UNJUDGED
    if event.value == 0:
        return MessageClass.FALSE
    return MessageClass.COPY if is_repeated else MessageClass.FIRST


def messages_of(rollout: Rollout) -> list[Sent]:
    """The rollout's messages in order of sending."""
    found: list[Sent] = []
    texts: set[str] = set()
    for event in rollout.events:
        if event.type is EventType.MESSAGE:
            found.append(Sent(len(found), event.time_s, event.agent, event.text, _class(event, event.text in texts)))
            texts.add(event.text)
    return found


def replay_specs(spec: RolloutSpec, message: Sent, continuations: int) -> list[RolloutSpec]:
    """The replay without the message and otherwise equal seeds, then for each continuation one with and one without it."""
    withheld = frozenset({message.number})
    specs = [replace(spec, withheld=withheld)]
    for salt in range(continuations):
        again = replace(spec, reseed_from_s=message.time_s, salt=salt)
        specs += [again, replace(again, withheld=withheld)]
    return specs


def _before(rollout: Rollout, time_s: float) -> tuple[list[tuple[object, ...]], list[Event]]:
    """All that had ended by a moment: what each turn read, said and came to, and the events before it."""

    def facts(turn: Turn) -> tuple[object, ...]:
        return (
            turn.agent, turn.index, turn.start_s, turn.end_s, turn.code, list(turn.observation_ids), list(turn.action_ids)
        )  # fmt: skip

    turns = [facts(turn) for turn in rollout.turns() if turn.end_s <= time_s and not turn.cut]
    return turns, [event for event in rollout.events if event.time_s < time_s]


def begins_alike(original: Rollout, again: Rollout, message: Sent) -> bool:
    """Whether a replay is the original until the message was sent, that message included (logprobs may be rounded)."""
    sent = messages_of(again)
    return (
        again.stop_reason is not StopReason.FAILED
        and len(sent) > message.number
        and sent[message.number] == message
        and _before(original, message.time_s) == _before(again, message.time_s)
    )


def _interval(differences: Sequence[float], confidence: float) -> Interval:
    mean, half = sum(differences) / len(differences), half_width(differences, len(differences), confidence=confidence)
    return Interval(mean, mean - half, mean + half)


def _value(original: Rollout, message: Sent, replays: Sequence[Rollout], confidence: float) -> MessageValue:
    alike = [begins_alike(original, again, message) for again in replays]
    returns = [again.return_ for again in replays]
    pairs = range(1, len(replays), 2)
    differences = [returns[i] - returns[i + 1] for i in pairs if alike[i] and alike[i + 1]]
    return MessageValue(
        message,
        _interval(differences, confidence) if len(differences) > 1 else None,
        len(differences),
        len(pairs) - len(differences),
        original.return_ - returns[0] if alike[0] else None,
    )


def message_values(
    original: Rollout, spec: RolloutSpec, messages: Sequence[Sent], continuations: int, run: Run, confidence: float = 0.95
) -> list[MessageValue]:
    """What each of these messages of `original` was worth to its return. `run` plays all replays in one call.

    `spec`, weights and parameters must be those that made the original. Raises DataError when no replay begins like it,
    and for fewer than two continuations.
    """
    if continuations < 2:
        raise DataError(f"An interval needs two or more continuations, got {continuations}; raise --continuations.")
    replays = run([again for message in messages for again in replay_specs(spec, message, continuations)])
    size = 1 + 2 * continuations
    found = [_value(original, m, replays[i * size : (i + 1) * size], confidence) for i, m in enumerate(messages)]
    if messages and not any(value.n for value in found):
        error = next((f" ({again.error})" for again in replays if again.error), "")
        raise DataError(
            f"No replay of rollout {tuple(original.key)} begins as it did{error}; expected the same rollout from the same key. "
            "Name the policy, the tasks and the parameter file that made it; on the wall clock nothing can be replayed."
        )
    return found
