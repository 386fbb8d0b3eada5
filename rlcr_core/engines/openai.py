"""Any OpenAI-compatible server as the engine of an evaluation: /v1/completions, streamed, a connection a request.

The context of every agent is kept here and sent whole: as token ids where the server takes them (`vllm serve` does), else as
the text that they decode to. A server that returns the sampled ids (`return_token_ids` of vLLM) is taken at its word;
of others the ids are those of the returned text in the project's tokenizer, and the logprobs, where the server does not
give one for just these ids, are NaN: not known. Nothing that comes from here may be trained on (`training_refusal`).

A server at fault (no connection, an HTTP error, garbage, silence) makes the one rollout fail that asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NoReturn, Protocol

from rlcr_core.config import EngineConfig
from rlcr_core.engines import completions
from rlcr_core.engines.completion_client import CompletionClient, RefusedRequest
from rlcr_core.engines.completions import Received
from rlcr_core.errors import ConfigError, EngineFault
from rlcr_core.types import Sample, SampleRequest

# vLLM takes what a request does not say from the model's generation_config.json: sampling would be from another distribution.
UNFILTERED = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
MAX_SEED = 2**31  # seeds are sent below this: larger ones do not survive every server's JSON


class TextTokenizer(Protocol):
    """What the engine needs of rlcr_core.chat's tokenizer."""

    stop_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Sequence[int]) -> str: ...
    def __len__(self) -> int: ...


def training_refusal() -> str:
    """Why engine.kind openai cannot be trained with, and what to do."""
    return (
        "engine.kind openai is for evaluation only: the logprobs of a server elsewhere are not those of the policy being "
        "trained, and new weights cannot be brought to it, so the ratio of the update would mean nothing. Train with "
        "engine.kind torch or vllm, serve the checkpoint, and evaluate that."
    )


class Missing(Sample):
    """A sample that could not be had: whoever reads its tokens gets the EngineFault, so that rollout alone fails."""

    @classmethod
    def because(cls, fault: EngineFault, version: int) -> Missing:
        missing = cls([], [], version)
        missing.fault = fault
        return missing

    fault: EngineFault

    @property
    def ids(self) -> list[int]:
        raise self.fault

    @property
    def logprobs(self) -> list[float]:
        raise self.fault


class _Closed:
    """What `close` returns: asynchronous callers await it, synchronous ones need not."""

    def __await__(self) -> Generator[None, None, None]:
        yield from ()


class OpenAIEngine:
    """Sampling from a server: `generate` and `abort` for the wall clock, `sample` for the derived one.

    One event loop at a time; `generate` and `abort` belong to the same one.
    """

    def __init__(
        self, config: EngineConfig, tokenizer: TextTokenizer, temperature: float = 1.0, top_p: float = 1.0, version: int = 0
    ) -> None:
        """Raises ConfigError for an address or a key that cannot be used; the server is first asked by a request."""
        self.config, self.tokenizer, self.version = config, tokenizer, version
        self.tokens_sampled = 0
        self.prompt_tokens = 0
        self.client = CompletionClient(config)
        self._sampling = {"model": config.model, "temperature": temperature, "top_p": top_p, "stream": True, "logprobs": 1}
        self._takes_ids: bool | None = None  # not known until the first answer
        self._contexts: dict[tuple[int, int], list[int]] = {}
        self._running: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._is_open = True
        self._gate: tuple[asyncio.AbstractEventLoop, asyncio.Semaphore] | None = None

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, state: Mapping[str, Any], version: int) -> NoReturn:
        """Raises ConfigError: weights cannot be brought to a server elsewhere."""
        raise ConfigError(training_refusal())

    def probe(self, ids: Sequence[Sequence[int]]) -> NoReturn:
        """Raises ConfigError: there is nothing that the answer could be compared with."""
        raise ConfigError(training_refusal())

    # -- contexts ----------------------------------------------------------------------------------------------------

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Forget the contexts of these agents."""
        for key in cache_keys:
            self._contexts.pop(key, None)

    def abort(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Let the running generations of these contexts return at once with what they have."""
        for key in cache_keys:
            task = self._running.pop(key, None)
            if task is not None:
                task.get_loop().call_soon_threadsafe(task.cancel)

    def close(self) -> Any:
        """Stop: running generations and later ones are EngineFaults. Synchronous; what it returns may be awaited."""
        self._is_open = False
        self.abort(list(self._running))
        self._contexts.clear()
        return _Closed()

    def _prompt(self, request: SampleRequest) -> list[int]:
        if request.new_context:
            return list(request.new_ids)
        context = self._contexts.get(request.cache_key)
        if context is None:
            raise EngineFault(f"the context of (rollout, agent) {request.cache_key} is not kept; start a new context")
        return [*context, *request.new_ids]

    # -- sampling ----------------------------------------------------------------------------------------------------

    async def generate(self, request: SampleRequest) -> Sample:
        """One action; after `abort` the tokens sampled so far, perhaps none. Raises EngineFault with the reason."""
        loop = asyncio.get_running_loop()
        if self._gate is None or self._gate[0] is not loop:
            self._gate = loop, asyncio.Semaphore(self.config.max_running)
        return await self._generate(request, self._gate[1])

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """One action for each request, in their order; in the place of a fault a `Missing`, which raises it when read."""
        return asyncio.run(self._sample(requests))

    async def _sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        gate = asyncio.Semaphore(self.config.max_running)
        answers = await asyncio.gather(*(self._generate(r, gate) for r in requests), return_exceptions=True)
        samples: list[Sample] = []
        for answer in answers:
            if isinstance(answer, EngineFault):
                samples.append(Missing.because(answer, self.version))
            elif isinstance(answer, BaseException):
                raise answer
            else:
                samples.append(answer)
        return samples

    async def _generate(self, request: SampleRequest, gate: asyncio.Semaphore) -> Sample:
        key = request.cache_key
        if not self._is_open or key in self._running:
            raise EngineFault("the engine is closed" if not self._is_open else f"(rollout, agent) {key} is speaking already")
        prompt = self._prompt(request)
        self.prompt_tokens += len(request.new_ids)
        received = Received()
        task = asyncio.ensure_future(self._ask(prompt, request, received, gate))
        self._running[key] = task
        try:
            await asyncio.wait([task])
        finally:
            aborted = self._running.get(key) is not task
            if not aborted:
                del self._running[key]
            task.cancel()  # nothing, unless this call itself was cancelled
        if not self._is_open:
            raise EngineFault("the engine was closed before the action was complete")
        if not (aborted and task.cancelled()):
            task.result()
        ids, logprobs = completions.sampled(received, self.tokenizer, request.max_tokens)
        if not ids and not aborted:
            raise EngineFault(f"{self.client.name} answered without a token; look at the server's log")
        self._contexts[key] = [*prompt, *ids]
        self.tokens_sampled += len(ids)
        return Sample(ids, logprobs, self.version)

    def _body(self, prompt: list[int], request: SampleRequest, as_ids: bool) -> bytes:
        body = self._sampling | {"max_tokens": request.max_tokens, "seed": request.seed % MAX_SEED}
        stops = self.tokenizer.stop_ids
        if as_ids:
            body |= {"prompt": prompt, "stop_token_ids": list(stops), "return_token_ids": True} | UNFILTERED
        else:
            body |= {"prompt": self.tokenizer.decode(prompt), "stop": [self.tokenizer.decode([i]) for i in stops]}
        return json.dumps(body).encode()

    async def _ask(
        self, prompt: list[int], request: SampleRequest, received: Received, gate: asyncio.Semaphore
    ) -> None:
        """Fill `received`, with ids as the prompt or, where the server takes none, with text. Raises EngineFault."""
        async with gate:
            if self._takes_ids is not False:
                try:
                    await self.client.complete(self._body(prompt, request, True), received)
                    self._takes_ids = True
                    return
                except RefusedRequest as fault:
                    if self._takes_ids:
                        raise
                    refusal = fault
                try:
                    await self.client.complete(self._body(prompt, request, False), received)
                except RefusedRequest:
                    raise refusal from None  # text is refused as well: the first reason is the real one
                self._takes_ids = False
            else:
                await self.client.complete(self._body(prompt, request, False), received)
