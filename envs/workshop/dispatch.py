"""Greedy list scheduling (Graham 1969) of a workshop task: which module comes next, and what that would come to.

Everything about the task is known here: units, dependencies, when each running piece of work ends. An action is spoken
before its tool time begins, so a module can be asked for while the last one that it needs is still being built.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from envs.workshop.environment import UNIT_S
from envs.workshop.spec import MAX_UNITS, Plan, topological_order
from rlcr_core.types import CEO, Terms

FREE: Final = -1  # the lock of a module that needs no key
ALL_OPEN: Final = (FREE,)
Priority = tuple[float, ...]  # the lowest first


def tails_s(plan: Plan) -> list[float]:
    """Per module the seconds of work on the longest chain that begins with it, itself included."""
    tails = [UNIT_S * units for units in plan.units]
    for module in reversed(topological_order(plan.deps)):
        tails[module] += max((tails[other] for other in plan.dependents[module]), default=0.0)
    return tails


def longest_chain_first(plan: Plan) -> list[Priority]:
    """The critical path first, then the longest: finishes everything soon."""
    return [(-tail_s, module) for module, tail_s in enumerate(tails_s(plan))]


def shortest_first(plan: Plan) -> list[Priority]:
    """What most others wait for, then the shortest: finishes many modules by a limit that not all can meet."""
    return [(-len(plan.dependents[module]), units, module) for module, units in enumerate(plan.units)]


RULES: Final[tuple[Callable[[Plan], list[Priority]], ...]] = (longest_chain_first, shortest_first)


class Dispatch:
    """Modules that nobody has claimed, by lock and priority. `locks` gives each module its package, or FREE."""

    def __init__(self, plan: Plan, priorities: Sequence[Priority], locks: Sequence[int] | None = None) -> None:
        self._plan, self._priorities = plan, priorities
        self._locks = locks or [FREE] * plan.n_modules
        self._missing = [len(deps) for deps in plan.deps]
        self._opens_s = [0.0] * plan.n_modules
        self._ready: dict[tuple[int, int], list[tuple[Priority, int]]] = {}  # (lock, units) -> heap
        self._ending: list[tuple[float, int]] = []  # (end, module) of the work that runs
        self.unclaimed = plan.n_modules
        for module, missing in enumerate(self._missing):
            if missing == 0:
                self._open(module)

    def _open(self, module: int) -> None:
        place = self._locks[module], self._plan.units[module]
        heapq.heappush(self._ready.setdefault(place, []), (self._priorities[module], module))

    def ends(self, module: int, end_s: float) -> None:
        """Work on a module has begun and will be finished at `end_s`."""
        heapq.heappush(self._ending, (end_s, module))

    def take(self, begin_s: float, limit_s: float, locks: Iterable[int] = ALL_OPEN) -> int | None:
        """Claim the first module behind these locks that is open at `begin_s` and can be finished by `limit_s`."""
        while self._ending and self._ending[0][0] <= begin_s:
            end_s, ended = heapq.heappop(self._ending)
            for other in self._plan.dependents[ended]:
                self._missing[other] -= 1
                self._opens_s[other] = max(self._opens_s[other], end_s)
                if self._missing[other] == 0:
                    self._open(other)
        fitting = min(MAX_UNITS, int((limit_s - begin_s) / UNIT_S + 1e-9))
        best: list[tuple[Priority, int]] | None = None
        for lock in locks:
            for units in range(1, fitting + 1):
                heap = self._ready.get((lock, units))
                if heap and self._opens_s[heap[0][1]] <= begin_s and (best is None or heap[0] < best[0]):
                    best = heap
        if best is None:
            return None
        self.unclaimed -= 1
        return heapq.heappop(best)[1]


class Outlook(NamedTuple):
    """What a schedule comes to by the limit: modules finished, and the seconds that they are finished before it."""

    finished: int
    early_s: float


def forecast(plan: Plan, terms: Terms, limit_s: float, hires: int, priorities: Sequence[Priority]) -> Outlook:
    """Play a task with perfect information: the CEO hires `hires` agents one after another, then everybody builds."""
    dispatch, finished, early_s = Dispatch(plan, priorities), 0, 0.0
    hire_s, speaking_s = terms.spoken_s("hire") + terms.hire_s, terms.spoken_s("work")
    pause_s = max(terms.spoken_s("wait") + terms.wait_s, speaking_s, 0.1)
    starts = [(hires * hire_s, CEO)] + [(0.0, 1 + i) for i in range(terms.staff)]
    starts += [((i + 1) * hire_s + terms.onboarding_s, 1 + terms.staff + i) for i in range(hires)]
    heapq.heapify(starts)
    while starts and dispatch.unclaimed:
        start_s, agent = heapq.heappop(starts)
        begin_s = round(start_s + speaking_s, 9)
        module = dispatch.take(begin_s, limit_s)
        end_s = start_s + pause_s if module is None else round(begin_s + UNIT_S * plan.units[module], 9)
        if module is not None:
            dispatch.ends(module, end_s)
            finished, early_s = finished + 1, early_s + limit_s - end_s
        if end_s < limit_s:
            heapq.heappush(starts, (end_s, agent))
    return Outlook(finished, round(early_s, 6))


def team_sizes(most: int) -> list[int]:
    """Numbers of hires to try: each up to 16, then half as many again."""
    sizes = list(range(min(most, 16) + 1))
    while sizes[-1] < most:
        sizes.append(min(most, sizes[-1] + sizes[-1] // 2))
    return sizes


class Choice(NamedTuple):
    """How to play a task: how many to hire first, and each module's priority."""

    hires: int
    priorities: Sequence[Priority]


def best_choice(plan: Plan, terms: Terms, limit_s: float) -> Choice:
    """The hires and the rule whose forecast finishes most modules by the limit, then soonest; of equals the fewest hires."""
    room = terms.max_hires - terms.staff
    hire_s = max(terms.spoken_s("hire") + terms.hire_s, 1e-3)
    most = min(room, plan.n_modules, int(limit_s / hire_s))
    tried: Mapping[tuple[int, int], Outlook] = {
        (hires, rule): forecast(plan, terms, limit_s, hires, RULES[rule](plan))
        for hires in team_sizes(most)
        for rule in range(len(RULES))
    }
    hires, rule = max(tried, key=lambda choice: (tried[choice], -choice[0], -choice[1]))
    return Choice(hires, RULES[rule](plan))
