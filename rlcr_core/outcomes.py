"""What came of the calls and messages of one rollout, read from its events in one pass; the same for any environment.

Messages are compared by their text alone. An agent knows a text once it has sent it or was shown it. A delivery is NEW
to a receiver that did not know the text. A message is a REPOST when its sender knew the text; the brief of a hire never
is. A delivery is USED when it was new and its receiver later has a success that, says the environment, relied on that
text. A call is WASTE when it is of one of the classes of `Waste`: the price of credit that does not tell turns apart.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from rlcr_core.facts import work_result
from rlcr_core.types import Event, EventType, Rollout, Turn


class Waste(StrEnum):
    """Why a call was in vain; of a turn with several reasons the first in this order counts."""

    FULL_HIRE = "full_hire"  # a hire while the team had its full size
    NOBODY = "nobody"  # a direct message to nobody on the team, or a post while no other agent was employed
    REPOST = "repost"
    DUPLICATE = "duplicate"  # an environment call whose work somebody else had finished
    FAILED = "failed"  # an environment call that came to nothing


WASTES = tuple(Waste)
NO_WASTE = 0  # classes are numbered from 1 in the order of Waste
_NEVER = (math.nan, NO_WASTE, False)  # at or before no time, infinity included
_REFUSALS = {("hire", "full"): 1 + WASTES.index(Waste.FULL_HIRE), ("dm", "unknown"): 1 + WASTES.index(Waste.NOBODY)}
_NOBODY, _REPOST, _DUPLICATE, _FAILED = (
    1 + WASTES.index(w) for w in (Waste.NOBODY, Waste.REPOST, Waste.DUPLICATE, Waste.FAILED)
)


# Plain tuples, as there are tens of thousands of them an iteration.
# A message sent or an environment call ended: when, the number of its waste class, whether it is the call.
Outcome = tuple[float, int, bool]
# Of a turn: the number of its waste class, and whether it ended an environment call that was no waste.
TurnOutcome = tuple[int, bool]


@dataclass(slots=True)
class EventCounts:
    """Sums over the rollouts that were read; numbers of events unless the name says otherwise."""

    messages: int = 0
    judged: int = 0
    true: float = 0.0
    reposts: int = 0
    deliveries: int = 0
    new: int = 0
    used: int = 0
    tells_use: bool = False  # whether an environment said which messages its successes relied on
    calls: int = 0
    duplicate: float = 0.0
    failed: float = 0.0
    received_key: float = 0.0
    bounded: int = 0  # rollouts whose environment gave task facts; the sums below are over these alone
    bounded_end_s: float = 0.0
    task_work_s: float = 0.0
    critical_path_s: float = 0.0
    least_s: float = 0.0  # no team of this size can do the whole task in less
    done_s: float = 0.0


class _Work(NamedTuple):
    """What the facts of one WORK event say."""

    waste: int
    duplicate: float
    failed: float
    received_key: float
    units: float
    tells_use: bool


@lru_cache(maxsize=4096)  # few distinct texts make up thousands of events
def _work(text: str) -> _Work:
    facts = work_result(text)[1]
    duplicate, failed = facts.get("duplicate", 0.0), facts.get("failed", 0.0)
    waste = _DUPLICATE if duplicate else _FAILED if failed else NO_WASTE
    return _Work(waste, duplicate, failed, facts.get("received_key", 0.0), facts.get("units", 0.0), "uses" in facts)


class _Reader:
    """The state of one pass over a rollout's events."""

    def __init__(self, counts: EventCounts) -> None:
        self.counts = counts
        self.outcomes: defaultdict[int, list[Outcome]] = defaultdict(list)
        self.known: defaultdict[int, dict[str, bool]] = defaultdict(dict)  # text -> a new delivery that was not yet used
        self.others = 0  # employed agents beside the CEO
        self.hired: tuple[int, float] | None = None  # who was hired last, and when
        self.facts: dict[str, float] = {}
        self.units = 0.0
        self.handlers = {
            EventType.MESSAGE: self.message, EventType.WORK: self.work, EventType.USE: self.use, EventType.HIRE: self.hire,
            EventType.FIRE: self.fire, EventType.TASK: self.task,
        }  # fmt: skip

    def read(self, events: Sequence[Event]) -> None:
        known, handlers, counts, delivery = self.known, self.handlers, self.counts, EventType.DELIVERY
        for event in events:
            kind = event.type
            if kind is delivery:  # by far the most frequent
                counts.deliveries += 1
                texts, text = known[event.agent], event.text
                if text not in texts:
                    texts[text] = True
                    counts.new += 1
            elif kind in handlers:
                handlers[kind](event)

    def message(self, event: Event) -> None:
        counts, texts = self.counts, self.known[event.agent]
        counts.messages += 1
        if event.value >= 0:
            counts.judged += 1
            counts.true += event.value
        is_repost = event.text in texts
        if not is_repost:
            texts[event.text] = False
        if self.hired == (event.other, event.time_s):
            return  # a brief
        counts.reposts += is_repost
        waste = _NOBODY if event.other < 0 and not self.others else _REPOST if is_repost else NO_WASTE
        self.outcomes[event.agent].append((event.time_s, waste, False))

    def work(self, event: Event) -> None:
        counts, work = self.counts, _work(event.text)
        counts.calls += 1
        counts.duplicate += work.duplicate
        counts.failed += work.failed
        counts.received_key += work.received_key
        counts.tells_use |= work.tells_use
        if work.waste == NO_WASTE:
            self.units += work.units
        self.outcomes[event.agent].append((event.time_s, work.waste, True))

    def use(self, event: Event) -> None:
        texts = self.known[event.agent]
        if texts.get(event.text):
            texts[event.text] = False
            self.counts.used += 1

    def hire(self, event: Event) -> None:
        self.others += 1
        self.hired = (event.other, event.time_s)

    def fire(self, event: Event) -> None:
        self.others -= 1

    def task(self, event: Event) -> None:
        self.facts = work_result(event.text)[1]

    def close(self, rollout: Rollout) -> None:
        """Hold the rollout against what its task allows, if the environment has said that."""
        total_s, critical_s, unit_s = (self.facts.get(name, 0.0) for name in ("total_work_s", "critical_path_s", "unit_s"))
        if not (total_s > 0 and critical_s > 0 and unit_s > 0):
            return
        counts = self.counts
        counts.bounded += 1
        counts.bounded_end_s += rollout.end_s
        counts.task_work_s += total_s
        counts.critical_path_s += critical_s
        counts.least_s += max(critical_s, total_s / (1 + rollout.n_hires))
        counts.done_s += self.units * unit_s


def read_events(rollout: Rollout, counts: EventCounts) -> dict[int, list[Outcome]]:
    """Add a rollout's events to `counts`; the outcomes of each agent, in order of time.

    Raises DataError for a fact that is no number.
    """
    reader = _Reader(counts)
    reader.read(rollout.events)
    reader.close(rollout)
    return reader.outcomes


@lru_cache(maxsize=4096)
def _refused(tool: str, code: str) -> tuple[int, int, int]:
    """Of a turn's calls: how many ended, how many of them the collective refused in vain, and their first class."""
    pairs = list(zip(tool.split("+"), code.split("+"), strict=False)) if code else []
    classes = [_REFUSALS[pair] for pair in pairs if pair in _REFUSALS]
    return len(pairs), len(classes), min(classes, default=NO_WASTE)


def turn_outcomes(turns: Sequence[Turn], outcomes: Sequence[Outcome]) -> list[TurnOutcome]:
    """What came of each turn of one agent. A turn is waste when each of its calls is; one that was cut is not."""
    found: list[TurnOutcome] = []
    rest = iter(outcomes)
    time_s, waste_class, is_work = next(rest, _NEVER)
    for turn in turns:
        ended, wasted, waste = _refused(turn.tool, turn.code)
        effective, end_s = False, turn.end_s
        while time_s <= end_s:
            if waste_class:
                wasted += 1
                waste = min(waste, waste_class) if waste else waste_class
            elif is_work:
                effective = True
            time_s, waste_class, is_work = next(rest, _NEVER)
        in_vain = wasted and wasted == ended and not turn.cut
        found.append((waste if in_vain else NO_WASTE, effective))
    return found
