"""Several replicas behind one engine: an agent stays where its prefix is cached, new contexts go where least runs.

The router places contexts, it does not sample: a replica is whatever follows the asynchronous engine protocol (an engine of
this process, or a thin wrapper of one that a Ray actor owns). A context is placed once, when it is new, and every later turn
of it goes to the same replica; moving it would read its whole transcript again. A replica that dies takes its contexts with
it: their next turn is an EngineFault, so those rollouts fail, and new contexts go to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from rlcr_core.engines.base import AsyncEngine, CacheKey
from rlcr_core.errors import ConfigError, EngineFault, WeightError
from rlcr_core.types import Sample, SampleRequest


class Placement:
    """Which replica holds which context. Deterministic: equal calls in equal order give equal placements.

    The load of a replica is (requests running there, contexts living there); ties go to the lower number.
    """

    def __init__(self, replicas: int) -> None:
        if replicas < 1:
            raise ConfigError(f"a router needs at least one replica, got {replicas}; raise the number of engines.")
        self._home: dict[CacheKey, int] = {}
        self._running = [0] * replicas
        self._living = [0] * replicas
        self._dead: dict[int, str] = {}

    @property
    def alive(self) -> tuple[int, ...]:
        return tuple(i for i in range(len(self._running)) if i not in self._dead)

    def load(self, replica: int) -> tuple[int, int]:
        """Requests running and contexts living there."""
        return self._running[replica], self._living[replica]

    def place(self, key: CacheKey, new_context: bool) -> int:
        """The replica of this request, counted as running until `finished`.

        Raises EngineFault when its replica died, when the context was never placed, or when no replica is left.
        """
        if new_context:
            self.forget([key])
            if not self.alive:
                raise EngineFault(f"no engine is left, all {len(self._dead)} died: {self._dead[min(self._dead)]}")
            self._home[key] = min(self.alive, key=lambda i: (self._running[i], self._living[i], i))
            self._living[self._home[key]] += 1
        replica = self._home.get(key)
        if replica is None:
            raise EngineFault(f"the context of (rollout, agent) {key} was never placed; start a new context")
        if replica in self._dead:
            raise EngineFault(f"the engine that held the context of (rollout, agent) {key} died: {self._dead[replica]}")
        self._running[replica] += 1
        return replica

    def finished(self, replica: int) -> None:
        """One request of this replica is over."""
        self._running[replica] -= 1

    def forget(self, keys: Sequence[CacheKey]) -> None:
        """These contexts are gone; unknown ones are ignored."""
        for key in keys:
            replica = self._home.pop(key, None)
            if replica is not None:
                self._living[replica] -= 1

    def clear(self) -> None:
        """Every context is gone."""
        self.forget(list(self._home))

    def lost(self, replica: int, reason: str) -> None:
        """Nothing is placed on this replica any more."""
        self._dead.setdefault(replica, reason)

    def homes(self, keys: Sequence[CacheKey]) -> dict[int, list[CacheKey]]:
        """The keys that are placed, by replica."""
        result: dict[int, list[CacheKey]] = {}
        for key in keys:
            if key in self._home:
                result.setdefault(self._home[key], []).append(key)
        return result


class RoutedEngine:
    """The asynchronous engine protocol over several replicas of one version.

    `is_dead` says whether a replica that raised EngineFault is gone for good, or refused this one request only.
    """

    def __init__(self, replicas: Sequence[AsyncEngine], is_dead: Callable[[AsyncEngine], bool]) -> None:
        self.replicas = tuple(replicas)
        self.placement = Placement(len(self.replicas))
        self._is_dead = is_dead
        self._version = self._agreed([replica.version for replica in self.replicas])

    @property
    def version(self) -> int:
        return self._version

    async def generate(self, request: SampleRequest) -> Sample:
        """Sample on the replica that holds the context. Raises EngineFault; the other replicas go on."""
        number = self.placement.place(request.cache_key, request.new_context)
        replica = self.replicas[number]
        try:
            sample = await replica.generate(request)
        except EngineFault as fault:
            if self._is_dead(replica):
                self.placement.lost(number, str(fault))
            raise
        finally:
            self.placement.finished(number)
        if sample.version != self._version:
            raise EngineFault(
                f"replica {number} sampled with version {sample.version}, expected {self._version}: it missed a sync; "
                "start the run again."
            )
        return sample

    def abort(self, cache_keys: Sequence[CacheKey]) -> None:
        """Running generations of these contexts return with what they have."""
        for number, keys in self.placement.homes(cache_keys).items():
            self.replicas[number].abort(keys)

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        for number, keys in self.placement.homes(cache_keys).items():
            self.replicas[number].release(keys)
        self.placement.forget(cache_keys)

    async def sync(self, sync_one: Callable[[AsyncEngine], Awaitable[int]]) -> int:
        """Bring every living replica to one version, at once; returns it. Contexts are gone afterwards, as caches are.

        `sync_one` syncs and proves one replica and returns its version. Raises WeightError when one refuses: the version
        of the router then stays what it was, and the run must stop.
        """
        alive = self.placement.alive
        results = await asyncio.gather(*(sync_one(self.replicas[i]) for i in alive), return_exceptions=True)
        for number, result in zip(alive, results, strict=True):
            if isinstance(result, BaseException):
                raise WeightError(f"replica {number} of {len(self.replicas)} was not synced: {result}") from result
        self._version = self._agreed([result for result in results if isinstance(result, int)])
        self.placement.clear()
        return self._version

    @staticmethod
    def _agreed(versions: Sequence[int]) -> int:
        if len(set(versions)) != 1:
            raise WeightError(f"the replicas hold versions {sorted(set(versions))}, expected one; sync all of them to it.")
        return versions[0]

    async def close(self) -> None:
        await asyncio.gather(*(replica.close() for replica in self.replicas), return_exceptions=True)
