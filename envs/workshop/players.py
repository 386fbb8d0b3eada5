"""Scripted players of the workshop: baselines and practical ceilings. Each plays every agent of one rollout.

    random_valid    draws from the declared distribution of random valid actions (grammar.py): the floor
    sighted_…       who know what their agents see, each alone (sighted.py)
    solo            the CEO builds alone, with perfect information; whoever else is employed waits
    reader          nobody is told a key: agents finish roots or study packages, and build what they know the key of
    greedy_posting  a key is used by who found it out or was told; who finishes a root posts its key
    greedy          greedy list scheduling with perfect information, keys included: the practical ceiling

The last four know the task, what is open, what is being built and until when, so nothing is built twice and nothing
fails. The CEO first hires as many agents as the forecast of dispatch.py finds best, which may be none.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, cast

from envs.workshop import language as lang
from envs.workshop.dispatch import ALL_OPEN, FREE, Choice, Dispatch, best_choice
from envs.workshop.environment import STUDY_S, UNIT_S, WorkshopEnvironment
from envs.workshop.grammar import random_action
from envs.workshop.sighted import SightedPosting, SightedReading
from rlcr_core.types import CEO, Call, Environment, Player, Scene, Terms

WAIT: Final = "wait"


class RandomValid:
    """Random valid actions, copied from what the agent sees; the seed is the turn's own."""

    def __init__(self, environment: Environment, terms: Terms) -> None:
        pass

    def act(self, scene: Scene) -> str:
        return random_action(scene.text, random.Random(scene.view.seed))

    def began(self, agent: int, call: Call, end_s: float) -> None:
        """Nothing is remembered."""


class Greedy:
    """Greedy list scheduling; keys need not be found out. The bases of the others, which change what is known."""

    locked = False  # whether a keyed module waits for who knows its package's key

    def __init__(self, environment: Environment, terms: Terms) -> None:
        self.plan = cast(WorkshopEnvironment, environment).plan
        self.terms = terms
        self._choice: Choice | None = None
        self._dispatch: Dispatch
        self._claims: dict[int, int] = {}  # agent -> the module that it builds or is about to

    def act(self, scene: Scene) -> str:
        if self._choice is None:
            self._choice = self.choose(scene.view.limit_s)
            keyed = zip(self.plan.package, self.plan.needs_key, strict=True)
            locks = [package if needs_key and self.locked else FREE for package, needs_key in keyed]
            self._dispatch = Dispatch(self.plan, self._choice.priorities, locks)
        if self._is_hiring(scene):
            return "hire"
        return self.play(scene)

    def _is_hiring(self, scene: Scene) -> bool:
        view = scene.view
        wanted = self._choice.hires + self.terms.staff if self._choice else 0
        return view.is_ceo and view.n_hired < min(wanted, view.max_hires)

    def choose(self, limit_s: float) -> Choice:
        return best_choice(self.plan, self.terms, limit_s)

    def play(self, scene: Scene) -> str:
        return self.work(scene) or WAIT

    def work(self, scene: Scene, locks: Iterable[int] = ALL_OPEN) -> str:
        """Claim the next module behind these locks and say so; empty when there is none now."""
        begin_s = round(scene.view.time_s + self.terms.spoken_s("work"), 9)  # or later, when there is more to read
        module = self._dispatch.take(begin_s, scene.view.limit_s, locks)
        if module is None:
            return ""
        self._claims[scene.view.agent] = module
        package = self.plan.package[module]
        key = self.plan.keys[package] if self.plan.needs_key[module] else lang.NO_KEY
        return f"work {self.plan.names[package]} {key} {lang.INDICES[self.plan.index[module]]}"

    def began(self, agent: int, call: Call, end_s: float) -> None:
        if call.tool == "work":
            self._dispatch.ends(self._claims[agent], end_s)


class Solo(Greedy):
    """The CEO alone."""

    def choose(self, limit_s: float) -> Choice:
        return best_choice(self.plan, self.terms._replace(max_hires=0, staff=0), limit_s)

    def act(self, scene: Scene) -> str:
        return super().act(scene) if scene.view.agent == CEO else WAIT

    def _is_hiring(self, scene: Scene) -> bool:
        return False


class _Knowing(Greedy):
    """What each agent knows: keys of packages whose root it finished, that it studied or was told."""

    locked = True

    def __init__(self, environment: Environment, terms: Terms) -> None:
        super().__init__(environment, terms)
        self._number = {name: package for package, name in enumerate(self.plan.names)}
        self._known: defaultdict[int, set[int]] = defaultdict(set)  # agent -> packages
        # Keyed modules of a package that nobody has claimed yet.
        self._left = [0] * len(self.plan.names)
        for package, needs_key in zip(self.plan.package, self.plan.needs_key, strict=True):
            self._left[package] += needs_key

    def learn(self, scene: Scene) -> list[int]:
        """Note what the agent was told and what its last call showed; returns the packages it found out itself."""
        view, known = scene.view, self._known[scene.view.agent]
        for _, text in view.new_messages:
            words = text.split(" ")
            package = self._number.get(words[0])
            if package is not None and words[1:] == [self.plan.keys[package]]:
                known.add(package)
        last = view.last
        if last is None or last.code not in ("done", "learned") or last.args[1] not in lang.KEY_SET:
            return []
        package = self._number[last.args[0]]
        known.add(package)
        return [package]

    def build(self, scene: Scene) -> str:
        """Work on what the agent can: packages that it knows and modules without a key."""
        said = self.work(scene, [FREE, *sorted(p for p in self._known[scene.view.agent] if self._left[p])])
        if said:
            module = self._claims[scene.view.agent]
            self._left[self.plan.package[module]] -= self.plan.needs_key[module]
        return said


class GreedyPosting(_Knowing):
    """Keys are posted once by who finishes the root, and once more when the last planned agent has been hired."""

    def __init__(self, environment: Environment, terms: Terms) -> None:
        super().__init__(environment, terms)
        self._late: list[int] = []  # posted before everybody was there

    def play(self, scene: Scene) -> str:
        for package in self.learn(scene):
            if self._left[package] and scene.view.team:
                if not self._is_complete(scene):
                    self._late.append(package)
                return self._post(package)
        if self._late and self._is_complete(scene):
            own = [p for p in self._late if p in self._known[scene.view.agent]]
            if own:
                self._late.remove(own[0])
                return self._post(own[0])
        return self.build(scene) or WAIT

    def _is_complete(self, scene: Scene) -> bool:
        assert self._choice is not None
        return scene.view.n_hired >= min(self._choice.hires + self.terms.staff, scene.view.max_hires)

    def _post(self, package: int) -> str:
        return f"post {self.plan.names[package]} {self.plan.keys[package]}"


class Reader(_Knowing):
    """Who knows no key that is of use builds a root, or studies the package with most work left for each who knows it."""

    def __init__(self, environment: Environment, terms: Terms) -> None:
        super().__init__(environment, terms)
        self._readers = [0] * len(self.plan.names)  # agents that know, study, or build the root of a package

    def play(self, scene: Scene) -> str:
        self.learn(scene)
        said = self.build(scene)
        if said:
            module = self._claims[scene.view.agent]
            self._readers[self.plan.package[module]] += self.plan.index[module] == 0
            return said
        ready_s = scene.view.time_s + self.terms.spoken_s("study") + STUDY_S + self.terms.spoken_s("work") + UNIT_S
        if ready_s > scene.view.limit_s:
            return WAIT
        known = self._known[scene.view.agent]
        unknown = [p for p, left in enumerate(self._left) if left and p not in known]
        if not unknown:
            return WAIT
        package = max(unknown, key=lambda p: (self._left[p] / (1 + self._readers[p]), -p))
        self._readers[package] += 1
        return f"study {self.plan.names[package]}"


PLAYERS: Final[Mapping[str, type[Player]]] = MappingProxyType(
    {
        "random_valid": RandomValid, "solo": Solo, "sighted_reading": SightedReading, "sighted_posting": SightedPosting,
        "reader": Reader, "greedy_posting": GreedyPosting, "greedy": Greedy,
    }
)  # fmt: skip
