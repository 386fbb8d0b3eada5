"""Nicknames: what one agent calls the agents and packages that it sees in this turn, in the words of `workshop@1`.

A city has more names than the vocabulary of a trained policy. Names are exchangeable, and with a bounded window an agent
sees at most a few at once; so each observation calls what it shows by names drawn anew from those of `workshop@1`, and what
the agent then says is read by the same table. Nothing is shown that was not shown, and nothing is hidden. A name
that the observation does not hold stands for nobody, or for one of 48 packages that no project has: as in `workshop@1`,
where most names belong to no package of the task.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from envs.workshop import language as lang
from envs.workshop.names import CITY

NO_AGENT = CITY.agents[-1]
PACKAGES, NO_PACKAGES = CITY.packages[: -len(lang.PACKAGES)], CITY.packages[-len(lang.PACKAGES) :]
_NOT_SHOWN = dict(zip(lang.PACKAGES, NO_PACKAGES, strict=True)) | dict.fromkeys(lang.AGENTS, NO_AGENT)


class Nicknames:
    """The table of one agent's turn."""

    __slots__ = ("_meaning",)

    def __init__(self) -> None:
        self._meaning: dict[str, str] = {}

    def write(self, words: Sequence[str], seed: int) -> list[str]:
        """The same words with nicknames, drawn from the seed."""
        rng = random.Random(seed)
        meaning: dict[str, str] = {}
        written: dict[str, str] = {}
        for names, nicknames in ((CITY.agent_set, lang.AGENTS), (CITY.package_set, lang.PACKAGES)):
            shown = [word for word in dict.fromkeys(words) if word in names]
            for word, nickname in zip(shown, rng.sample(nicknames, len(shown)), strict=True):
                written[word] = nickname
                meaning[nickname] = word
        self._meaning = meaning
        return [written.get(word, word) for word in words]

    def read(self, words: Sequence[str]) -> list[str]:
        """What the words mean: nicknames of this turn stand for their names, other names for nobody and no package."""
        return [self._meaning.get(word) or _NOT_SHOWN.get(word, word) for word in words]
