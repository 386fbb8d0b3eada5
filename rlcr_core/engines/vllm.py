"""vLLM in process: continuous batching, prefix cache, partial tokens on abort, weights proven after every sync.

Whoever constructs a `VllmEngine` owns it; vLLM runs in processes of its own below, and its asyncio side in a thread here.
`sample` serves the derived clock (all requests at once, in order), `generate` and `abort` the wall clock from any event loop.
vLLM wants the whole prompt every turn, so the engine keeps each context's ids; the prefix cache makes that cheap, and is
emptied at every sync together with the contexts. An engine samples only with weights that a probe has proven: a new one is
synced first, and after a sync that failed every request is refused until one succeeds.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcr_core.config import EngineConfig
from rlcr_core.engines.base import CacheKey
from rlcr_core.engines.vllm_client import VllmClient
from rlcr_core.engines.vllm_process import Counts, Serving, check_machine
from rlcr_core.engines.vllm_sync import WeightSync
from rlcr_core.engines.vllm_weights import Probe, check_export, export_for_vllm, read_weights, weight_shapes
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.types import Sample, SampleRequest

if TYPE_CHECKING:
    from torch import Tensor

ABORT_AGAIN_S = 0.01


class VllmEngine:
    """Samples with vLLM's weights of `version`; -1 until the first sync.

    `directory` is a Hugging Face folder. `tokens_sampled`, `prompt_tokens` and `cached_tokens` count tokens since the start;
    every token that vLLM generated is in `tokens_sampled` or `probe_tokens`, which `counts.generated_tokens` confirms.
    Raises ConfigError when vLLM cannot run here, EngineFault when it does not start.
    """

    def __init__(self, directory: str | Path, config: EngineConfig, serving: Serving) -> None:
        check_machine()
        import torch

        self.config, self.serving, self.version = config, serving, -1
        self.tokens_sampled = self.prompt_tokens = self.cached_tokens = 0
        self._dtype: torch.dtype = getattr(torch, config.dtype)
        self._contexts: dict[CacheKey, list[int]] = {}
        self._running: dict[CacheKey, str] = {}  # the request's name in vLLM
        self._numbers = itertools.count()
        self._refusal = "its weights are not proven yet; sync it before it samples"
        self._source = Path(directory)
        self._folder = Path(tempfile.mkdtemp(prefix="rlcr-vllm-"))
        try:
            first = export_for_vllm(read_weights(directory), directory, self._folder / "start", self._dtype)
            self._shapes = weight_shapes(first)
            self.client = VllmClient(first, config, serving)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        self._sync = WeightSync(self.client, config.probe_tolerance, serving)

    # -- derived clock -----------------------------------------------------------------------------------------------

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """One action for each request, in their order, all running at once. Raises EngineFault; the rest is aborted."""
        return self.client.wait(self._sample(requests))

    async def _sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        tasks = [asyncio.ensure_future(self._generate(request)) for request in requests]
        try:
            return list(await asyncio.gather(*tasks))
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    def probe(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Logprobs (nats) of each next token of fixed id sequences at temperature 1, computed anew."""
        return self.client.wait(self._sync.read(ids))

    # -- wall clock --------------------------------------------------------------------------------------------------

    async def generate(self, request: SampleRequest) -> Sample:
        """One action; after `abort` the tokens sampled so far, perhaps none. Cancelling it gives the context up."""
        return await self.client.submit(self._generate(request))

    def abort(self, cache_keys: Sequence[CacheKey]) -> None:
        """Let the running generations of these contexts return with what they have; others go on."""
        self.client.start(self._abort(list(cache_keys)))

    def awaited(self) -> Awaited:
        """This engine as the asynchronous protocol has it: its `close` is awaited."""
        return Awaited(self)

    # -- both --------------------------------------------------------------------------------------------------------

    def release(self, cache_keys: Sequence[CacheKey]) -> None:
        """Forget the contexts of these agents."""
        for key in cache_keys:
            self._contexts.pop(key, None)

    @property
    def is_dead(self) -> bool:
        """Whether vLLM is gone for good: whoever owns the engine builds another."""
        return bool(self.client.dead)

    @property
    def counts(self) -> Counts:
        """vLLM's own counts."""
        return self.client.counts

    @property
    def probe_tokens(self) -> int:
        """Tokens that vLLM generated for probes; nobody is given them."""
        return self._sync.probe_tokens

    def close(self) -> None:
        """End vLLM and its processes; running generations end with EngineFault. Idempotent."""
        self.client.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, state: Mapping[str, Tensor], version: int, probe: Probe) -> float:
        """Take these weights as `version` and prove them; returns the probe's worst difference (nats).

        Raises WeightError: `version` stays what it was. Tensors that are not finite or do not fit are refused before anything
        changes; when the probe disagrees, nothing is sampled before a sync succeeds; when vLLM fails to load, it is dead.
        """
        folder = self._folder / f"weights-{next(self._numbers)}"
        check_export(export_for_vllm(state, self._source, folder, self._dtype), self._shapes)
        worst = self._take(version, lambda: self.client.wait(self._sync.from_folder(folder, version, probe)))
        for old in self._folder.iterdir():
            if old != folder:
                shutil.rmtree(old, ignore_errors=True)
        return worst

    def sync_folder(self, directory: str | Path, version: int, probe: Probe) -> float:
        """The same with the weights of a Hugging Face folder."""
        return self.sync(read_weights(directory), version, probe)

    def sync_adapter(self, directory: str | Path, version: int, probe: Probe) -> float:
        """Serve a LoRA adapter of the base as `version`, under a name and number never used before. Raises WeightError."""
        number = next(self._numbers) + 1
        return self._take(version, lambda: self.client.wait(self._sync.from_adapter(Path(directory), version, number, probe)))

    def sync_transferred(self, send: Callable[[], None], version: int, probe: Probe) -> float:
        """The same through vLLM's weight transfer (vllm_transfer.py): `send` is the trainer's `send_weights`."""

        def work() -> float:
            self.client.wait(self._sync.begin())
            try:
                send()
            except BaseException:
                self.client.wait(self._sync.resume())
                raise
            return self.client.wait(self._sync.prove(version, probe))

        return self._take(version, work)

    def _take(self, version: int, work: Callable[[], float]) -> float:
        """Nothing is sampled while a sync is under way, nor after one that failed; contexts end with the old weights."""
        failed = f"the sync to version {version} failed"
        if self.is_dead:
            raise WeightError(f"{failed}: the engine died: {self.client.dead}; build a new one.")
        if self._running:
            raise WeightError(f"{failed}: {len(self._running)} requests are running; sync between batches of rollouts.")
        self._refusal = failed
        self._contexts.clear()
        try:
            worst = work()
        except WeightError:
            raise
        except Exception as error:
            raise WeightError(f"{failed}: {error}") from error
        self.version, self._refusal = version, ""
        return worst

    # -- one request, on vLLM's loop ---------------------------------------------------------------------------------

    async def _generate(self, request: SampleRequest) -> Sample:
        if self.is_dead or self._refusal:
            raise EngineFault(f"the engine cannot sample: {self.client.dead or self._refusal}")
        key = request.cache_key
        if key in self._running:
            raise EngineFault(f"(rollout, agent) {key} is being sampled already; one action at a time")
        ids = self._prompt(request)
        name = self._running[key] = f"{key[0]}-{key[1]}-{next(self._numbers)}"
        self._contexts.pop(key, None)  # given up unless the sample comes back whole
        try:
            output = await self.client.request(ids, self._parameters(request), name, self._sync.adapter)
        finally:
            del self._running[key]
        sample = self._checked(output, key)
        self._contexts[key] = [*ids, *sample.ids]
        self.tokens_sampled += len(sample.ids)
        self.prompt_tokens += len(request.new_ids)
        self.cached_tokens += output.num_cached_tokens or 0
        return sample

    def _prompt(self, request: SampleRequest) -> list[int]:
        """The whole context. Raises EngineFault when it is not there or leaves no room for the action."""
        known: list[int] | None = [] if request.new_context else self._contexts.get(request.cache_key)
        if known is None:
            raise EngineFault(f"the context of (rollout, agent) {request.cache_key} is not there; start a new context")
        ids = [*known, *request.new_ids]
        room = self.serving.max_context_tokens - len(ids)
        if room < request.max_tokens or not ids:
            raise EngineFault(
                f"a context of {len(ids)} tokens and an action of {request.max_tokens} do not fit into the engine's "
                f"{self.serving.max_context_tokens}; the harness must start a new context, or raise context.max_tokens."
            )
        return ids

    def _parameters(self, request: SampleRequest) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        return SamplingParams(
            temperature=self.serving.temperature, top_p=1.0, top_k=0, seed=request.seed & (2**63 - 1),
            max_tokens=request.max_tokens, stop_token_ids=list(self.serving.stop_ids), ignore_eos=True, logprobs=0,
            detokenize=False, output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True,
        )  # fmt: skip

    def _checked(self, output: Any, key: CacheKey) -> Sample:
        """The sample of a finished request. Raises EngineFault when ids, logprobs or versions do not add up."""
        if output is None or output.outputs[0].finish_reason not in ("stop", "length", "abort"):
            reason = output and output.outputs[0].finish_reason
            raise EngineFault(f"vLLM ended the request of (rollout, agent) {key} with {reason!r}, expected stop, length or abort")
        completion = output.outputs[0]
        ids = [int(token) for token in completion.token_ids]
        logprobs = [float(at[token].logprob) for token, at in zip(ids, completion.logprobs or [], strict=True)]
        if not all(map(math.isfinite, logprobs)):
            raise EngineFault(f"(rollout, agent) {key}: logprobs that are not finite; the weights are damaged")
        spans = [(span.version, span.start, span.end) for span in completion.weight_versions or [] if span.end > span.start]
        if spans != ([(str(self.version), 0, len(ids))] if ids else []):
            raise EngineFault(
                f"(rollout, agent) {key}: tokens of weight versions {spans} (version, first, end), expected all {len(ids)} of "
                f"version {self.version}; sync only between batches of rollouts."
            )
        return Sample(ids, logprobs, self.version)

    async def _abort(self, keys: list[CacheKey]) -> None:
        """Again until it is over: an abort that comes before vLLM knows the request would be lost."""
        names = {key: self._running[key] for key in keys if key in self._running}
        while names and not self.is_dead:
            try:
                await self.client.llm.abort(list(names.values()))
            except Exception as error:
                self.client.die(f"it could not abort: {type(error).__name__}: {error}")
            await asyncio.sleep(ABORT_AGAIN_S)
            names = {key: name for key, name in names.items() if self._running.get(key) == name}


class Awaited:
    """The protocol `AsyncEngine` (rlcr_core.engines.base) over a VllmEngine; whoever made the engine still syncs it."""

    def __init__(self, engine: VllmEngine) -> None:
        self.engine = engine
        self.generate, self.abort, self.release = engine.generate, engine.abort, engine.release

    @property
    def version(self) -> int:
        return self.engine.version

    async def close(self) -> None:
        """Without blocking the caller's loop."""
        await asyncio.to_thread(self.engine.close)
