"""Analytic bounds of a workshop task: what no players can exceed, whatever they know, say or guess.

Least cost of a module of u units: `spoken_s("work")` of speaking and 4 u seconds of work; prompts and failures only add to
it. The action may be spoken while the last module that it needs is still being built, so a chain of modules built by
different agents costs the first one's speaking and then work alone. Keys are ignored: they can be guessed.

    work / N        the cheapest modules that fit the agent-seconds available by T, hires paid for and started one by one
    critical path   the modules whose longest chain can be finished by T
    Amdahl          both together: the cheapest modules among those that their chains allow

Amdahl's law itself (1967), speed-up = 1 / ((1 - p) + p / N), lets nothing else happen during the serial share. Here chained
and free modules overlap, so the law is no bound: its time is what greedy list scheduling is guaranteed to need at most
(Graham 1969), with the critical path as the serial share. `amdahl_speedup` gives it for comparison.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple, cast

from envs.workshop.environment import UNIT_S, WorkshopEnvironment
from envs.workshop.spec import Plan, topological_order
from rlcr_core.errors import TaskError
from rlcr_core.types import Environment, Terms

_SLACK_S = 1e-6  # sums of nanosecond times may round by less
_RESOLUTION_S = 1e-3


class ReturnBounds(NamedTuple):
    """Upper bounds on the return at one limit; `amdahl` is the tightest."""

    work: float
    critical_path: float
    amdahl: float


class WorkshopBounds:
    """Bounds of one task under one set of terms. N is 1 + `terms.max_hires`; the CEO hires at its own pace."""

    def __init__(self, plan: Plan, terms: Terms) -> None:
        self.plan, self.terms = plan, terms
        self.costs_s = [terms.spoken_s("work") + UNIT_S * units for units in plan.units]
        self.earliest_s = _earliest(plan, terms.spoken_s("work"))

    @property
    def work_s(self) -> float:
        """Agent-seconds that the whole task takes at least: the time of one agent who is never idle."""
        return sum(self.costs_s)

    @property
    def critical_path_s(self) -> float:
        """Seconds until the longest chain is finished at the earliest, however many work."""
        return max(self.earliest_s)

    @property
    def parallel_share(self) -> float:
        """1 - critical path / work, both in seconds of work without speaking: Amdahl's p of this very task."""
        speaking_s = self.terms.spoken_s("work")
        return 1.0 - (self.critical_path_s - speaking_s) / (UNIT_S * sum(self.plan.units))

    def agent_seconds(self, limit_s: float) -> float:
        """Most agent-seconds that can go into work by the limit, over every number of hires from none to the cap.

        The k-th hire starts after k hire calls of the CEO and the onboarding; each call costs the CEO its time. Firing
        frees a place and costs more, so it cannot add.
        """
        hire_s = self.terms.spoken_s("hire") + self.terms.hire_s
        total_s = limit_s * (1 + self.terms.staff)
        for number in range(1, self.terms.max_hires - self.terms.staff + 1):
            gain_s = limit_s - number * hire_s - self.terms.onboarding_s - hire_s
            if gain_s <= 0:  # the hire would work for less than its call cost the CEO, and so would every later one
                break
            total_s += gain_s
        return total_s

    def returns(self, limit_s: float) -> ReturnBounds:
        """Upper bounds on the return at the limit."""
        room_s = self.agent_seconds(limit_s) + _SLACK_S
        reachable = [earliest_s <= limit_s + _SLACK_S for earliest_s in self.earliest_s]
        allowed = [cost_s for cost_s, is_reachable in zip(self.costs_s, reachable, strict=True) if is_reachable]
        counts = _fitting(self.costs_s, room_s), sum(reachable), _fitting(allowed, room_s)
        work, chain, both = (count / self.plan.n_modules for count in counts)
        return ReturnBounds(work, chain, both)

    def least_time_s(self, target: float) -> float:
        """The least time by which a return of `target` is possible, rounded down to milliseconds. Raises TaskError."""
        if not 0 < target <= 1:
            raise TaskError(f"a return of the workshop is above 0 and at most 1, got {target:g}; change the target.")
        low_s, high_s = 0.0, self.work_s + self.critical_path_s
        while high_s - low_s > _RESOLUTION_S / 2:
            middle_s = (low_s + high_s) / 2
            low_s, high_s = (low_s, middle_s) if self.returns(middle_s).amdahl >= target - 1e-12 else (middle_s, high_s)
        return low_s // _RESOLUTION_S * _RESOLUTION_S


def workshop_bounds(environment: Environment, terms: Terms) -> WorkshopBounds:
    """The bounds of the task that an environment of the workshop was made for."""
    return WorkshopBounds(cast(WorkshopEnvironment, environment).plan, terms)


def amdahl_speedup(parallel_share: float, agents: int) -> float:
    """Amdahl's law: how many times faster `agents` are than one when 1 - `parallel_share` of the work is serial."""
    return 1.0 / ((1.0 - parallel_share) + parallel_share / agents)


def _earliest(plan: Plan, speaking_s: float) -> list[float]:
    """Per module the earliest time in seconds at which it can be finished, with an agent ready for each."""
    earliest = [0.0] * plan.n_modules
    for module in topological_order(plan.deps):
        begin_s = max([speaking_s, *(earliest[other] for other in plan.deps[module])])
        earliest[module] = begin_s + UNIT_S * plan.units[module]
    return earliest


def _fitting(costs_s: list[float], room_s: float) -> int:
    """How many of these costs fit into the room, the cheapest first."""
    return bisect_right(list(accumulate(sorted(costs_s))), room_s)
