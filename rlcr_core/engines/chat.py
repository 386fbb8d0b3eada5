"""The chat engine: continuous batching of a chat model with a context per agent that survives between its turns.

Each `step` reads one token of every running request and as many tokens of newly begun ones as fit, in one batch, and
samples the next token of all that are read up. What was sampled last is read at the next step or the next turn, so a
request may be aborted at any moment and its context stays exact. The logprobs are those of the distribution sampled
from, and random numbers come from each request's own seed: neither batch nor order changes what is sampled, up to the
rounding of a matrix product whose other rows are others.

Threads: one thread may step while others begin, abort and release; those three return at once. Written device-agnostic;
run on CPUs only so far.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlcr_core.engines.memory import Reading, make_memory
from rlcr_core.engines.running import Books, Key, Run
from rlcr_core.engines.sampling import choose_wide
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.seeds import uniforms
from rlcr_core.types import Sample, SampleRequest


class ChatEngine:
    """Serves one model; `sync` replaces its weights and empties every cache."""

    def __init__(
        self,
        model: PreTrainedModel,
        stop_ids: Sequence[int],
        temperature: float = 1.0,
        dtype: torch.dtype = torch.float32,
        max_running: int = 256,
        step_tokens: int = 512,
        version: int = 0,
    ) -> None:
        """An action ends with one of `stop_ids` (its last id) or at the request's max_tokens.

        `dtype` is that of weights and caches; at most `max_running` requests are read at once, and
        at most `step_tokens` tokens of their prompts in one step. A model that rlcr_core.llama does not support is kept
        and changed by `sync`; of others only the weights are copied.
        """
        model.train(False)
        self.version = version
        self.temperature = temperature
        self.max_running, self.step_tokens = max_running, step_tokens
        self._shapes = {name: parameter.shape for name, parameter in model.named_parameters()}
        positions = getattr(model.config, "max_position_embeddings", None)
        self._memory = make_memory(model, dtype)
        n_positions = 1 << 60 if positions is None else int(positions)
        self._books = Books(stop_ids, int(model.config.vocab_size), n_positions, self._memory.shares_prefixes)
        self._bookkeeping = threading.Lock()  # never held for long
        self._computing = threading.Lock()  # held while the model computes; taken first where both are

    @property
    def tokens_sampled(self) -> int:
        return self._books.tokens_sampled

    @property
    def prompt_tokens(self) -> int:
        return self._books.prompt_tokens

    @property
    def copied_tokens(self) -> int:
        """Of the prompts' tokens those that were copied from a context that begins alike, not read."""
        return self._books.copied_tokens

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, state: Mapping[str, Tensor], version: int) -> None:
        """Take these weights as `version` and empty every cache.

        Raises WeightError, and keeps the old ones, when names or shapes differ; EngineFault while requests are running.
        """
        wrong = [name for name, shape in self._shapes.items() if name not in state or state[name].shape != shape]
        if wrong:
            raise WeightError(
                f"weights of version {version} do not fit the policy: {', '.join(wrong[:3])} missing or of another shape, "
                f"expected the {len(self._shapes)} parameters of the base; start from a base with the same policy section."
            )
        with self._computing:
            self._refuse_runs("sync")
            self._forget()
            self._memory.load(state)
            self.version = version

    @torch.inference_mode()
    def probe(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Logprobs of each next token of fixed id sequences at temperature 1, read token by token as in sampling."""
        result: list[list[float]] = [[] for _ in ids]
        with self._computing:
            numbers = [self._books.number() for _ in ids]
            for t in range(max(map(len, ids), default=0) - 1):
                rows = [i for i, row in enumerate(ids) if len(row) > t + 1]
                logits_RV = self._memory.read([Reading(numbers[i], [ids[i][t]], True) for i in rows])
                next_R1 = torch.tensor([ids[i][t + 1] for i in rows], device=logits_RV.device)[:, None]
                for i, logprob in zip(rows, logits_RV.log_softmax(-1).gather(-1, next_R1)[:, 0].tolist(), strict=True):
                    result[i].append(logprob)
            for number in numbers:
                self._memory.drop(number)
        return result

    # -- contexts ----------------------------------------------------------------------------------------------------

    def release(self, cache_keys: Sequence[Key]) -> None:
        """Forget the contexts of these agents; a request running on one ends without a sample."""
        with self._bookkeeping:
            self._books.release(cache_keys)
        if self._computing.acquire(blocking=False):  # else the next step frees the memory
            try:
                self._free_dropped()
            finally:
                self._computing.release()

    def close(self) -> None:
        """Forget every context and request; waits for a step in progress."""
        with self._computing:
            self._forget()

    # -- sampling ----------------------------------------------------------------------------------------------------

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """One action for each request, in their order. Raises EngineFault, and starts none, when one cannot be served."""
        self._refuse_runs("sample")
        if len({request.cache_key for request in requests}) < len(requests):
            raise EngineFault("two requests of one call have the same cache_key; an agent takes one turn at a time")
        for request in requests:
            self._books.check(request)
        for request in requests:
            self.begin(request)
        samples: dict[Key, Sample] = {}
        while len(samples) < len(requests):
            samples.update(self.step())
        return [samples[request.cache_key] for request in requests]

    def begin(self, request: SampleRequest) -> None:
        """Register a request, for `step` to serve. Raises EngineFault, and changes nothing, for one that cannot be served."""
        with self._bookkeeping:
            self._books.begin(request)

    @torch.inference_mode()
    def step(self) -> list[tuple[Key, Sample]]:
        """Read and sample once; the requests that finished by it. Without requests: an empty list, at once.

        Raises EngineFault when the model fails; every context and request is gone then.
        """
        with self._computing:
            self._free_dropped()
            with self._bookkeeping:
                batch = self._books.batch(self.max_running, self.step_tokens)
            if not batch:
                return []
            sampled = [run for run, reading in batch if reading.wanted]
            try:
                logits_RV = self._memory.read([reading for _, reading in batch])
                chosen = self._choose(logits_RV, sampled) if sampled else []
            except Exception as error:
                self._forget()
                raise error if isinstance(error, EngineFault) else EngineFault(f"the model failed: {error!r}") from error
            with self._bookkeeping:
                return self._versioned(self._books.commit(batch, dict(zip(sampled, chosen, strict=True))))

    def abort(self, cache_keys: Sequence[Key]) -> list[tuple[Key, Sample]]:
        """End these requests at once with the tokens sampled so far, which stay in their contexts.

        Keys without a running request are passed over. A step in progress goes on without them.
        """
        with self._bookkeeping:
            return self._versioned(self._books.finish(cache_keys))

    def _choose(self, logits_RV: Tensor, runs: list[Run]) -> list[tuple[int, float]]:
        """Token and logprob for each run, drawn with the number of its seed and position."""
        seeds_R = np.array([run.request.seed for run in runs], dtype=np.uint64)
        position_R = np.array([len(run.ids) for run in runs])
        uniforms_R = np.empty(len(runs))
        for position in set(position_R.tolist()):
            uniforms_R[position_R == position] = uniforms(seeds_R[position_R == position], position)
        tempered_RV = logits_RV if self.temperature == 1.0 else logits_RV / self.temperature
        ids_R, logprobs_R = choose_wide(tempered_RV, uniforms_R)
        return list(zip(ids_R.tolist(), logprobs_R.tolist(), strict=True))

    def _versioned(self, samples: list[tuple[Key, Sample]]) -> list[tuple[Key, Sample]]:
        return [(key, sample._replace(version=self.version)) for key, sample in samples]

    def _free_dropped(self) -> None:
        while self._books.dropped:
            self._memory.drop(self._books.dropped.pop())

    def _forget(self) -> None:
        with self._bookkeeping:
            self._books.clear()
            self._memory.clear()

    def _refuse_runs(self, what: str) -> None:
        if self._books.runs:
            raise EngineFault(f"{what} came while {len(self._books.runs)} requests ran; wait for them, or abort them first")
