"""Cities: the rules of `workshop@1` for up to 1,000 agents and 448 packages, in two forms of the same tasks.

`workshop-names@1` says every name in full, in a vocabulary of 1,596 words: for scripted players, and for policies whose
vocabulary has grown. `workshop-city@1` speaks the vocabulary of `workshop@1`: whoever plays it sees nicknames
(nicknames.py), so a policy of `workshop@1` plays it as it is. Messages, results and the archive hold the full names; each
reader sees them by the nicknames of its turn, which needs the bounded window.
"""

from __future__ import annotations

from typing import Any

from envs.workshop.environment import WorkshopEnvironment
from envs.workshop.names import CITY
from envs.workshop.nicknames import NO_AGENT, NO_PACKAGES, PACKAGES, Nicknames
from envs.workshop.tasks import generate as generate_tasks
from rlcr_core.errors import TaskError
from rlcr_core.types import AgentView, Call, Observation, Task

CITY_ID = "workshop-city@1"


class NamesEnvironment(WorkshopEnvironment):
    """A city with its names in full. Raises TaskError, EnvironmentFault as WorkshopEnvironment does."""

    language = CITY

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        unusable = sorted(set(NO_PACKAGES) & set(self.plan.names))
        if unusable:
            raise TaskError(f"spec.packages: {', '.join(unusable)} are names of no package; generate the tasks again.")
        self._names = tuple(name for name in self._names if name != NO_AGENT)


class CityEnvironment(NamesEnvironment):
    """The same with nicknames. Of its vocabulary, agents see and say only the words of `workshop@1`."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.id = CITY_ID
        self._nicknames: dict[int, Nicknames] = {}

    def observe(self, view: AgentView) -> Observation:
        observation = super().observe(view)
        table = self._nicknames.setdefault(view.agent, Nicknames())
        return Observation(" ".join(table.write(observation.text.split(" "), view.seed)), observation.n_new)

    def parse(self, agent: int, text: str) -> Call:
        table = self._nicknames.setdefault(agent, Nicknames())
        return super().parse(agent, " ".join(table.read(text.split(" "))))


def generate(environment_id: str = CITY_ID, **task_set: Any) -> list[Task]:
    """Tasks of a split from the names of a city; `task_set` are the keywords of `generate` in tasks.py. Raises TaskError."""
    return generate_tasks(environment_id, **task_set, pool=PACKAGES)
