"""The agents of one rollout on the wall clock: a task each, their pauses, aborts, and the rollout's end.

Each agent is a task: START (on the rollout's lane), the engine speaks, CALL, the tool time is really waited, END, again. At
the end nobody is interrupted in mid-call: pauses are woken, generations aborted, calls on the lane awaited, for as long as
the grace lasts.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from rlcr_core.engines.base import AsyncEngine
from rlcr_core.errors import EngineFault, EnvironmentFault, RLCRError
from rlcr_core.lanes import Lane
from rlcr_core.types import Rollout, SampleRequest
from rlcr_core.wall_moments import Heard, News, WallSimulation

T = TypeVar("T")
JUST_AFTER_S = 1e-6  # an effect at exactly the limit counts: the cut comes after it
RESERVE_S = 0.1  # of the grace, or a tenth of it: what giving up takes, so that the rollout is over within the grace


class Agents:
    """The tasks of one rollout; `began` is its start on the running loop's clock."""

    def __init__(
        self,
        simulation: WallSimulation,
        engine: AsyncEngine,
        lane: Lane,
        make_lane: Callable[[str], Lane],
        began: float,
    ) -> None:
        self.simulation, self.engine, self.lane, self.began = simulation, engine, lane, began
        self.loop = asyncio.get_running_loop()
        self.over = asyncio.Event()
        self.errors: list[Exception] = []
        self.heard: dict[int, Heard] = {}  # samples that came after the end
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.doing: dict[int, str] = {}  # agent -> what is awaited for it
        self.dismissed: set[int] = set()
        self.lanes: dict[int, Lane] = {}  # agent -> its own, in a concurrent environment
        self._make_lane = make_lane
        self._pauses: dict[int, asyncio.Future[None]] = {}

    # -- one agent ---------------------------------------------------------------------------------------------------

    def employ(self, agent: int, first_s: float) -> None:
        """Start an agent's task; its first turn is at `first_s`."""
        self.tasks[agent] = self.loop.create_task(self._guarded(agent, first_s))

    async def _guarded(self, agent: int, first_s: float) -> None:
        try:
            await self._live(agent, first_s)
        except Exception as error:
            self.errors.append(error)
            self.over.set()

    async def _live(self, agent: int, first_s: float) -> None:
        """The agent's turns, until it is dismissed or the rollout is over."""
        simulation = self.simulation
        await self._pause(agent, first_s)
        while not self.over.is_set():
            request = await self._moment(agent, simulation.start, agent)
            if request is None or self.over.is_set():
                return
            sample, spoken_s = await self._sample(agent, request)
            if self.over.is_set():
                self.heard[agent] = sample, spoken_s
                return
            going = await self._moment(agent, simulation.hear, agent, sample, spoken_s, agent in self.dismissed)
            while going and not self.over.is_set():
                end_s = await self._tool(agent, simulation.ask_begin, simulation.begin)
                if end_s is None:
                    break
                await self._pause(agent, end_s)
                if self.over.is_set() or agent in self.dismissed:
                    return  # woken before its time
                going, news = await self._tool(agent, simulation.ask_finish, simulation.finish)
                self._heed(news)

    async def _sample(self, agent: int, request: SampleRequest) -> Heard:
        self.doing[agent] = "sampling"
        try:
            sample = await self.engine.generate(request)
        except RLCRError:
            raise
        except Exception as error:
            raise EngineFault(repr(error)) from error
        self.doing[agent] = ""
        return sample, self.simulation.now()

    async def _moment(self, agent: int, call: Callable[..., T], *args: Any) -> T:
        """Make one of the simulation's calls on the lane."""
        return await self._on(self.lane, agent, call, *args)

    async def _tool(self, agent: int, ask: Callable[[int], None], act: Callable[[int], T]) -> T:
        """The environment's part of a moment, then the collective's; apart where the environment is concurrent."""
        if not self.simulation.concurrent:
            return await self._moment(agent, _both, ask, act, agent)
        if agent not in self.lanes:
            self.lanes[agent] = self._make_lane(f"{self.simulation.uid}-{agent}")
        await self._on(self.lanes[agent], agent, ask, agent)
        return await self._moment(agent, act, agent)

    async def _on(self, lane: Lane, agent: int, call: Callable[..., T], *args: Any) -> T:
        self.doing[agent] = "environment"
        try:
            value = await lane.run(call, *args)
        except RLCRError:
            raise
        except Exception as error:
            raise EnvironmentFault(repr(error)) from error
        self.doing[agent] = ""
        if self.simulation.finished:
            self.over.set()
        return cast(T, value)

    async def _pause(self, agent: int, until_s: float) -> None:
        """Wait until a time of the rollout, until woken, or for its end."""
        due = self.began + until_s
        if self.over.is_set() or agent in self.dismissed or due <= self.loop.time():
            return
        pause = self._pauses[agent] = self.loop.create_future()
        timer = self.loop.call_at(due, self._wake, agent) if due < math.inf else None
        await pause
        if timer is not None:
            timer.cancel()

    def _wake(self, agent: int) -> None:
        pause = self._pauses.pop(agent, None)
        if pause is not None and not pause.done():
            pause.set_result(None)

    def _heed(self, news: News) -> None:
        """Start the hired, wake the woken, stop the dismissed."""
        for agent, first_s in [] if self.over.is_set() else news.hired:
            self.employ(agent, first_s)
        for agent in news.woken:
            self._wake(agent)
        for agent in news.dismissed:
            self.dismissed.add(agent)
            self._abort([agent])
            self._wake(agent)

    def _abort(self, agents: Sequence[int]) -> None:
        sampling = [agent for agent in agents if self.doing.get(agent) == "sampling"]
        if sampling:
            self.engine.abort([(self.simulation.uid, agent) for agent in sampling])

    # -- the end -----------------------------------------------------------------------------------------------------

    async def play(self, grace_s: float) -> Rollout:
        """Run to the end. Comes back within the limit plus the grace, whatever is awaited then."""
        simulation = self.simulation
        limit = self.loop.call_at(self.began + simulation.spec.limit_s + JUST_AFTER_S, self.over.set)
        for agent in list(simulation.collective.employed):
            self.employ(agent, 0.0)
        await self.over.wait()
        limit.cancel()
        ended = min(self.loop.time(), self.began + simulation.spec.limit_s)
        deadline = ended + grace_s - min(RESERVE_S, grace_s / 10)
        try:
            self._abort(list(self.tasks))
        except Exception as error:
            self.errors.append(EngineFault(f"abort raised {error!r}"))
        for agent in list(self._pauses):
            self._wake(agent)
        await asyncio.wait(self.tasks.values(), timeout=max(0.0, deadline - self.loop.time()))
        late = {agent: self.doing.get(agent, "") for agent, task in self.tasks.items() if not task.done()}
        for agent in late:
            self.tasks[agent].cancel()
        for what, fault, words in (
            ("sampling", EngineFault, "the engine gave nothing back"),
            ("environment", EnvironmentFault, "a call of the environment did not return"),
        ):
            hung = ", ".join(str(agent) for agent in sorted(late) if late[agent] == what)
            if hung:
                self.errors.append(fault(f"{words} within {grace_s:g} s of the end (agent {hung}); raise rollouts.grace_s"))
        return await self._close(deadline)

    async def _close(self, deadline: float) -> Rollout:
        """One last call on the lane; a fault in it, such as a partial action that cannot be parsed, fails the rollout."""
        heard = self.heard
        for _ in range(2):
            closing = self.lane.run(self.simulation.close, heard, _joined(self.errors))
            if not await is_done(closing, deadline - self.loop.time()):
                self.errors.append(EnvironmentFault("the rollout could not be closed behind a call that does not return"))
                break
            try:
                return cast(Rollout, closing.result())
            except Exception as raised:
                self.errors.append(raised if isinstance(raised, RLCRError) else EnvironmentFault(repr(raised)))
                heard = {}
        error = _joined(self.errors)
        assert error is not None
        return self.simulation.abandoned(error)


def _both(ask: Callable[[int], None], act: Callable[[int], T], agent: int) -> T:
    ask(agent)
    return act(agent)


def _joined(errors: Sequence[Exception]) -> Exception | None:
    """The first error, with the words of those that came after it; None without any."""
    if not errors:
        return None
    words = "; then ".join([str(errors[0]), *(f"{type(error).__name__}: {error}" for error in errors[1:])])
    return type(errors[0])(words)


async def is_done(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait for a future that long at the most; one that is late is given up."""
    await asyncio.wait([future], timeout=max(0.0, seconds))
    return future.done() or not future.cancel()
