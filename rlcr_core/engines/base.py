"""The protocols of engines that serve the wall clock: what a rollout's tasks await, and what a stepwise engine offers.

`Engine` (rlcr_core.types) samples a whole batch and is for the derived clock. On the wall clock agents ask one by one and
a deadline interrupts them, so an engine is awaited (`AsyncEngine`) or is advanced a step at a time by the one thread of
rlcr_core.engines.asynchronous (`StepEngine`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rlcr_core.types import Sample, SampleRequest

CacheKey = tuple[int, int]  # (rollout, agent)


class AsyncEngine(Protocol):
    """Samples actions on real time. Never blocks the event loop; one action at a time for each cache key."""

    @property
    def version(self) -> int:
        """Of the weights that sample now."""

    async def generate(self, request: SampleRequest) -> Sample:
        """One action. After `abort` it returns at once with the tokens sampled so far, perhaps none, and their logprobs.

        Raises EngineFault for a request that cannot be served.
        """

    def abort(self, cache_keys: Sequence[CacheKey]) -> None:
        """Let the running generations of these contexts return with what they have; others go on."""

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        """Forget the contexts of these agents."""

    async def close(self) -> None:
        """Stop serving; what still runs ends with EngineFault."""


class StepEngine(Protocol):
    """Samples many actions side by side, a token of each at a step.

    One thread steps; `begin`, `abort` and `release` come from others, also while a step runs, and return at once.
    """

    @property
    def version(self) -> int:
        """Of the weights that sample now."""

    def begin(self, request: SampleRequest) -> None:
        """Take a request in, for the steps to come. Raises EngineFault for one that cannot be served; others go on."""

    def step(self) -> list[tuple[CacheKey, Sample]]:
        """Go on with every action begun; the ones that are complete now. Without any: nothing, at once."""

    def abort(self, cache_keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Sample]]:
        """End these actions with what was sampled of each, perhaps nothing; a step that runs goes on without them.

        Keys whose action is not being sampled, or cannot be interrupted, are passed over.
        """

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        """Forget the contexts of these agents."""

    def close(self) -> None: ...
