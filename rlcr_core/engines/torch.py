"""The torch engine: batched sampling of a Hugging Face decoder with a key-value cache per agent.

Between turns of a growing transcript an agent's cache survives, so only new tokens are read; a bounded window starts
anew each turn and keeps nothing. The logprobs returned are those of the distribution sampled from, and the random
numbers come from each request's own seed, so neither batch nor order changes what is sampled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from rlcr_core import lfm2
from rlcr_core.engines.readers import HuggingFaceReader, LeanReader, Reader, Slot
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.policy import has_recurrent_layers
from rlcr_core.seeds import uniforms
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import ActionFormat, Sample, SampleRequest


class TorchEngine:
    """Samples with its own copy of the policy; `sync` replaces the weights and empties every cache."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: WordTokenizer,
        action_format: ActionFormat,
        temperature: float = 1.0,
        keep_caches: bool = False,
        lean: bool = True,
        version: int = 0,
    ) -> None:
        model.train(False)
        self.model = model
        self.version = version
        self.temperature = temperature
        self.keep_caches = keep_caches
        self.lean = lean and not keep_caches and lfm2.supports(model)
        self.tokens_sampled = 0
        self.prompt_tokens = 0
        self._slots: dict[tuple[int, int], Slot] = {}
        self._recurrent = has_recurrent_layers(model)
        self._length_V, self._stops = _stop_rule(tokenizer, action_format)

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, state: Mapping[str, Tensor], version: int) -> None:
        """Take these weights as `version`. Raises WeightError, and keeps the old ones, when names or shapes differ."""
        own = dict(self.model.named_parameters())
        wrong = [name for name, p in own.items() if name not in state or state[name].shape != p.shape]
        if wrong:
            raise WeightError(
                f"weights of version {version} do not fit the policy: {', '.join(wrong[:3])} missing or of another shape, "
                f"expected the {len(own)} parameters of the base; start from a base with the same policy section."
            )
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(state[name])
        self._slots.clear()
        self.version = version

    @torch.inference_mode()
    def probe(self, ids: Sequence[Sequence[int]]) -> list[list[float]]:
        """Logprobs of each next token of fixed id sequences at temperature 1, read token by token as in sampling."""
        result = []
        for row in ids:
            reader = self._reader([None])
            logits_1V = reader.start([row[:1]])
            logprobs = []
            for token in row[1:]:
                logprobs.append(float(logits_1V[0].log_softmax(-1)[token]))
                logits_1V = reader.next(torch.tensor([token]))
            result.append(logprobs)
        return result

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Forget the contexts of these agents."""
        for key in cache_keys:
            self._slots.pop(key, None)

    def close(self) -> None:
        self._slots.clear()

    # -- sampling ----------------------------------------------------------------------------------------------------

    @torch.inference_mode()
    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        """One action for each request, in their order. Raises EngineFault for a context that is not cached."""
        groups: dict[int, list[int]] = {}
        prompts = [self._prompt(request) for request in requests]
        by_length = self.lean or self._recurrent
        for i, prompt in enumerate(prompts):
            groups.setdefault(len(prompt) if by_length else 0, []).append(i)
        samples: dict[int, Sample] = {}
        for rows in groups.values():
            chosen = [requests[i] for i in rows]
            reader = self._reader([None if r.new_context else self._slots[r.cache_key] for r in chosen])
            samples.update(zip(rows, self._decode(reader, chosen, [prompts[i] for i in rows]), strict=True))
        return [samples[i] for i in range(len(requests))]

    def _prompt(self, request: SampleRequest) -> list[int]:
        """The tokens to read: the last one sampled, which no turn has read yet, and the new ones."""
        self.prompt_tokens += len(request.new_ids)
        if request.new_context:
            return list(request.new_ids)
        slot = self._slots.get(request.cache_key)
        if slot is None:
            raise EngineFault(f"the context of (rollout, agent) {request.cache_key} is not cached; start a new context")
        return [slot.unread, *request.new_ids]

    def _reader(self, slots: Sequence[Slot | None]) -> Reader:
        return LeanReader(self.model) if self.lean else HuggingFaceReader(self.model, slots)

    def _decode(self, reader: Reader, requests: list[SampleRequest], prompts: list[list[int]]) -> list[Sample]:
        """Sample token by token; rows whose action is complete leave the batch."""
        samples = [Sample([], [], self.version) for _ in requests]
        seeds_B = np.array([r.seed for r in requests], dtype=np.uint64)
        budget_B = np.array([r.max_tokens for r in requests])
        rows = np.arange(len(requests))
        logits_BV = reader.start(prompts)
        position = 0
        while True:
            chosen_B, logprobs_B = choose(logits_BV / self.temperature, uniforms(seeds_B[rows], position))
            for row, token, logprob in zip(rows.tolist(), chosen_B.tolist(), logprobs_B.tolist(), strict=True):
                samples[row].ids.append(token)
                samples[row].logprobs.append(logprob)
            if position == 0 and self._length_V is not None:
                budget_B = np.minimum(budget_B, self._length_V[chosen_B])
            position += 1
            finished = budget_B[rows] <= position
            if self._stops:
                finished |= np.isin(chosen_B, list(self._stops))
            if self.keep_caches:
                for i in np.flatnonzero(finished).tolist():
                    self._slots[requests[rows[i]].cache_key] = reader.slot(i, int(chosen_B[i]))
            if finished.all():
                break
            if finished.any():
                reader.select(torch.from_numpy(np.flatnonzero(~finished)))
                rows, chosen_B = rows[~finished], chosen_B[~finished]
            logits_BV = reader.next(torch.from_numpy(chosen_B))
        self.tokens_sampled += sum(len(sample.ids) for sample in samples)
        return samples


def choose(logits_BV: Tensor, uniforms_B: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Inverse-CDF sampling in float64: ids [B] and their logprobs [B] (nats) under softmax(logits)."""
    logprobs_BV = logits_BV.log_softmax(-1).cpu()
    cumulative_BV = logprobs_BV.double().exp_().cumsum_(-1)
    total_B1 = cumulative_BV[:, -1:]
    if not bool(torch.isfinite(total_B1).all()):
        raise EngineFault("the policy gives logits that are not finite; its weights are damaged")
    ids_B1 = torch.searchsorted(cumulative_BV, torch.from_numpy(uniforms_B)[:, None] * total_B1, right=True)
    ids_B1 = ids_B1.clamp_(max=logits_BV.shape[-1] - 1)
    return ids_B1[:, 0].numpy(), logprobs_BV.gather(-1, ids_B1)[:, 0].numpy()


def _stop_rule(tokenizer: WordTokenizer, action_format: ActionFormat) -> tuple[NDArray[Any] | None, set[int]]:
    """Action length by first token id [V] (None without an arity), and the ids that end an action."""
    stops = {tokenizer.encode(word)[0] for word in action_format.stop_words}
    if action_format.arity is None:
        return None, stops
    length_V = np.ones(len(tokenizer), dtype=np.int64)
    for word, n in action_format.arity.items():
        length_V[tokenizer.encode(word)[0]] = n
    return length_V, stops
