"""The names that a version of the workshop knows: its agents, its packages, and what follows from them.

Names are exchangeable symbols: each task draws its own, so none of them can mean anything. The names of a city
are those of `workshop@1` and more; `vocabulary` has the new ones at its end, for policies whose vocabulary grows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from envs.workshop import language as lang

CITY_AGENTS: Final = 1024
CITY_PACKAGES: Final = 496  # the last 48 are those of no package: nicknames.py


@dataclass(frozen=True, slots=True)
class Names:
    """Agents and packages of the environment `id`; the sets are those of language.py for these names."""

    id: str
    agents: tuple[str, ...]
    packages: tuple[str, ...]
    vocabulary: tuple[str, ...]
    agent_set: frozenset[str] = field(init=False)
    package_set: frozenset[str] = field(init=False)
    argument_set: frozenset[str] = field(init=False)
    facts: frozenset[str] = field(init=False)  # every text that states one: `x k` with a real key

    @property
    def exchangeable(self) -> tuple[tuple[str, ...], ...]:
        """Classes of words that mean nothing but themselves: a policy must treat the words of one class alike."""
        return (self.agents, self.packages)

    def __post_init__(self) -> None:
        agents, packages = frozenset(self.agents), frozenset(self.packages)
        object.__setattr__(self, "agent_set", agents)
        object.__setattr__(self, "package_set", packages)
        object.__setattr__(self, "argument_set", agents | packages | lang.INDEX_SET | lang.KEY_WORD_SET)
        object.__setattr__(self, "facts", frozenset(f"{x} {k}" for x in self.packages for k in lang.KEYS))


VILLAGE: Final = Names("workshop@1", lang.AGENTS, lang.PACKAGES, lang.VOCABULARY)

_NEW_AGENTS: Final = tuple(f"a{i:03d}" for i in range(len(lang.AGENTS), CITY_AGENTS))
_NEW_PACKAGES: Final = tuple(f"p{i:02d}" for i in range(len(lang.PACKAGES), CITY_PACKAGES))

CITY: Final = Names(
    "workshop-names@1",
    (*lang.AGENTS, *_NEW_AGENTS),
    (*lang.PACKAGES, *_NEW_PACKAGES),
    (*lang.VOCABULARY, *_NEW_AGENTS, *_NEW_PACKAGES),
)
