"""The books of a chat engine: contexts, the requests running on them, and what the next step reads.

A context is what the model's memory has read of it and its unread tokens: new ones, or the one sampled last. Nothing here
computes; the engine holds a lock around every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlcr_core.engines.memory import Reading
from rlcr_core.errors import EngineFault
from rlcr_core.types import Sample, SampleRequest

Key = tuple[int, int]


@dataclass(slots=True, eq=False)
class Context:
    """One agent's context: its number in the memory, how many tokens are read there, and those not read yet."""

    number: int
    length: int = 0
    unread: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Run:
    """A request being served, and what was sampled for it."""

    request: SampleRequest
    context: Context
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Books:
    """Contexts and runs by cache key. `dropped` are the numbers of contexts whose memory nobody needs any more."""

    def __init__(self, stop_ids: Sequence[int], vocabulary: int, positions: int) -> None:
        self.stops = frozenset(stop_ids)
        self.vocabulary, self.positions = vocabulary, positions
        self.contexts: dict[Key, Context] = {}
        self.runs: dict[Key, Run] = {}  # in order of begin
        self.dropped: list[int] = []
        self.tokens_sampled = 0
        self.prompt_tokens = 0
        self._next_number = 0

    def number(self) -> int:
        """A number that no context has had."""
        self._next_number += 1
        return self._next_number

    def check(self, request: SampleRequest) -> None:
        """Raise EngineFault for a request that cannot be served."""
        key, new_ids = request.cache_key, request.new_ids
        who, context = f"(rollout, agent) {key}", self.contexts.get(key)
        if key in self.runs:
            raise EngineFault(f"{who} is sampled from already; wait for its sample, or abort it")
        if context is None and not request.new_context:
            raise EngineFault(f"the context of {who} is not cached; start a new context")
        n = len(new_ids)
        if context is not None and not request.new_context:
            n += context.length + len(context.unread)
        if n == 0 or request.max_tokens < 1:
            raise EngineFault(
                f"{who}: got {n} tokens of context and max_tokens {request.max_tokens}, expected at least 1 of each"
            )
        if len(new_ids) and not 0 <= min(new_ids) <= max(new_ids) < self.vocabulary:
            raise EngineFault(
                f"{who}: got ids {min(new_ids)}..{max(new_ids)}, expected 0..{self.vocabulary - 1}; "
                "the tokenizer and the model of policy.model do not belong together"
            )
        if n + request.max_tokens > self.positions:
            raise EngineFault(
                f"{who}: a context of {n} tokens and an action of up to {request.max_tokens} exceed the model's "
                f"{self.positions} positions; lower context.max_tokens"
            )

    def begin(self, request: SampleRequest) -> None:
        """Register a request. Raises EngineFault, and changes nothing, for one that cannot be served."""
        self.check(request)
        key = request.cache_key
        if request.new_context:
            self._drop(key)
            self.contexts[key] = Context(self.number())
        context = self.contexts[key]
        context.unread += request.new_ids
        self.runs[key] = Run(request, context)
        self.prompt_tokens += len(request.new_ids)

    def batch(self, max_running: int, step_tokens: int) -> list[tuple[Run, Reading]]:
        """What the next step reads of the first `max_running` requests: one token where sampling goes on, else the prompt.

        All prompts together get `step_tokens`, in order of begin; what does not fit waits for the next step.
        """
        batch, left = [], step_tokens
        for run in list(self.runs.values())[:max_running]:
            unread = run.context.unread
            n = 1 if run.ids else min(len(unread), left)
            if not run.ids:
                left -= n
            if n > 0:
                batch.append((run, Reading(run.context.number, unread[:n], n == len(unread))))
        return batch

    def commit(self, batch: Sequence[tuple[Run, Reading]], chosen: Mapping[Run, tuple[int, float]]) -> list[tuple[Key, Sample]]:
        """Book what was read and sampled, and return what finished; a request that was aborted meanwhile takes no token."""
        finished = []
        for run, reading in batch:
            context, key = run.context, run.request.cache_key
            del context.unread[: len(reading.ids)]
            context.length += len(reading.ids)
            if not reading.wanted or self.runs.get(key) is not run:
                continue
            token, logprob = chosen[run]
            run.ids.append(token)
            run.logprobs.append(logprob)
            context.unread.append(token)
            if token in self.stops or len(run.ids) == run.request.max_tokens:
                finished.append(key)
        return self.finish(finished)

    def finish(self, keys: Sequence[Key]) -> list[tuple[Key, Sample]]:
        """End these requests with the tokens sampled so far; keys without a request are passed over. Versions are 0."""
        samples = []
        for key in keys:
            run = self.runs.pop(key, None)
            if run is not None:
                self.tokens_sampled += len(run.ids)
                samples.append((key, Sample(run.ids, run.logprobs, 0)))
        return samples

    def release(self, keys: Sequence[Key]) -> None:
        """Forget contexts, and requests on them."""
        for key in keys:
            self.runs.pop(key, None)
            self._drop(key)

    def clear(self) -> None:
        """Forget everything but the counts."""
        self.runs.clear()
        self.contexts.clear()
        self.dropped.clear()

    def _drop(self, key: Key) -> None:
        context = self.contexts.pop(key, None)
        if context is not None:
            self.dropped.append(context.number)
