"""A lean forward pass of LFM2 decoders on their own Hugging Face weights, for small policies and short contexts.

Small networks spend most of their time outside the matrix products. This pass computes the same function as
transformers' (a test holds both to 1e-5) with three savings: the short convolution is a sum of shifted products, the
last layer computes queries only for the positions whose prediction is needed, and sampling keeps its caches in plain
tensors. benchmarks/forward.py times both. Rows are padded on the right or not at all, with positions from 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import Lfm2ForCausalLM, PreTrainedModel


def supports(model: PreTrainedModel) -> bool:
    """Whether this pass can stand in for the model's own: LFM2 with default rotary positions and no bias."""
    config = model.config
    return (
        isinstance(model, Lfm2ForCausalLM)
        and (config.rope_parameters or {}).get("rope_type", "default") == "default"
        and not config.conv_bias
    )


@dataclass(slots=True)
class Cache:
    """State of B rows of equal length: per layer keys and values [B, H, T, D], or the last convolution inputs [B, K-1, C]."""

    layers: list[tuple[Tensor, ...]]
    length: int

    def select(self, index: Tensor) -> None:
        """Keep these rows."""
        self.layers = [tuple(tensor[index] for tensor in layer) for layer in self.layers]


class LeanDecoder:
    """The lean pass of one model; parameters are read at each call, so updates in place are seen."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model: Any = model
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = config.hidden_size // self.heads
        self.eps = config.norm_eps
        theta = config.rope_parameters["rope_theta"]
        exponents = torch.arange(0, self.head_dim, 2, dtype=torch.float32) / self.head_dim
        self._frequencies = theta**-exponents
        self._rotary: tuple[Tensor, Tensor] | None = None

    def hidden(self, input_ids_BT: Tensor, first: int = 0, cache: Cache | None = None) -> Tensor:
        """Final hidden states [B, T - first, D] of the positions from `first` on; a given cache is read and extended.

        Only the last layer skips positions, so `first` never changes a value.
        """
        decoder = self.model.model
        start = 0 if cache is None else cache.length
        x_BTD = F.embedding(input_ids_BT, decoder.embed_tokens.weight)
        rotary = self._angles(start, start + input_ids_BT.shape[1], x_BTD)
        last = len(decoder.layers) - 1
        fresh = cache is not None and not cache.layers
        for i, layer in enumerate(decoder.layers):
            skip = first if i == last else 0
            state = cache.layers[i] if cache is not None and not fresh else None
            normed = self._norm(x_BTD, layer.operator_norm)
            if layer.is_attention_layer:
                y_BTD, new = self._attention(layer.self_attn, normed, rotary, skip, state)
            else:
                y_BTD, new = self._convolution(layer.conv, normed, state)
                y_BTD = y_BTD[:, skip:]
            if cache is not None:
                if fresh:
                    cache.layers.append(new)
                else:
                    cache.layers[i] = new
            x_BTD = x_BTD[:, skip:] + y_BTD
            x_BTD = x_BTD + self._feed_forward(layer.feed_forward, self._norm(x_BTD, layer.ffn_norm))
        if cache is not None:
            cache.length += input_ids_BT.shape[1]
        return self._norm(x_BTD, decoder.embedding_norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """Float32 logits [..., V]."""
        return F.linear(hidden, self.model.lm_head.weight).float()

    def _norm(self, x: Tensor, norm: Any) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), norm.weight, self.eps)

    def _angles(self, start: int, end: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [T, D] of the rotary positions start..end-1."""
        if self._rotary is None or len(self._rotary[0]) < end or self._rotary[0].device != like.device:
            with torch.inference_mode(False):  # the table serves training too
                angles = torch.outer(torch.arange(max(64, 2 * end), dtype=torch.float32), self._frequencies)
                angles = torch.cat([angles, angles], -1)
                self._rotary = angles.cos().to(like.device), angles.sin().to(like.device)
        return self._rotary[0][start:end].to(like.dtype), self._rotary[1][start:end].to(like.dtype)

    def _heads(self, x: Tensor, weight: Tensor, heads: int) -> Tensor:
        return F.linear(x, weight).view(*x.shape[:-1], heads, self.head_dim)

    def _attention(
        self, layer: Any, x_BTD: Tensor, rotary: tuple[Tensor, Tensor], skip: int, state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        cos_T1D, sin_T1D = rotary[0][:, None], rotary[1][:, None]
        queries = self._norm(self._heads(x_BTD[:, skip:], layer.q_proj.weight, self.heads), layer.q_layernorm)
        keys = self._norm(self._heads(x_BTD, layer.k_proj.weight, self.kv_heads), layer.k_layernorm)
        queries = _rotate(queries, cos_T1D[skip:], sin_T1D[skip:]).transpose(1, 2)
        keys = _rotate(keys, cos_T1D, sin_T1D).transpose(1, 2)
        values = self._heads(x_BTD, layer.v_proj.weight, self.kv_heads).transpose(1, 2)
        if state is not None:
            keys, values = torch.cat([state[0], keys], 2), torch.cat([state[1], values], 2)
        n_queries, n_keys = queries.shape[2], keys.shape[2]
        mask = None
        if n_queries > 1:
            mask = torch.ones(n_queries, n_keys, dtype=torch.bool, device=x_BTD.device).tril(n_keys - n_queries)
        out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask, enable_gqa=self.heads != self.kv_heads)
        return F.linear(out.transpose(1, 2).flatten(2), layer.out_proj.weight), (keys, values)

    def _convolution(self, layer: Any, x_BTD: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, tuple[Tensor, ...]]:
        gate_in, gate_out, value = F.linear(x_BTD, layer.in_proj.weight).chunk(3, -1)
        inputs = gate_in * value
        taps_CK = layer.conv.weight[:, 0]
        n, reach = inputs.shape[1], taps_CK.shape[1] - 1
        history = F.pad(inputs, (0, 0, reach, 0)) if state is None else torch.cat([state[0], inputs], 1)
        mixed = sum(history[:, k : k + n] * taps_CK[:, k] for k in range(reach + 1))
        return F.linear(gate_out * mixed, layer.out_proj.weight), (history[:, n:].detach(),)

    def _feed_forward(self, layer: Any, x: Tensor) -> Tensor:
        return F.linear(F.silu(F.linear(x, layer.w1.weight)) * F.linear(x, layer.w3.weight), layer.w2.weight)


def _rotate(x_BTHD: Tensor, cos_T1D: Tensor, sin_T1D: Tensor) -> Tensor:
    half = x_BTHD.shape[-1] // 2
    turned = torch.cat([-x_BTHD[..., half:], x_BTHD[..., :half]], -1)
    return x_BTHD * cos_T1D + turned * sin_T1D
