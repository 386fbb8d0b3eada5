"""Signs of life of a collective: who works while time passes, what the work is worth, and what becomes of messages.

One pass over the turns and one over the events of each rollout; sums are pooled, so rates and shares are sum over sum.
Seconds of agents run from `started_s` to `fired_s`, or to the end of the rollout. Idle is what they do not spend in turns
other than waiting. An agent is at work in its `work` turns, from the start of the observation to the call's end, cut ones
too. Effective work is that of turns which ended an environment call that neither failed nor was a duplicate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlcr_core.labels import KIND_NUMBER, N_LABELS, SHAPE, by_kind, first_label, shares
from rlcr_core.outcomes import WASTES, EventCounts, TurnOutcome, read_events, turn_outcomes
from rlcr_core.types import Rollout, Turn, TurnKind

TEAM_SIZES = ((0, 0), (1, 2), (3, 4), (5, 8))


def team_size_bucket(n_hires: int) -> str:
    """The bucket of a number of hires: `0`, `1_2`, `3_4`, `5_8`, or `9_up` beyond what training allows."""
    for low, high in TEAM_SIZES:
        if low <= n_hires <= high:
            return f"{low}" if low == high else f"{low}_{high}"
    return "9_up"


def ratio(key: str, numerator: float, denominator: float) -> dict[str, float]:
    """{key: quotient}, or {} without a denominator."""
    return {key: float(numerator / denominator)} if denominator else {}


def at_work(intervals: Sequence[tuple[float, float]]) -> tuple[float, int]:
    """Seconds in which at least one of the [start, end) runs, and the most that run at once."""
    if not intervals:
        return 0.0, 0
    starts, ends = np.array(intervals, dtype=np.float64).T
    times = np.concatenate([ends, starts])
    order = np.argsort(times, kind="stable")  # at equal times ends come first
    running = np.cumsum(np.repeat([-1, 1], len(starts))[order])
    seconds = np.diff(times[order])
    return float(seconds[running[:-1] > 0].sum()), int(running.max())


@dataclass(slots=True)
class Volume:
    """Work and time of some rollouts: tokens of `work` turns, of the effective ones, seconds of rollout."""

    useful: int = 0
    effective: int = 0
    end_s: float = 0.0


@dataclass(slots=True)
class Signs:
    """Sums over the rollouts added."""

    rollouts: int = 0
    events: EventCounts = field(default_factory=EventCounts)
    tokens_L: list[int] = field(default_factory=lambda: [0] * N_LABELS)
    turns: int = 0
    cut: int = 0
    wasted_W: list[int] = field(default_factory=lambda: [0] * (1 + len(WASTES)))
    whole: Volume = field(default_factory=Volume)
    by_size: dict[str, Volume] = field(default_factory=dict)
    employed_s: float = 0.0
    acting_s: float = 0.0  # in turns other than waiting
    working_s: float = 0.0
    effective_s: float = 0.0
    span_s: float = 0.0
    most: int = 0

    def add(self, rollout: Rollout) -> None:
        """Read one rollout. Raises DataError for a fact of its work that is no number."""
        outcomes = read_events(rollout, self.events)
        part, intervals = Volume(end_s=rollout.end_s), list[tuple[float, float]]()
        for agent, turns in rollout.trajectories.items():
            self._read_turns(agent, turns, turn_outcomes(turns, outcomes.get(agent, [])), part, intervals)
        for record in rollout.agents:
            left_s = rollout.end_s if record.fired_s is None else min(record.fired_s, rollout.end_s)
            self.employed_s += max(0.0, left_s - record.started_s)
        span_s, most = at_work(intervals)
        self.span_s += span_s
        self.most += most
        self.rollouts += 1
        for volume in (self.whole, self.by_size.setdefault(team_size_bucket(rollout.n_hires), Volume())):
            volume.useful += part.useful
            volume.effective += part.effective
            volume.end_s += part.end_s

    def _read_turns(
        self,
        agent: int,
        turns: Sequence[Turn],
        outcomes: Sequence[TurnOutcome],
        part: Volume,
        intervals: list[tuple[float, float]],
    ) -> None:
        """Add one agent's turns, those at work also to `part` and `intervals`."""
        first, work, wait, width = first_label(agent), TurnKind.WORK, TurnKind.WAIT, SHAPE[2]
        for turn, (waste, effective) in zip(turns, outcomes, strict=True):
            kind, n, seconds = turn.kind, len(turn.action_ids), turn.end_s - turn.start_s
            self.tokens_L[first + KIND_NUMBER[kind] * width + waste] += n
            self.wasted_W[waste] += 1
            self.cut += turn.cut
            if kind is work:
                self.working_s += seconds
                part.useful += n
                intervals.append((turn.start_s, turn.end_s))
                if effective:
                    self.effective_s += seconds
                    part.effective += n
            if kind is not wait:
                self.acting_s += seconds
        self.turns += len(turns)

    # -- metrics -----------------------------------------------------------------------------------------------------

    def metrics(self) -> dict[str, float]:
        """`work/…`, `talk/…`, `parallel/…`, `waste/…`, `tokens/…` and `turns/…` of the rollouts added; {} for none."""
        if not self.rollouts:
            return {}
        return self._work() | self._talk() | self._parallel() | self._bounds() | self._volume()

    def _work(self) -> dict[str, float]:
        events, whole, n = self.events, self.whole, self.rollouts
        found = {
            "work/useful_tokens": whole.useful / n,
            "work/effective_tokens": whole.effective / n,
            "work/calls": events.calls / n,
            "work/received_key_mean": events.received_key / n,
            **ratio("work/useful_tokens_per_s", whole.useful, whole.end_s),
            **ratio("work/effective_tokens_per_s", whole.effective, whole.end_s),
            **ratio("work/effective_share", whole.effective, whole.useful),
            **ratio("work/duplicate_share", events.duplicate, events.calls),
            **ratio("work/failed_share", events.failed, events.calls),
            **ratio("work/received_key_share", events.received_key, events.calls),
        }
        for size, part in self.by_size.items():
            for name in ("useful", "effective"):
                tokens, of_all = getattr(part, name), getattr(whole, name)
                found |= ratio(f"work/{name}_tps_hires_{size}", tokens, part.end_s)
                found |= ratio(f"work/{name}_to_iteration_hires_{size}", tokens * whole.end_s, of_all * part.end_s)
        return found

    def _talk(self) -> dict[str, float]:
        events, n = self.events, self.rollouts
        used = {"talk/used": events.used / n, **ratio("talk/used_share", events.used, events.deliveries)}
        return {
            "talk/messages": events.messages / n,
            "talk/delivered": events.deliveries / n,
            "talk/new": events.new / n,
            **ratio("talk/true_share", events.true, events.judged),
            **ratio("talk/repost_share", events.reposts, events.messages),
            **ratio("talk/new_share", events.new, events.deliveries),
            **(used if events.tells_use else {}),
            **ratio("talk/intensity_tps", by_kind(self.tokens_L)[TurnKind.TALK], self.whole.end_s),
        }

    def _parallel(self) -> dict[str, float]:
        end_s = self.whole.end_s
        return {
            "parallel/employed_s": self.employed_s / self.rollouts,
            "parallel/at_work_max": self.most / self.rollouts,
            **ratio("parallel/at_work_mean", self.working_s, end_s),
            **ratio("parallel/effective_mean", self.effective_s, end_s),
            **ratio("parallel/span_share", self.span_s, end_s),
            **ratio("parallel/speedup", self.working_s, self.span_s),
            **ratio("parallel/idle_share", self.employed_s - self.acting_s, self.employed_s),
            **ratio("parallel/work_share", self.working_s, self.employed_s),
            **ratio("parallel/efficiency", self.effective_s, self.employed_s),
        }

    def _bounds(self) -> dict[str, float]:
        events = self.events
        return {
            **ratio("parallel/task_work_s", events.task_work_s, events.bounded),
            **ratio("parallel/critical_path_s", events.critical_path_s, events.bounded),
            **ratio("parallel/speedup_possible", events.task_work_s, events.critical_path_s),
            **ratio("parallel/speedup_bound", events.task_work_s, events.least_s),
            **(ratio("parallel/speedup_task", events.done_s, events.bounded_end_s) if events.bounded else {}),
        }

    def _volume(self) -> dict[str, float]:
        total, n = sum(self.tokens_L), self.rollouts
        return {
            "tokens/total": float(total),
            "tokens/per_rollout": total / n,
            "turns/total": float(self.turns),
            **ratio("turns/cut_share", self.cut, self.turns),
            **{f"waste/{waste}": count / n for waste, count in zip(WASTES, self.wasted_W[1:], strict=True)},
            **shares("tokens/share", self.tokens_L),
        }
