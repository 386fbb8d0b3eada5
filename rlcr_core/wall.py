"""Rollouts on the wall clock: agents are concurrent tasks on real time, with the semantics of the derived clock.

Each agent is a task: START (on the rollout's lane), the engine speaks, CALL, the tool time is really waited, END, again.
Whatever touches the environment runs on the rollout's lane, one call at a time in order of time; `begin` and `finish` of
an environment that declares itself concurrent run on a lane per agent. At the limit, when solved, stalled or failed, the
rollout's running generations are aborted and give back what they sampled, and one last call on the lane cuts it all.

Whatever an engine or an environment does, a rollout is over by its limit plus `rollouts.grace_s`: a call that has not come
back by then makes it `failed`, with the reason; nobody waits for that call any more, its thread dies with the process.
Only a call that never lets go of the interpreter is beyond this; for that a worker has a deadline of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from rlcr_core.clock import tick
from rlcr_core.config import Params
from rlcr_core.engines.base import AsyncEngine
from rlcr_core.errors import EngineFault, EnvironmentFault
from rlcr_core.lanes import Lane, ThreadLane
from rlcr_core.rollout import RolloutSpec, stillborn
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import Environment, Rollout, Task
from rlcr_core.wall_agents import Agents, is_done
from rlcr_core.wall_moments import WallSimulation

T = TypeVar("T")
Report = Callable[[Rollout, float], None]  # (rollout, second of its own clock at which it was over)
CLOSING_S = 1.0  # given to tasks that were told to stop before their loop is closed


@dataclass(frozen=True, slots=True)
class Machinery:
    """What a rollout runs on; tests put virtual time and calls in line here."""

    make_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop
    make_lane: Callable[[str], Lane] = ThreadLane


async def _rollout(
    spec: RolloutSpec,
    uid: int,
    make_environment: Callable[[Task], Environment],
    engine: AsyncEngine,
    tokenizer: Tokenizer,
    params: Params,
    machinery: Machinery,
    report: Report | None,
) -> Rollout:
    """One rollout, from making its environment to giving its contexts back; raises nothing but cancellation."""
    loop, grace_s = asyncio.get_running_loop(), params.rollouts.grace_s
    lane = machinery.make_lane(f"rollout {uid}")
    began = loop.time()

    def now() -> float:
        return tick(loop.time() - began)

    def make() -> WallSimulation:
        return WallSimulation(spec, make_environment(spec.task), tokenizer, params, uid, now)

    agents: Agents | None = None
    try:
        making = lane.run(make)
        if not await is_done(making, grace_s):
            raise EnvironmentFault(f"the environment was not made within {grace_s:g} s; raise rollouts.grace_s")
        simulation, began = making.result(), loop.time()
        agents = Agents(simulation, engine, lane, machinery.make_lane, began)
        rollout = await agents.play(grace_s)
    except Exception as error:
        rollout = stillborn(spec, error)
    finally:
        for used in (lane, *(agents.lanes.values() if agents else ())):
            used.close()
    over_s = now()
    if agents is not None:
        rollout = _released(rollout, agents, engine)
    if report is not None:
        report(rollout, over_s)
    return rollout


def _released(rollout: Rollout, agents: Agents, engine: AsyncEngine) -> Rollout:
    """Give the rollout's contexts back to the engine; an engine that refuses has failed it."""
    try:
        engine.release([(agents.simulation.uid, agent) for agent in agents.tasks])
    except Exception as error:
        return agents.simulation.abandoned(EngineFault(f"release raised {error!r}"))
    return rollout


async def wall_rollouts(
    specs: Sequence[RolloutSpec],
    make_environment: Callable[[Task], Environment],
    engine: AsyncEngine,
    tokenizer: Tokenizer,
    params: Params,
    report: Report | None = None,
    machinery: Machinery | None = None,
) -> list[Rollout]:
    """`run_wall_rollouts` for a caller that has a running event loop, such as the one that an engine lives in."""
    machinery = machinery or Machinery()
    running = [
        _rollout(spec, uid, make_environment, engine, tokenizer, params, machinery, report) for uid, spec in enumerate(specs)
    ]
    return list(await asyncio.gather(*running))


def run_wall_rollouts(
    specs: Sequence[RolloutSpec],
    make_environment: Callable[[Task], Environment],
    engine: AsyncEngine,
    tokenizer: Tokenizer,
    params: Params,
    report: Report | None = None,
    machinery: Machinery | None = None,
) -> list[Rollout]:
    """Run every rollout on real time, all at once, on an event loop of its own; each comes back exactly once, in order.

    One rollout's fault makes that one `failed`; the others go on. Seconds are those since a rollout's own start, which is
    when its environment is made (within `rollouts.grace_s`, or it fails). `report` hears of each as soon as it is over.
    """
    machinery = machinery or Machinery()
    return run_on(machinery.make_loop(), wall_rollouts(specs, make_environment, engine, tokenizer, params, report, machinery))


def run_on(loop: asyncio.AbstractEventLoop, main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on a loop and close it. Unlike asyncio.run, waits for no task that does not stop when told to."""
    try:
        return loop.run_until_complete(main)
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        if left:
            loop.run_until_complete(asyncio.wait(left, timeout=CLOSING_S))
        with contextlib.suppress(RuntimeError):  # a generator that is still running cannot be closed
            loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
