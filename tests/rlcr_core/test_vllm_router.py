"""The router over several replicas: agents stay where their prefix is, new contexts are balanced, a dead replica is left."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcr_core.engines.vllm_router import Placement, RoutedEngine
from rlcr_core.errors import ConfigError, EngineFault, WeightError
from rlcr_core.types import Sample, SampleRequest

Key = tuple[int, int]


class Recorder:
    """A replica that answers with its number and remembers which contexts it holds."""

    def __init__(self, number: int) -> None:
        self.number, self.version, self.dead = number, 0, False
        self.contexts: set[Key] = set()
        self.aborted: list[Key] = []
        self.closed = False

    async def generate(self, request: SampleRequest) -> Sample:
        if self.dead:
            raise EngineFault("its process ended")
        if request.max_tokens > 1000:
            raise EngineFault("does not fit")
        assert request.new_context or request.cache_key in self.contexts
        self.contexts.add(request.cache_key)
        await asyncio.sleep(0)
        return Sample([self.number], [0.0], self.version)

    def abort(self, cache_keys: Sequence[Key]) -> None:
        self.aborted += cache_keys

    def release(self, cache_keys: Sequence[Key]) -> None:
        self.contexts -= set(cache_keys)

    async def close(self) -> None:
        self.closed = True


def routed(n: int) -> tuple[RoutedEngine, list[Recorder]]:
    replicas = [Recorder(i) for i in range(n)]
    return RoutedEngine(replicas, lambda replica: isinstance(replica, Recorder) and replica.dead), replicas


def request(agent: int, new: bool = True, budget: int = 5) -> SampleRequest:
    return SampleRequest((0, agent), [3], new, 0, budget)


async def ask(engine: RoutedEngine, requests: Sequence[SampleRequest]) -> list[int]:
    """The replica that answered each request, all asked at once."""
    return [sample.ids[0] for sample in await asyncio.gather(*map(engine.generate, requests))]


def test_new_contexts_are_balanced_and_old_ones_stay() -> None:
    async def run() -> None:
        engine, _ = routed(3)
        # nothing runs at first: 0, 1, 2 in turn, each then running one more than the next
        assert await ask(engine, [request(i) for i in range(6)]) == [0, 1, 2, 0, 1, 2]
        assert await ask(engine, [request(i, new=False) for i in (5, 3, 0)]) == [2, 0, 0]
        engine.release([(0, 0), (0, 3), (0, 99)])  # replica 0 holds nothing now, the others two contexts each
        assert await ask(engine, [request(10)]) == [0]
        assert [engine.placement.load(i) for i in range(3)] == [(0, 1), (0, 2), (0, 2)]

    asyncio.run(run())


def test_an_agent_that_starts_a_new_context_is_placed_anew() -> None:
    async def run() -> None:
        engine, _ = routed(2)
        await ask(engine, [request(i) for i in range(4)])
        engine.release([(0, 1), (0, 3)])  # both lived on replica 1
        assert await ask(engine, [request(0)]) == [1]
        assert engine.placement.load(0) == (0, 1) and engine.placement.load(1) == (0, 1)

    asyncio.run(run())


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["new", "next", "release"])), max_size=80), st.integers(1, 4))
def test_a_context_never_moves_and_loads_add_up(steps: list[tuple[int, str]], replicas: int) -> None:
    placement, home = Placement(replicas), {}
    for agent, step in steps:
        key = (0, agent)
        if step == "release":
            placement.forget([key])
            home.pop(key, None)
        elif step == "new":
            fewest = min(placement.load(i)[1] - (home.get(key) == i) for i in range(replicas))
            chosen = placement.place(key, True)
            placement.finished(chosen)
            assert placement.load(chosen)[1] == fewest + 1
            home[key] = chosen
        elif key in home:
            assert placement.place(key, False) == home[key]
            placement.finished(home[key])
        else:
            with pytest.raises(EngineFault, match="never placed"):
                placement.place(key, False)
    assert [placement.load(i) for i in range(replicas)] == [(0, list(home.values()).count(i)) for i in range(replicas)]


def test_a_replica_that_dies_takes_its_contexts_only() -> None:
    async def run() -> None:
        engine, replicas = routed(2)
        await ask(engine, [request(i) for i in range(4)])
        replicas[1].dead = True
        with pytest.raises(EngineFault, match="its process ended"):
            await engine.generate(request(1, new=False))
        with pytest.raises(EngineFault, match=r"held the context .* died: its process ended"):
            await engine.generate(request(3, new=False))
        assert await ask(engine, [request(0, new=False), request(1), request(7)]) == [0, 0, 0]
        replicas[0].dead = True
        with pytest.raises(EngineFault, match="its process ended"):
            await engine.generate(request(0, new=False))
        with pytest.raises(EngineFault, match="no engine is left"):
            await engine.generate(request(8))

    asyncio.run(run())


def test_one_request_that_does_not_fit_kills_no_replica() -> None:
    async def run() -> None:
        engine, _ = routed(1)
        with pytest.raises(EngineFault, match="does not fit"):
            await engine.generate(request(0, budget=2000))
        assert await ask(engine, [request(1)]) == [0] and engine.placement.load(0)[0] == 0

    asyncio.run(run())


def test_abort_and_release_go_to_the_replica_that_holds_the_context() -> None:
    async def run() -> None:
        engine, replicas = routed(2)
        await ask(engine, [request(i) for i in range(3)])
        engine.abort([(0, 2), (0, 1), (0, 9)])
        engine.release([(0, 1)])
        assert [r.aborted for r in replicas] == [[(0, 2)], [(0, 1)]]
        assert [r.contexts for r in replicas] == [{(0, 0), (0, 2)}, set()]
        await engine.close()
        assert all(r.closed for r in replicas)

    asyncio.run(run())


def test_one_version_for_all_or_none() -> None:
    async def run() -> None:
        engine, replicas = routed(2)
        await ask(engine, [request(0)])

        async def good(replica: object) -> int:
            assert isinstance(replica, Recorder)
            replica.version = 3
            return 3

        async def one_refuses(replica: object) -> int:
            assert isinstance(replica, Recorder)
            if replica.number == 1:
                raise WeightError("off by 2 nats")
            return 4

        assert await engine.sync(good) == engine.version == 3
        with pytest.raises(EngineFault, match="never placed"):  # contexts end with the old weights
            await engine.generate(request(0, new=False))
        with pytest.raises(WeightError, match=r"replica 1 of 2 .* off by 2 nats"):
            await engine.sync(one_refuses)
        assert engine.version == 3
        replicas[0].version = 2
        with pytest.raises(EngineFault, match="version 2, expected 3"):
            await engine.generate(request(0))

    asyncio.run(run())


def test_no_replicas_are_refused() -> None:
    with pytest.raises(ConfigError, match="at least one replica"):
        Placement(0)
