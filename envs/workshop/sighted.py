"""Scripted players who know what their agents see and remember, and no more: each agent decides alone.

    sighted_posting  hires until full, posts a key found out once, builds a random module of the board whose key it knows
    sighted_reading  the same without a message: who knows no key on its board studies one of its packages

What nobody can see here is who builds what, so work is done twice. They show what good habits come to without anything said
about who does what; the players of players.py are above them.
"""

from __future__ import annotations

import random
from collections import defaultdict
from typing import Final

from envs.workshop import language as lang
from envs.workshop.environment import STUDY_S, UNIT_S
from envs.workshop.grammar import read_observation
from rlcr_core.types import Call, Environment, Scene, Terms

_ROOT: Final = lang.INDICES[0]
_FULL: Final = lang.SIZES[-1]


class SightedPosting:
    posts = True

    def __init__(self, environment: Environment, terms: Terms) -> None:
        self._after_study_s = STUDY_S + UNIT_S + terms.spoken_s("study") + terms.spoken_s("work")
        self._locked: defaultdict[int, set[str]] = defaultdict(set)  # agent -> packages whose modules asked for a key

    def act(self, scene: Scene) -> str:
        agent, words = scene.view.agent, scene.text.split(" ")
        shown = read_observation(words)
        if scene.view.is_ceo and words[2] != _FULL:
            return "hire"
        last = scene.view.last
        if last is not None and last.code == "needkey":
            self._locked[agent].add(last.args[0])
        if self.posts and shown.team and last is not None and last.code == "done" and last.args[1] in lang.KEY_SET:
            return f"post {last.args[0]} {last.args[1]}"
        key_of = dict(reversed(shown.facts))  # own facts win over received ones, newer over older
        rng = random.Random(scene.view.seed)
        can = [(x, key_of.get(x, lang.NO_KEY), i) for x, i in shown.board if x in key_of or i == _ROOT]
        might = [(x, lang.NO_KEY, i) for x, i in shown.board if x not in self._locked[agent]]
        if can or might:
            return " ".join(("work", *rng.choice(can or might)))
        return self.otherwise(scene, sorted({x for x, _ in shown.board}), rng)

    def otherwise(self, scene: Scene, packages: list[str], rng: random.Random) -> str:
        """What to do when every module of the board needs a key that the agent does not know."""
        return "wait"

    def began(self, agent: int, call: Call, end_s: float) -> None:
        """Nobody sees what others are doing."""


class SightedReading(SightedPosting):
    posts = False

    def otherwise(self, scene: Scene, packages: list[str], rng: random.Random) -> str:
        can_pay = packages and scene.view.time_left_s > self._after_study_s
        return f"study {rng.choice(packages)}" if can_pay else "wait"
