"""Readers run the decoder over new tokens of a batch of contexts and keep its caches; the torch engine samples with them.

`HuggingFaceReader` serves any decoder of transformers, also with histories of different lengths: caches are padded on
the left, padding is masked, positions are each row's own. `LeanReader` serves rows of equal length without history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import DynamicCache, PreTrainedModel

from rlcr_core import lfm2
from rlcr_core.policy import cache_argument, has_recurrent_layers, head, hidden_states

Layers = list[tuple[Tensor, ...]]  # per layer: (keys, values) each [1, H, T, D], or (convolution state [1, C, K],)


@dataclass(slots=True)
class Slot:
    """One agent's context between turns: cached layers, the tokens they cover, and the last token, not yet read."""

    layers: Layers
    length: int
    unread: int


class Reader(Protocol):
    """A batch of contexts being read."""

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        """Read the prompts; logits [B, V] of the token after each."""

    def next(self, token_B: Tensor) -> Tensor:
        """Read one more token of each row; logits [B, V]."""

    def select(self, index_B: Tensor) -> None:
        """Keep these rows only."""

    def slot(self, row: int, unread: int) -> Slot:
        """The state of one row, to go on from in a later turn."""


class LeanReader:
    """Rows of equal length without history, through the lean pass of rlcr_core.lfm2."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.device = model.device
        self.decoder = lfm2.LeanDecoder(model)
        self.cache = lfm2.Cache([], 0)

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        ids_BT = torch.tensor(prompts, device=self.device)
        return self.decoder.logits(self.decoder.hidden(ids_BT, ids_BT.shape[1] - 1, self.cache)[:, 0])

    def next(self, token_B: Tensor) -> Tensor:
        return self.decoder.logits(self.decoder.hidden(token_B.to(self.device)[:, None], 0, self.cache)[:, 0])

    def select(self, index_B: Tensor) -> None:
        self.cache.select(index_B.to(self.device))

    def slot(self, row: int, unread: int) -> Slot:
        raise ValueError("a lean reader keeps no context between turns; build the engine with keep_caches=True")


class HuggingFaceReader:
    """Any decoder of transformers; a row may go on from a slot. Recurrent layers need prompts of equal length."""

    def __init__(self, model: PreTrainedModel, slots: Sequence[Slot | None]) -> None:
        self.model = model
        self.argument = cache_argument(model)
        self.recurrent = has_recurrent_layers(model)
        self.cache: Any = DynamicCache(config=model.config)
        self.past = [0 if slot is None else slot.length for slot in slots]
        self.key_positions_BK = self._join(slots)

    def start(self, prompts: Sequence[Sequence[int]]) -> Tensor:
        ids_BT, positions_BT = _left_pad(prompts, self.past)
        self.length_B = torch.tensor([n + len(p) for n, p in zip(self.past, prompts, strict=True)])
        return self._read(ids_BT, positions_BT)

    def next(self, token_B: Tensor) -> Tensor:
        logits_BV = self._read(token_B[:, None], self.length_B[:, None])
        self.length_B = self.length_B + 1
        return logits_BV

    def select(self, index_B: Tensor) -> None:
        self.key_positions_BK, self.length_B = self.key_positions_BK[index_B], self.length_B[index_B]
        self.cache.reorder_cache(index_B.to(self.model.device))

    def slot(self, row: int, unread: int) -> Slot:
        columns = torch.nonzero(self.key_positions_BK[row] >= 0).squeeze(-1)
        layers: Layers = []
        for layer in self.cache.layers:
            if getattr(layer, "keys", None) is not None:
                layers.append(tuple(t[row : row + 1, :, columns].clone() for t in (layer.keys, layer.values)))
            else:
                layers.append((layer.conv_states[0][row : row + 1].clone(),))
        return Slot(layers, len(columns), unread)

    def _read(self, ids_BT: Tensor, positions_BT: Tensor) -> Tensor:
        device = self.model.device
        self.key_positions_BK = torch.cat([self.key_positions_BK, positions_BT], 1)
        inputs: dict[str, Any] = {self.argument: self.cache, "position_ids": positions_BT.clamp(min=0).to(device)}
        if bool((self.key_positions_BK < 0).any()):
            keys_B1K = self.key_positions_BK[:, None]
            # Padded queries attend to themselves only in effect: their rows are never read, but must not be empty.
            mask = (keys_B1K >= 0) & (keys_B1K <= positions_BT.clamp(min=0)[:, :, None])
            mask = mask[:, None].to(device)
            inputs["attention_mask"] = {"full_attention": mask, "conv": None} if self.recurrent else mask
        hidden_BTD = hidden_states(self.model, ids_BT.to(device), use_cache=True, **inputs)
        return head(self.model, hidden_BTD[:, -1])

    def _join(self, slots: Sequence[Slot | None]) -> Tensor:
        """Fill the cache with all rows, padded on the left; each key's position [B, K] (-1 where padded)."""
        longest = max(self.past)
        if longest == 0:
            return torch.empty(len(slots), 0, dtype=torch.long)
        example = next(slot.layers for slot in slots if slot is not None)
        for i, tensors in enumerate(example):
            fresh = tuple(t[..., :0, :] if len(tensors) == 2 else torch.zeros_like(t) for t in tensors)
            rows = [fresh if slot is None else slot.layers[i] for slot in slots]
            if len(tensors) == 2:
                self.cache.update(*(torch.cat([_pad_left(row[j], longest) for row in rows]) for j in (0, 1)), i)
            else:
                state = torch.cat([row[0] for row in rows])
                self.cache.layers[i].update_conv_state(state, conv_kernel_size=state.shape[-1])
        span = torch.arange(longest)
        return torch.stack([torch.where(span >= longest - n, span - (longest - n), -1) for n in self.past])


def _left_pad(prompts: Sequence[Sequence[int]], past: list[int]) -> tuple[Tensor, Tensor]:
    """Ids [B, T] and positions [B, T] (-1 where padded) of new tokens that follow `past` cached ones."""
    longest = max(map(len, prompts))
    ids_BT = torch.zeros(len(prompts), longest, dtype=torch.long)
    positions_BT = torch.full((len(prompts), longest), -1, dtype=torch.long)
    for row, (prompt, start) in enumerate(zip(prompts, past, strict=True)):
        ids_BT[row, longest - len(prompt) :] = torch.tensor(prompt)
        positions_BT[row, longest - len(prompt) :] = torch.arange(start, start + len(prompt))
    return ids_BT, positions_BT


def _pad_left(tensor: Tensor, length: int) -> Tensor:
    """[1, H, T, D] padded with zeros on the left of T."""
    return torch.nn.functional.pad(tensor, (0, 0, length - tensor.shape[-2], 0))
