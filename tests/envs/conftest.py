"""A tiny hand-written workshop task and helpers to play it."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.types import AgentView, CallResult, Task

# No test here asserts anything about time, also on a busy machine.
settings.register_profile("envs", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("envs")

Play = Callable[[int, str], tuple[float, CallResult]]
Look = Callable[..., AgentView]

# Two packages, M = 5 modules, so each is worth 1/5.
# p07 (key k03): i00 root, 2 units; i01 1 unit, keyed, needs i00; i02 3 units, no key, needs i00.
# p21 (key k09): i00 root, 1 unit; i01 2 units, keyed, needs p21 i00 and p07 i01.
TINY_SPEC: dict[str, Any] = {
    "packages": [
        {
            "name": "p07",
            "key": "k03",
            "modules": [
                {"units": 2, "deps": [], "needs_key": False},
                {"units": 1, "deps": [[0, 0]], "needs_key": True},
                {"units": 3, "deps": [[0, 0]], "needs_key": False},
            ],
        },
        {
            "name": "p21",
            "key": "k09",
            "modules": [
                {"units": 1, "deps": [], "needs_key": False},
                {"units": 2, "deps": [[1, 0], [0, 1]], "needs_key": True},
            ],
        },
    ]
}


@pytest.fixture(scope="session")
def tiny_task() -> Task:
    return Task("tiny", "workshop@1", "test", 7, TINY_SPEC)


@pytest.fixture
def workshop(tiny_task: Task) -> WorkshopEnvironment:
    return WorkshopEnvironment(tiny_task)


@pytest.fixture
def play(workshop: WorkshopEnvironment) -> Play:
    """Say and finish an action of the environment's own at once: (tool seconds, result)."""

    def act(agent: int, text: str) -> tuple[float, CallResult]:
        call = workshop.parse(agent, text)
        return workshop.begin(agent, call, 0.0), workshop.finish(agent, call, 0.0)

    return act


@pytest.fixture
def look() -> Look:
    """A view of the CEO at 0 s of 84 s, alone, with no messages; keywords change it."""

    def view(**changes: Any) -> AgentView:
        fields: dict[str, Any] = {
            "agent": 0,
            "name": "a000",
            "is_ceo": True,
            "time_s": 0.0,
            "limit_s": 84.0,
            "team": (),
            "n_hired": 0,
            "max_hires": 8,
            "new_messages": (),
            "last": None,
            "seed": 1,
        }
        return AgentView(**(fields | changes))

    return view
