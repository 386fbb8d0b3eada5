"""The engine's thread: who asks gets the own action once, an abort does not wait for a step, faults reach whoever waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from rlcr_core.clock import LatencyModel
from rlcr_core.engines.asynchronous import BatchSteps, PacedPlayers, ThreadedEngine
from rlcr_core.engines.base import CacheKey
from rlcr_core.errors import EngineFault
from rlcr_core.players import PlayerEngine
from rlcr_core.types import Sample, SampleRequest
from rlcr_core.virtual_time import VirtualLoop
from rlcr_core.wall import run_on
from tests.rlcr_core.toy import TOKENIZER, toy_params


def request(agent: int, max_tokens: int = 3) -> SampleRequest:
    return SampleRequest((0, agent), [3], True, agent, max_tokens)


class Counting:
    """Gives each action the ids 10, 11, …, one a step. A step waits for its turn when `gate` is there."""

    version = 4

    def __init__(self, gate: threading.Semaphore | None = None) -> None:
        self.gate, self.running, self.lengths = gate, {}, []  # type: ignore[var-annotated]
        self.stepping = threading.Event()
        self.fault: Exception | None = None
        self.released: list[CacheKey] = []
        self.threads: set[str] = set()
        self.is_closed = False

    def begin(self, request: SampleRequest) -> None:
        if request.max_tokens == 0:
            raise EngineFault("no room")
        self.running[request.cache_key] = [0, request.max_tokens]

    def step(self) -> list[tuple[CacheKey, Sample]]:
        self.threads.add(threading.current_thread().name)
        self.stepping.set()
        if self.gate is not None:
            self.gate.acquire()
        if self.fault is not None:
            raise self.fault
        self.lengths.append(len(self.running))
        for state in list(self.running.values()):
            state[0] += 1
        return self._take([key for key, (n, most) in list(self.running.items()) if n == most])

    def abort(self, cache_keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Sample]]:
        return self._take([key for key in cache_keys if key in self.running])

    def _take(self, keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Sample]]:
        taken = [(key, self.running.pop(key)[0]) for key in keys]
        return [(key, Sample(list(range(10, 10 + n)), [-1.0] * n, self.version)) for key, n in taken]

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        self.released += cache_keys

    def close(self) -> None:
        self.is_closed = True


def test_every_request_gets_its_own_action_in_one_running_batch() -> None:
    engine = Counting()

    async def main() -> list[Sample]:
        threaded = ThreadedEngine(engine)
        assert threaded.version == 4
        samples = await asyncio.gather(*[threaded.generate(request(agent, 1 + agent)) for agent in range(4)])
        await threaded.close()
        return samples

    assert [sample.ids for sample in asyncio.run(main())] == [[10], [10, 11], [10, 11, 12], [10, 11, 12, 13]]
    assert engine.threads == {"engine"} and engine.is_closed


def test_an_abort_does_not_wait_for_the_step_that_runs() -> None:
    """Two steps pass, the third is held: the aborted action comes back with its two tokens while the step still runs."""
    gate = threading.Semaphore(2)
    engine = Counting(gate)

    async def main() -> tuple[Sample, Sample]:
        threaded = ThreadedEngine(engine)
        long, other = (asyncio.ensure_future(threaded.generate(request(agent, 5))) for agent in (0, 1))
        while len(engine.lengths) < 2 or engine.running[0, 0][0] < 2:
            await asyncio.sleep(0.001)
        threaded.abort([(0, 0), (0, 7)])  # a context that is not being sampled is passed over
        partial = await long
        assert not other.done() and len(engine.lengths) == 2
        gate.release(10)
        whole = await other
        await threaded.close()
        return partial, whole

    partial, whole = asyncio.run(main())
    assert partial == Sample([10, 11], [-1.0, -1.0], 4)
    assert whole.ids == [10, 11, 12, 13, 14]


def test_a_step_that_raises_fails_what_is_in_flight_and_the_engine_goes_on() -> None:
    engine = Counting()

    async def main() -> Sample:
        threaded = ThreadedEngine(engine)
        engine.fault = MemoryError("no memory")
        results = await asyncio.gather(*[threaded.generate(request(agent)) for agent in range(3)], return_exceptions=True)
        assert all(isinstance(r, EngineFault) and "no memory" in str(r) for r in results)
        assert engine.running == {}
        engine.fault = None
        sample = await threaded.generate(request(0))
        await threaded.close()
        return sample

    assert asyncio.run(main()).ids == [10, 11, 12]


def test_a_request_that_cannot_be_served_fails_alone() -> None:
    async def main() -> None:
        threaded = ThreadedEngine(Counting())
        good, bad = await asyncio.gather(
            threaded.generate(request(0)), threaded.generate(request(1, 0)), return_exceptions=True
        )
        assert isinstance(good, Sample) and isinstance(bad, EngineFault)
        await threaded.close()
        with pytest.raises(EngineFault, match="closed"):
            await threaded.generate(request(0))

    asyncio.run(main())


def test_what_is_in_flight_ends_with_release_close_and_cancellation() -> None:
    gate = threading.Semaphore(0)
    engine = Counting(gate)

    async def main() -> None:
        threaded = ThreadedEngine(engine)
        released, cancelled, closed = (asyncio.ensure_future(threaded.generate(request(agent))) for agent in range(3))
        await asyncio.sleep(0)
        with pytest.raises(EngineFault, match="is being sampled already"):
            await threaded.generate(request(0))
        threaded.release([(0, 0)])
        with pytest.raises(EngineFault, match="released while"):
            await released
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert (0, 1) not in engine.running and engine.released == [(0, 0)]
        closing = asyncio.ensure_future(threaded.close())
        with pytest.raises(EngineFault, match="closed while"):
            await closed
        gate.release(5)
        await closing

    asyncio.run(main())


def test_a_call_between_steps_is_made_while_no_step_runs() -> None:
    gate = threading.Semaphore(0)
    engine = Counting(gate)
    seen: list[tuple[str, int]] = []

    async def main() -> None:
        threaded = ThreadedEngine(engine)
        running = asyncio.ensure_future(threaded.generate(request(0, 2)))
        while not engine.stepping.is_set():
            await asyncio.sleep(0.001)

        def note() -> None:
            seen.append((threading.current_thread().name, len(engine.lengths)))

        call = asyncio.ensure_future(threaded.between_steps(note))
        await asyncio.sleep(0.01)
        assert seen == []  # the step is held
        gate.release(5)
        await call
        with pytest.raises(ZeroDivisionError):
            await threaded.between_steps(lambda: 1 // 0)
        await running
        await threaded.close()

    asyncio.run(main())
    assert seen == [("engine", 1)]


def test_an_engine_of_batches_steps_a_batch_and_drops_what_waits() -> None:
    steps = BatchSteps(PlayerEngine(lambda text, key, seed: "dig 1 .", TOKENIZER, version=2))
    assert steps.step() == []
    for agent in range(3):
        steps.begin(request(agent))
    assert steps.abort([(0, 1), (0, 9)]) == [((0, 1), Sample([], [], 2))]
    done = steps.step()
    assert [key for key, _ in done] == [(0, 0), (0, 2)]
    assert all(sample.ids == TOKENIZER.encode("dig 1 .") and sample.version == 2 for _, sample in done)
    assert steps.step() == []


def test_paced_players_speak_when_the_latency_model_says() -> None:
    """1 s of overhead, 1 word of prompt .1 s, a token a second: `dig 1 .` at 4.1; aborted at 3.5, two tokens are there."""
    loop = VirtualLoop()
    players = PacedPlayers(lambda text, key, seed: "dig 1 .", TOKENIZER, LatencyModel(toy_params().latency), version=3)

    async def main() -> list[tuple[int, float]]:
        told = []
        for abort_s in (None, 3.5, 1.5):
            started = loop.time()
            if abort_s is not None:
                loop.call_later(abort_s, players.abort, [(0, 0), (0, 5)])
            sample = await players.generate(request(0, 8))
            assert len(sample.logprobs) == len(sample.ids) and sample.version == 3
            told.append((len(sample.ids), round(loop.time() - started, 6)))
        closing = asyncio.ensure_future(players.generate(request(0)))
        await asyncio.sleep(0)
        await players.close()
        with pytest.raises(EngineFault, match="closed"):
            await closing
        return told

    assert run_on(loop, main()) == [(3, 4.1), (2, 3.5), (0, 1.5)]
