"""The books of a chat engine: contexts, the requests running on them, and what the next step reads.

A context is what the model's memory has read of it and its unread tokens: new ones, or the one sampled last. Nothing here
computes; the engine holds a lock around every call.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rlcr_core.engines.memory import Reading, Source
from rlcr_core.errors import EngineFault
from rlcr_core.types import Sample, SampleRequest

Key = tuple[int, int]


PREFIX_TOKENS = 32  # shorter beginnings are not worth a copy
MAX_PREFIXES = 16

Beginning = tuple[int, ...]  # the first PREFIX_TOKENS tokens of a context


@dataclass(slots=True, eq=False)
class Context:
    """One agent's context: its number in the memory, how many tokens are read there, and those not read yet.

    `prompt` is what it began with.
    """

    number: int
    prompt: Sequence[int] = ()
    length: int = 0
    unread: list[int] = field(default_factory=list)

    @property
    def beginning(self) -> Beginning | None:
        """What contexts that may share a prefix have in common; None for a short prompt."""
        return tuple(self.prompt[:PREFIX_TOKENS]) if len(self.prompt) > PREFIX_TOKENS else None


@dataclass(slots=True, eq=False)
class Run:
    """A request being served, and what was sampled for it."""

    request: SampleRequest
    context: Context
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Books:
    """Contexts and runs by cache key. `dropped` are the numbers of contexts whose memory nobody needs any more.

    Where the memory can copy (`shares_prefixes`), contexts that begin alike, as all of one role do, have their common
    prefix read once: the first of them reads it, the others wait for it and copy. `prefixes` keeps one such context for
    each beginning, also after its agent is gone.
    """

    def __init__(self, stop_ids: Sequence[int], vocabulary: int, positions: int, shares_prefixes: bool = False) -> None:
        self.stops = frozenset(stop_ids)
        self.vocabulary, self.positions = vocabulary, positions
        self.contexts: dict[Key, Context] = {}
        self.runs: dict[Key, Run] = {}  # in order of begin
        self.dropped: list[int] = []
        self.tokens_sampled = 0
        self.prompt_tokens = 0
        self.copied_tokens = 0  # of the prompts, those that were not read but copied
        self.shares_prefixes = shares_prefixes
        self.prefixes: dict[Beginning, Context] = {}
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
            self.contexts[key] = Context(self.number(), tuple(request.new_ids))
        context = self.contexts[key]
        context.unread += request.new_ids
        self.runs[key] = Run(request, context)
        self.prompt_tokens += len(request.new_ids)

    def batch(self, max_running: int, step_tokens: int) -> list[tuple[Run, Reading]]:
        """What the next step reads of the first `max_running` requests: one token where sampling goes on, else the prompt.

        All prompts together get `step_tokens`, in order of begin; what does not fit waits for the next step, and so does a
        new context whose prefix another one is reading.
        """
        batch, left, beginnings = [], step_tokens, set[Beginning]()
        for run in list(self.runs.values())[:max_running]:
            context, source = run.context, None
            if self._awaits_prefix(context, beginnings):
                continue
            unread = context.unread
            if context.length == 0:
                source = self._copied(context)
            start = 0 if source is None else source.n
            n = 1 if run.ids else min(len(unread) - start, left)
            if not run.ids:
                left -= n
            if n > 0:
                batch.append((run, Reading(context.number, unread[start : start + n], start + n == len(unread), source)))
        return batch

    def _awaits_prefix(self, context: Context, beginnings: set[Beginning]) -> bool:
        """Whether this context should wait for one before it that reads the same beginning; notes those that read one."""
        beginning = context.beginning
        if not self.shares_prefixes or beginning is None or beginning in self.prefixes:
            return False
        if context.length == 0 and beginning in beginnings:
            return True
        beginnings.add(beginning)
        return False

    def _copied(self, context: Context) -> Source | None:
        """The longest prefix that the kept context of this beginning has read; one token is always left to read."""
        beginning = context.beginning
        kept = None if beginning is None else self.prefixes.get(beginning)
        if kept is None:
            return None
        limit = min(len(kept.prompt), len(context.unread) - 1)
        n = next((i for i in range(limit) if kept.prompt[i] != context.unread[i]), limit)
        return Source(kept.number, n)

    def commit(self, batch: Sequence[tuple[Run, Reading]], chosen: Mapping[Run, tuple[int, float]]) -> list[tuple[Key, Sample]]:
        """Book what was read and sampled, and return what finished; a request that was aborted meanwhile takes no token."""
        finished = []
        for run, reading in batch:
            context, key = run.context, run.request.cache_key
            n_copied = 0 if reading.source is None else reading.source.n
            self.copied_tokens += n_copied
            del context.unread[: n_copied + len(reading.ids)]
            context.length += n_copied + len(reading.ids)
            self._keep_prefix(context)
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
        self.prefixes.clear()
        self.dropped.clear()

    def _keep_prefix(self, context: Context) -> None:
        """Keep the first context that has read a whole prompt with a new beginning, in place of the oldest kept one."""
        beginning = context.beginning
        if not self.shares_prefixes or beginning is None or beginning in self.prefixes:
            return
        if context.length < len(context.prompt) or context.number in self.dropped:
            return
        if len(self.prefixes) == MAX_PREFIXES:
            oldest = self.prefixes.pop(next(iter(self.prefixes)))
            if all(other is not oldest for other in self.contexts.values()):
                self.dropped.append(oldest.number)
        self.prefixes[beginning] = context

    def _drop(self, key: Key) -> None:
        context = self.contexts.pop(key, None)
        if context is not None and all(other is not context for other in self.prefixes.values()):
            self.dropped.append(context.number)
