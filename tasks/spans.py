"""A rollout as a tree of bars over its own clock: rollout, agents, turns; and which rollouts are worth a look.

Of the group whose returns spread the most (there the advantage tells the rollouts apart) the best, the median and the worst
are shown. A turn's input is what its agent saw, its output what the agent said, and the events that it caused or was shown
hang on it. Nothing here knows where the bars are drawn; tasks/traces.py gives them to MLflow.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcr_core.advantages import group_advantages
from rlcr_core.clock import COLLECTIVE_TOOLS
from rlcr_core.errors import ConfigError
from rlcr_core.facts import work_result
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import CEO, AgentRecord, Event, EventType, Rollout, StopReason, Turn, TurnKind

MAX_SPANS = 400  # of one trace; a rollout of 8 hires has about 150
MAX_EVENTS = 100  # of one span: OpenTelemetry drops more than 128 in silence
USAGE = "mlflow.chat.tokenUsage"  # MLflow adds these up to the trace's tokens
ACCEPTED = frozenset({"hired", "fired", "sent", "posted", "read", "found", "waited"})  # results of the collective's own calls


@dataclass(frozen=True, slots=True)
class Pick:
    """A rollout that is shown, and why: `best`, `median` or `worst`. The advantage is the one before scaling."""

    name: str
    rollout: Rollout
    advantage: float | None = None  # None: its group has no other rollout


@dataclass(slots=True)
class Span:
    """A bar of the trace, in seconds of the rollout; `parent` is an index into the list of spans, -1 for the rollout's."""

    name: str
    type: str
    parent: int
    start_s: float
    end_s: float
    inputs: Any
    outputs: Any
    attributes: dict[str, Any]
    error: str = ""
    events: list[tuple[float, str, dict[str, str | float]]] = field(default_factory=list)  # (seconds, name, attributes)


def pick_rollouts(rollouts: Sequence[Rollout]) -> list[Pick]:
    """Best, median (the lower one of two) and worst of the group with the largest spread of returns, each at most once.

    Equal spreads: the first group; equal returns: the order of their numbers. Where every group is a single rollout, as in
    most evaluations, they are compared across tasks, and no advantage is given.
    """
    groups: dict[tuple[str, int, int], list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        groups[rollout.key[:3]].append(rollout)
    if not groups:
        return []
    is_single = all(len(group) == 1 for group in groups.values())
    ranked = [sorted(rollouts if is_single else groups[key], key=lambda r: (r.return_, r.key)) for key in sorted(groups)]
    chosen = max(ranked, key=lambda group: group[-1].return_ - group[0].return_)
    advantages = group_advantages([rollout.return_ for rollout in chosen])
    places = {"best": len(chosen) - 1, "worst": 0, "median": (len(chosen) - 1) // 2}
    first = {place: name for name, place in reversed(places.items())}  # the name that a shared place keeps
    return [
        Pick(name, chosen[place], None if is_single else float(advantages[place]))
        for name, place in places.items()
        if first[place] == name
    ]


def build_spans(pick: Pick, tokenizer: Tokenizer, max_spans: int = MAX_SPANS) -> list[Span]:
    """The spans of a rollout, parents before children: the rollout, then each agent with its turns.

    Beyond `max_spans` whole agents are left out, the last ones hired first; the rollout's span says how many agents and
    turns. Raises ConfigError when not even one turn would fit.
    """
    if max_spans < 3:
        raise ConfigError(f"A trace needs a rollout, an agent and a turn, got max_spans {max_spans}, expected 3 or more.")
    rollout = pick.rollout
    end_s = max([rollout.end_s, *(turn.end_s for turn in rollout.turns())])
    spans, lanes = [_rollout_span(pick, end_s)], {}
    n_turns = 0
    for agent in rollout.agents:
        room = max_spans - len(spans)
        if room < 2:
            break
        turns = rollout.trajectories.get(agent.id, [])
        lanes[agent.id] = len(spans)
        spans.append(_agent_span(agent, turns, end_s))
        spans += [_turn_span(turn, lanes[agent.id], tokenizer) for turn in turns[: room - 1]]
        n_turns += len(turns[: room - 1])
    spans[0].attributes["agents_left_out"] = len(rollout.agents) - len(lanes)
    spans[0].attributes["turns_left_out"] = len(rollout.turns()) - n_turns
    _hang_events(rollout, spans, lanes)
    return spans


def _rollout_span(pick: Pick, end_s: float) -> Span:
    rollout = pick.rollout
    is_failed = rollout.stop_reason is StopReason.FAILED
    attributes = {
        "return": rollout.return_, "limit_s": rollout.limit_s, "end_s": rollout.end_s, "hires": rollout.n_hires,
        "fires": sum(agent.fired_s is not None for agent in rollout.agents), "stop_reason": rollout.stop_reason.value,
        "turns": len(rollout.turns()), "tokens": sum(turn.n_tokens for turn in rollout.turns()),
        "messages": sum(event.type is EventType.MESSAGE for event in rollout.events), "seed": str(rollout.seed),
    }  # fmt: skip
    if pick.advantage is not None:
        attributes |= {"advantage": pick.advantage, "group_mean": rollout.return_ - pick.advantage}
    outputs = {"return": round(rollout.return_, 6), "stop_reason": rollout.stop_reason.value, "hires": rollout.n_hires}
    return Span(
        _title(pick), "ROLLOUT", -1, 0.0, end_s, {"task": rollout.task_id, "limit_s": rollout.limit_s}, outputs, attributes,
        rollout.error or "failed" if is_failed else "",
    )  # fmt: skip


def _title(pick: Pick) -> str:
    key = pick.rollout.key
    return f"{key.run} iteration {key.iteration} group {key.group}: {pick.name}"


def _agent_span(agent: AgentRecord, turns: Sequence[Turn], end_s: float) -> Span:
    attributes = {
        "agent": agent.id, "hired_s": agent.hired_s, "started_s": agent.started_s, "turns": len(turns),
        "tokens": sum(turn.n_tokens for turn in turns),
    }  # fmt: skip
    if agent.fired_s is not None:
        attributes["fired_s"] = agent.fired_s
    until_s = end_s if agent.fired_s is None else agent.fired_s
    until_s = max([until_s, *(turn.end_s for turn in turns[-1:])])
    name = f"{agent.name} (CEO)" if agent.id == CEO else agent.name
    return Span(name, "AGENT", 0, agent.hired_s, until_s, None, None, attributes)


def _turn_span(turn: Turn, parent: int, tokenizer: Tokenizer) -> Span:
    n_read, n_said = turn.prompt_tokens, turn.n_tokens
    attributes: dict[str, Any] = {
        "kind": turn.kind.value, "tool": turn.tool, "code": turn.code, "tokens": n_said, "prompt_tokens": n_read,
        "logprob_mean": float(np.mean(turn.logprobs)) if len(turn.logprobs) else 0.0, "turn": turn.index, "context": turn.context,
        "policy_version": turn.policy_version, "cut": turn.cut, "tool_s": turn.tool_s, "derived_s": turn.derived_s,
        USAGE: {"input_tokens": n_read, "output_tokens": n_said, "total_tokens": n_read + n_said},
    }  # fmt: skip
    kind = turn.kind.value
    name = kind if turn.tool in ("", kind) else f"{kind} {turn.tool}"
    saw, said = tokenizer.decode(list(turn.observation_ids)), tokenizer.decode(list(turn.action_ids))
    return Span(name, kind.upper(), parent, turn.start_s, turn.end_s, saw, said, attributes, _refusal(turn))


def _refusal(turn: Turn) -> str:
    """Why the turn came to nothing: malformed, or refused by the collective; work that failed says so in its own event."""
    if turn.kind is TurnKind.INVALID:
        return f"invalid: {turn.tool}" if turn.tool else "invalid"
    calls = zip(turn.tool.split("+"), turn.code.split("+"), strict=False)  # a solved task leaves calls without a result
    refused = [f"{tool}: {code}" for tool, code in calls if tool in COLLECTIVE_TOOLS and code and code not in ACCEPTED]
    return ", ".join(refused)


def _hang_events(rollout: Rollout, spans: list[Span], lanes: Mapping[int, int]) -> None:
    """Each event on the turn that showed it (a delivery) or ended with it, else on its agent, else on the rollout.

    A work event whose facts say `failed` or `duplicate` makes its turn an error. Events of left-out turns are left out.
    """
    names = {agent.id: agent.name for agent in rollout.agents}
    turns = {agent: [span for span in spans[first + 1 :] if span.parent == first] for agent, first in lanes.items()}
    for event in rollout.events:
        if event.agent in names and event.agent not in lanes:
            continue
        lane = turns.get(event.agent, [])
        is_whole = len(lane) == len(rollout.trajectories.get(event.agent, []))
        if lane and not is_whole and event.time_s > lane[-1].end_s:
            continue
        span = _turn_of(event, lane) or spans[lanes.get(event.agent, 0)]
        _hang(span, event, names)


def _turn_of(event: Event, turns: Sequence[Span]) -> Span | None:
    """A delivery is shown as a turn starts; whatever else an agent does is stamped after its turn's start, up to its end."""
    if event.type is EventType.DELIVERY:
        place = bisect_right(turns, event.time_s, key=lambda span: span.start_s) - 1
        return turns[place] if place >= 0 and event.time_s <= turns[place].end_s else None
    place = bisect_left(turns, event.time_s, key=lambda span: span.end_s)
    return turns[place] if place < len(turns) and turns[place].start_s < event.time_s else None


def _hang(span: Span, event: Event, names: Mapping[int, str]) -> None:
    if event.type is EventType.WORK:
        code, facts = work_result(event.text)
        if facts.get("failed") or facts.get("duplicate"):
            span.error = span.error or code
    if len(span.events) == MAX_EVENTS:
        span.attributes["events_left_out"] = span.attributes.get("events_left_out", 0) + 1
        return
    attributes: dict[str, str | float] = {"time_s": event.time_s, "value": event.value}
    if event.text:
        attributes["text"] = event.text
    if event.type in (EventType.MESSAGE, EventType.DELIVERY, EventType.HIRE, EventType.FIRE):
        attributes["from" if event.type is EventType.DELIVERY else "to"] = names.get(event.other, "everyone")
    span.events.append((event.time_s, event.type.value, attributes))
