"""What the rollout viewer shows, as columns: one list per property instead of an object per turn.

`viewer_data` is plain JSON. A turn's texts are pieces, one per token (tasks/viewer_texts.py), so that each can carry
the logprob that it was sampled with. Agents are numbered by their lane, turns by (agent, index),
messages in the order of the rollout's MESSAGE events.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcr_core.advantages import group_advantages
from rlcr_core.errors import DataError
from rlcr_core.outcomes import WASTES, EventCounts, read_events, turn_outcomes
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import CEO, Event, EventType, Rollout, StopReason, Turn, TurnKind
from tasks.figure_style import PALETTE
from tasks.timeline import KINDS as COLOURS
from tasks.viewer_texts import Pieces, Texts

KINDS = tuple(TurnKind)
TURN_COLUMNS = (
    "agent", "index", "context", "kind", "tool", "code", "cut", "waste", "prompt_tokens", "version", "n_read", "n_said",
    "start_s", "end_s", "tool_s", "earned",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Value:
    """What a message was worth to the return: mean and interval over counterfactual replays without it."""

    mean: float
    low: float
    high: float


def _rounded(values: Iterable[float], digits: int = 4) -> list[float | int]:
    """Numbers for display; whole ones as integers, which are shorter."""
    rounded = (round(float(value), digits) for value in values)
    return [int(value) if value.is_integer() else value for value in rounded]


def _turn_at(turns: Sequence[Turn], time_s: float) -> int | None:
    """Which of an agent's turns (in order) a thing stamped at its end, or during it, belongs to."""
    index = bisect_left(turns, time_s, key=lambda turn: turn.end_s)
    return index if index < len(turns) and turns[index].start_s < time_s else None


def _earned(rollout: Rollout, events: Sequence[Event]) -> dict[tuple[int, int], float]:
    """(agent, position in its trajectory) -> the rewards stamped in that turn."""
    found: dict[tuple[int, int], float] = defaultdict(float)
    for event in events:
        if event.type is EventType.REWARD:
            position = _turn_at(rollout.trajectories.get(event.agent, ()), event.time_s)
            if position is not None:
                found[event.agent, position] += event.value
    return found


def _turn_columns(
    rollout: Rollout, events: Sequence[Event], counts: EventCounts, lane: Mapping[int, int], pieces: Pieces, words: Texts
) -> dict[str, list[Any]]:
    """A row for each turn, and the flat columns `read`, `said` and `logprobs` with a row for each token."""
    earned, outcomes = _earned(rollout, events), read_events(rollout, counts)
    columns: dict[str, list[Any]] = {name: [] for name in TURN_COLUMNS}
    for agent in sorted(rollout.trajectories):
        turns = rollout.trajectories[agent]
        for position, (turn, (waste, _)) in enumerate(zip(turns, turn_outcomes(turns, outcomes.get(agent, [])), strict=True)):
            read, said = pieces.of(turn.observation_ids), pieces.of(turn.action_ids)
            row = (
                lane[agent], turn.index, turn.context, KINDS.index(turn.kind), words.add(turn.tool), words.add(turn.code),
                int(turn.cut), waste, turn.prompt_tokens, turn.policy_version, len(read), len(said), turn.start_s,
                turn.end_s, turn.tool_s, earned.get((agent, position), 0.0),
            )  # fmt: skip
            for name, value in zip(TURN_COLUMNS, row, strict=True):
                columns[name].append(value)
            for name, tokens in (("read", read), ("said", said), ("logprobs", turn.logprobs)):
                columns.setdefault(name, []).extend(tokens)
    for name in ("start_s", "end_s", "tool_s", "logprobs"):
        columns[name] = _rounded(columns.get(name, ()))
    columns["earned"] = _rounded(columns["earned"], 6)
    return {"read": [], "said": [], **columns}


def _message_columns(
    rollout: Rollout, events: Sequence[Event], lane: Mapping[int, int], texts: Texts
) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
    """Messages, and who was shown which of them when. `altered` holds the text shown where it is not the one sent (else -1);
    `repost` is 1 where the sender, `fresh` 0 where the receiver had been shown or had sent that text before.
    """
    sent = [event for event in events if event.type is EventType.MESSAGE]
    messages: dict[str, list[Any]] = {
        "time_s": _rounded(event.time_s for event in sent),
        "sender": [lane[event.agent] for event in sent],
        "receiver": [lane.get(event.other, -1) for event in sent],
        "truth": [int(event.value) if event.value in (0.0, 1.0) else -1 for event in sent],
        "text": [texts.add(event.text) for event in sent],
    }
    messages["repost"], shown = _showings(events, sent, lane, texts)
    return messages, shown


def _showings(
    events: Sequence[Event], sent: Sequence[Event], lane: Mapping[int, int], texts: Texts
) -> tuple[list[int], dict[str, list[Any]]]:
    """Whether each message's sender knew its text, and the rows of who was shown what; an agent knows what it was shown or sent.

    Raises DataError for a showing without its message.
    """
    by_moment: dict[tuple[int, float], list[int]] = defaultdict(list)
    for index, event in enumerate(sent):
        by_moment[event.agent, event.time_s].append(index)
    reposts: list[int] = []
    known: set[tuple[int, str]] = set()
    columns: dict[str, list[Any]] = {name: [] for name in ("message", "agent", "time_s", "altered", "fresh")}
    for event in events:
        if event.type is EventType.MESSAGE:
            reposts.append(int((event.agent, event.text) in known))
            known.add((event.agent, event.text))
        if event.type is not EventType.DELIVERY:
            continue
        candidates = [i for i in by_moment.get((event.other, event.value), ()) if sent[i].other in (-1, event.agent)]
        same = [i for i in candidates if sent[i].text == event.text] or candidates
        if not same:
            raise DataError(
                f"Agent {event.agent} was shown {event.text!r} of agent {event.other} at {event.time_s} s, but no message of "
                f"that agent is on record for {event.value} s; the rollout's events are incomplete: sample it again."
            )
        columns["message"].append(same[0])
        columns["agent"].append(lane[event.agent])
        columns["time_s"].append(event.time_s)
        columns["altered"].append(-1 if sent[same[0]].text == event.text else texts.add(event.text))
        columns["fresh"].append(int((event.agent, event.text) not in known))
        known.add((event.agent, event.text))
    columns["time_s"] = _rounded(columns["time_s"])
    return reposts, columns


def _used(events: Sequence[Event], fresh: Sequence[int], is_told: bool) -> list[int]:
    """For every delivery: 1 when it was new and its receiver later had a success that relied on that text, as the
    environment says; else 0; -1 when the environment does not say (`is_told`).
    """
    last: dict[tuple[int, str], float] = {}
    for event in events:
        if event.type is EventType.USE:
            last[event.agent, event.text] = event.time_s
    shown = [event for event in events if event.type is EventType.DELIVERY]
    return [
        int(new and last.get((event.agent, event.text), -1.0) >= event.time_s) if is_told else -1
        for event, new in zip(shown, fresh, strict=True)
    ]


def _facts(rollout: Rollout, group: Sequence[Rollout]) -> dict[str, Any]:
    turns = rollout.turns()
    returns = [other.return_ for other in group if other.stop_reason is not StopReason.FAILED]
    is_compared = len(returns) > 1 and rollout.stop_reason is not StopReason.FAILED
    advantage = None
    if is_compared:
        position = [other.key for other in group if other.stop_reason is not StopReason.FAILED].index(rollout.key)
        advantage = float(group_advantages(returns)[position])
    return {
        "run": rollout.key.run, "iteration": rollout.key.iteration, "group": rollout.key.group, "rollout": rollout.key.rollout,
        "task": rollout.task_id, "seed": str(rollout.seed), "limit_s": rollout.limit_s, "end_s": rollout.end_s,
        "return": rollout.return_, "stop_reason": rollout.stop_reason.value, "error": rollout.error,
        "hires": rollout.n_hires, "fires": sum(agent.fired_s is not None for agent in rollout.agents),
        "tokens": sum(turn.n_tokens for turn in turns), "prompt_tokens": sum(turn.prompt_tokens for turn in turns),
        "versions": sorted({turn.policy_version for turn in turns}), "advantage": advantage,
        "group_size": len(returns) if is_compared else 0, "group_mean": sum(returns) / len(returns) if is_compared else None,
    }  # fmt: skip


def viewer_data(
    rollout: Rollout, tokenizer: Tokenizer, group: Sequence[Rollout] = (), values: Mapping[int, Value] | None = None
) -> dict[str, Any]:
    """Everything that the page shows of one rollout, as plain JSON.

    `group`: the rollouts of its group, itself included, for the advantage (its return minus their mean, failed ones left
    out); `values`: what messages were worth, by the message's number. Raises DataError for ids that are not the tokenizer's.
    """
    limit_s = rollout.limit_s
    until_s = min(limit_s, rollout.end_s)
    events = sorted((event for event in rollout.events if event.time_s <= limit_s), key=lambda event: event.time_s)
    agents = sorted(rollout.agents, key=lambda agent: agent.id)
    lane = {agent.id: position for position, agent in enumerate(agents)}
    pieces, words, texts = Pieces(tokenizer), Texts(), Texts()
    counts = EventCounts()
    turns = _turn_columns(rollout, events, counts, lane, pieces, words)
    messages, deliveries = _message_columns(rollout, events, lane, texts)
    deliveries["used"] = _used(events, deliveries["fresh"], counts.tells_use)
    rewards = [event for event in events if event.type is EventType.REWARD]
    return {
        "facts": _facts(rollout, group),
        "kinds": [kind.value for kind in KINDS],
        "colours": [COLOURS[kind] for kind in KINDS],
        "palette": list(PALETTE),
        "wastes": ["", *(waste.value for waste in WASTES)],
        "agents": {
            "name": [agent.name for agent in agents],
            "is_ceo": [int(agent.id == CEO) for agent in agents],
            "hired_s": _rounded(agent.hired_s for agent in agents),
            "started_s": _rounded(agent.started_s for agent in agents),
            "left_s": _rounded(until_s if agent.fired_s is None else agent.fired_s for agent in agents),
            "fired": [int(agent.fired_s is not None) for agent in agents],
        },
        "turns": turns,
        "joint": pieces.joint,
        "pieces": pieces.table.all(),
        "words": words.all(),
        "messages": messages,
        "deliveries": deliveries,
        "texts": texts.all(),
        "rewards": {
            "time_s": _rounded(event.time_s for event in rewards),
            "agent": [lane[event.agent] for event in rewards],
            "value": _rounded((event.value for event in rewards), 6),
        },
        "values": {
            str(index): _rounded((value.mean, value.low, value.high), 6) for index, value in sorted((values or {}).items())
        },
    }
