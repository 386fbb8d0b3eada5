"""Asynchronous faces of engines: one thread that steps an engine, and scripted players on real time.

`face` gives the face that an engine needs. `ThreadedEngine` owns a `StepEngine`: requests of any number of tasks join its
running batch between two steps, an abort does not wait for the step that runs, and the event loop never waits for the
model. `BatchSteps` makes an engine that only samples whole batches into one that steps, a batch at a step. `PacedPlayers`
speak as the latency model says.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rlcr_core.clock import LatencyModel, tick
from rlcr_core.engines.base import AsyncEngine, CacheKey, StepEngine
from rlcr_core.errors import EngineFault, RLCRError
from rlcr_core.lanes import portable, post, settle
from rlcr_core.players import Play
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import Engine, Sample, SampleRequest

T = TypeVar("T")
CLOSING_S = 60.0  # an engine's thread that has not ended by then hangs in a step


class ThreadedEngine:
    """An AsyncEngine over a StepEngine that one daemon thread steps.

    A step that raises fails every action in flight and is told to drop them; the next requests find the engine as it is.
    """

    def __init__(self, engine: StepEngine) -> None:
        self.engine = engine
        self._changed = threading.Condition()
        self._waiting: dict[CacheKey, asyncio.Future[Sample]] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="engine", daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        return self.engine.version

    async def generate(self, request: SampleRequest) -> Sample:
        key, future = request.cache_key, asyncio.get_running_loop().create_future()
        with self._changed:
            if not self._is_open:
                raise EngineFault("the engine is closed; no more actions are sampled")
            if key in self._waiting:
                raise EngineFault(f"the context of (rollout, agent) {key} is being sampled already")
            self._waiting[key] = future
            try:
                self.engine.begin(request)
            except BaseException:
                del self._waiting[key]
                raise
            self._changed.notify()
        try:
            sample: Sample = await future
        except asyncio.CancelledError:
            self.abort([key])  # nobody waits for it any more
            raise
        return sample

    def abort(self, cache_keys: Sequence[CacheKey]) -> None:
        self._answer(self.engine.abort(cache_keys))

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        self._fail(cache_keys, EngineFault("the context was released while it was being sampled"))
        self.engine.release(cache_keys)

    async def between_steps(self, call: Callable[[], T]) -> T:
        """Make a call in the engine's thread while no step runs: a sync of weights, a probe."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def make() -> None:
            result, error = None, None
            try:
                result = call()
            except BaseException as raised:
                error = portable(raised)
            post(future.get_loop(), settle, future, result, error)

        with self._changed:
            if not self._is_open:
                raise EngineFault("the engine is closed")
            self._calls.append(make)
            self._changed.notify()
        value: T = await future
        return value

    async def close(self) -> None:
        """End the thread; actions in flight fail. Raises EngineFault when it hangs in a step."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._fail(list(self._waiting), EngineFault("the engine was closed while it sampled"))
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CLOSING_S
        while self._thread.is_alive():
            if loop.time() > deadline:
                raise EngineFault(f"the engine did not come back from a step within {CLOSING_S:g} s of being closed")
            await asyncio.sleep(0.005)
        self.engine.close()

    # -- the thread --------------------------------------------------------------------------------------------------

    def _serve(self) -> None:
        """Step while anything is in flight, make the calls that were asked for in between, sleep otherwise."""
        while True:
            with self._changed:
                while self._is_open and not (self._waiting or self._calls):
                    self._changed.wait()
                call = self._calls.popleft() if self._calls else None
                if not self._is_open and call is None:
                    return
            if call is not None:
                call()
                continue
            try:
                self._answer(self.engine.step())
            except BaseException as raised:
                self._drop_all(portable(raised))

    def _answer(self, samples: Sequence[tuple[CacheKey, Sample]]) -> None:
        """Hand samples over, to each loop in one call."""
        with self._changed:
            jobs = [(self._waiting.pop(key), sample) for key, sample in samples if key in self._waiting]
        for loop in {future.get_loop() for future, _ in jobs}:
            post(loop, _settle_all, [job for job in jobs if job[0].get_loop() is loop])

    def _fail(self, cache_keys: Sequence[CacheKey], error: Exception) -> None:
        with self._changed:
            futures = [self._waiting.pop(key) for key in cache_keys if key in self._waiting]
        for future in futures:
            post(future.get_loop(), settle, future, None, error)

    def _drop_all(self, error: Exception) -> None:
        """After a step that raised: nothing of it is in flight any more."""
        keys = list(self._waiting)
        try:
            self.engine.abort(keys)
        except Exception as again:
            error = EngineFault(f"{error}; dropping what was in flight raised {again!r}")
        self._fail(keys, error if isinstance(error, RLCRError) else EngineFault(repr(error)))


def _settle_all(jobs: Sequence[tuple[asyncio.Future[Sample], Sample]]) -> None:
    for future, sample in jobs:
        settle(future, sample, None)


class BatchSteps:
    """Steps of an engine that samples whole batches: everything begun is one batch, and a step samples it to its end.

    An action being sampled cannot be interrupted, so an abort ends only those that wait for the next batch; meant for
    actions of a few tokens, such as the small policy's.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._requests: dict[CacheKey, SampleRequest] = {}
        self._changing = threading.Lock()

    @property
    def version(self) -> int:
        return self.engine.version

    def begin(self, request: SampleRequest) -> None:
        with self._changing:
            self._requests[request.cache_key] = request

    def step(self) -> list[tuple[CacheKey, Sample]]:
        with self._changing:
            requests = list(self._requests.values())
            self._requests.clear()
        samples = self.engine.sample(requests) if requests else []
        return [(request.cache_key, sample) for request, sample in zip(requests, samples, strict=True)]

    def abort(self, cache_keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Sample]]:
        with self._changing:
            dropped = [key for key in cache_keys if self._requests.pop(key, None) is not None]
        return [(key, Sample([], [], self.version)) for key in dropped]

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        self.engine.release(cache_keys)

    def close(self) -> None:
        self.engine.close()


def face(engine: Any) -> AsyncEngine:
    """The engine itself where it can be awaited, a thread around one that steps or samples whole batches.

    Whoever made the engine still syncs it, between rollouts; closing the face of a thread closes the engine too.
    """
    if hasattr(engine, "generate"):
        asynchronous: AsyncEngine = engine
        return asynchronous
    return ThreadedEngine(engine if hasattr(engine, "step") else BatchSteps(engine))


class PacedPlayers:
    """Scripted players on real time: tokens come when the latency model has them come; one that is alone on its server."""

    def __init__(self, play: Play, tokenizer: Tokenizer, latency: LatencyModel, version: int = 0) -> None:
        self.play, self.tokenizer, self.latency, self.version = play, tokenizer, latency, version
        self._running: dict[CacheKey, asyncio.Future[bool]] = {}

    async def generate(self, request: SampleRequest) -> Sample:
        loop = asyncio.get_running_loop()
        started, n_prompt = loop.time(), len(request.new_ids)
        text = self.play(self.tokenizer.decode(request.new_ids), request.cache_key, request.seed)
        ids = self.tokenizer.encode(text)[: request.max_tokens]
        stopped = self._running[request.cache_key] = loop.create_future()
        timer = loop.call_at(started + self.latency.spoken_s(0.0, n_prompt, len(ids)), settle, stopped, True, None)
        try:
            is_complete = await stopped
        finally:
            timer.cancel()
            del self._running[request.cache_key]
        if not is_complete:
            ids = ids[: self.latency.tokens_by(tick(loop.time() - started), 0.0, n_prompt)]
        return Sample(ids, [0.0] * len(ids), self.version)

    def abort(self, cache_keys: Sequence[CacheKey]) -> None:
        for key in cache_keys:
            if key in self._running:
                settle(self._running[key], False, None)

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        """Nothing is cached."""

    async def close(self) -> None:
        for future in self._running.values():
            settle(future, None, EngineFault("the engine was closed while it sampled"))
