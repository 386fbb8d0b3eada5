"""A lean forward pass of Llama-type decoders (Llama, Qwen2, Qwen3) for sampling, on weights laid out for it once.

It computes the same function as transformers' own (a test holds both to 1e-4 in float32) with these savings: the new
tokens of all rows are one packed batch without padding, whatever their number and past; query, key and value are one
product, gate and up another; weights are reordered once for the CPU's matrix kernels; keys and values stay where they
are in a pool of slots, and attention reads them there; the last layer goes on with the wanted positions only.
benchmarks/chat_sampling.py times it. Written device-agnostic; run on CPUs only so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import LlamaForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from rlcr_core.engines.attention import Plan

_STATIC_ROTARY = {"default", "linear", "llama3", "yarn"}  # frequencies that do not depend on the length read so far


def supports(model: PreTrainedModel) -> bool:
    """Whether this pass can stand in for the model's own."""
    config, base = model.config, cast(Any, model.base_model)
    return (
        type(model) in (LlamaForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
        and (getattr(config, "rope_parameters", None) or {}).get("rope_type", "default") in _STATIC_ROTARY
        and set(getattr(config, "layer_types", None) or ()) <= {"full_attention"}
        and config.hidden_act == "silu"
        and bool(base.rotary_emb.inv_freq.dtype == torch.float32)
    )


class Linear:
    """x W^T + b; on the CPU the weight is kept in the order in which oneDNN's kernels read it.

    Without that, oneDNN reorders a bfloat16 weight at every call, which costs more than the product of a small batch.
    """

    def __init__(self, weight_OI: Tensor, bias_O: Tensor | None) -> None:
        self.bias = bias_O
        self.reordered = weight_OI.device.type == "cpu" and _has_kernels(weight_OI.dtype)
        self.weight = torch.ops.mkldnn._reorder_linear_weight(weight_OI, 16) if self.reordered else weight_OI

    def __call__(self, x: Tensor) -> Tensor:
        if self.reordered:
            y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.weight, self.bias, "none", [], "")
            return y
        return F.linear(x, self.weight, self.bias)


def _has_kernels(dtype: torch.dtype) -> bool:
    """Whether oneDNN computes in this type here; older processors have no bfloat16."""
    available = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    return available and (dtype != torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))


@dataclass(slots=True)
class _Layer:
    input_norm: Tensor
    query_key_value: Linear
    query_norm: Tensor | None  # per head, [D], before the rotation
    key_norm: Tensor | None
    output: Linear
    feed_norm: Tensor
    gate_up: Linear
    down: Linear


class LlamaDecoder:
    """The lean pass of one model's weights; `load` replaces them."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        config: Any = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.head_dim = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        self.n_layers, self.tied = config.num_hidden_layers, bool(config.tie_word_embeddings)
        self.dtype, self.device = dtype, model.device
        rotary: Any = model.base_model.rotary_emb
        self._frequencies, self._scaling = rotary.inv_freq.cpu().clone(), float(rotary.attention_scaling)
        self._rotary: tuple[Tensor, Tensor] | None = None
        self.load(dict(model.named_parameters()))

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Take these weights, by the names of transformers' parameters, layer after layer."""

        def ready(t: Tensor) -> Tensor:
            # A copy always: the trainer goes on changing its own tensors in place.
            return t.detach().to(self.device, self.dtype, copy=True, memory_format=torch.contiguous_format)

        with torch.inference_mode():
            self.embedding = ready(state["model.embed_tokens.weight"])
            self.norm = ready(state["model.norm.weight"])
            self.head = Linear(self.embedding if self.tied else ready(state["lm_head.weight"]), None)
            if not hasattr(self, "layers"):
                self.layers: list[_Layer] = []
            for i in range(self.n_layers):
                prefix = f"model.layers.{i}."
                self.layers[i : i + 1] = [self._layer({k: ready(state[prefix + k]) for k in _names(state, prefix)})]

    def _layer(self, w: Mapping[str, Tensor]) -> _Layer:
        def fused(*names: str) -> Linear:
            biases = [w[f"{name}.bias"] for name in names if f"{name}.bias" in w]
            return Linear(torch.cat([w[f"{name}.weight"] for name in names]), torch.cat(biases) if biases else None)

        return _Layer(
            w["input_layernorm.weight"],
            fused("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            w.get("self_attn.q_norm.weight"),
            w.get("self_attn.k_norm.weight"),
            fused("self_attn.o_proj"),
            w["post_attention_layernorm.weight"],
            fused("mlp.gate_proj", "mlp.up_proj"),
            fused("mlp.down_proj"),
        )

    def hidden(self, ids_N: Tensor, positions_N: Tensor, pool_layers: list[Tensor], plan: Plan, last: Plan) -> Tensor:
        """Final hidden states [R, D] of the packed positions `last.rows_R`; keys and values of all N go into the pool.

        `plan` says where the pool holds the context of each of the N tokens, `last` the same for the R wanted ones.
        """
        x_ND = F.embedding(ids_N, self.embedding)
        cos_N1D, sin_N1D = self._angles(positions_N)
        for layer, pool in zip(self.layers, pool_layers, strict=True):
            query_NHD, key_value = self._project(layer, x_ND, cos_N1D, sin_N1D)
            pool.flatten(0, 1).index_copy_(0, plan.places_N, key_value)
            if pool is pool_layers[-1] and last is not plan:
                x_ND, query_NHD = x_ND[last.rows_R], query_NHD[last.rows_R]
                plan = last
            x_ND = x_ND + layer.output(plan.attend(query_NHD, pool))
            gate_up = layer.gate_up(self._norm(x_ND, layer.feed_norm))
            gate, up = gate_up.chunk(2, -1)
            x_ND = x_ND + layer.down(F.silu(gate) * up)
        return self._norm(x_ND, self.norm)

    def logits(self, hidden_RD: Tensor) -> Tensor:
        """Float32 logits [R, V]. In bfloat16 products are summed in float32 and rounded, as in transformers and vLLM."""
        return self.head(hidden_RD).float()

    def _project(self, layer: _Layer, x_ND: Tensor, cos_N1D: Tensor, sin_N1D: Tensor) -> tuple[Tensor, Tensor]:
        """Rotated queries [N, H, D], and rotated keys with values [N, 2 * kv_heads, D]."""
        fused = layer.query_key_value(self._norm(x_ND, layer.input_norm)).view(len(x_ND), -1, self.head_dim)
        n_rotated = self.heads + self.kv_heads
        turning = fused[:, :n_rotated]
        if layer.query_norm is not None and layer.key_norm is not None:
            query, key = turning[:, : self.heads], turning[:, self.heads :]
            turning = torch.cat([self._norm(query, layer.query_norm), self._norm(key, layer.key_norm)], 1)
        turned = torch.addcmul(turning * cos_N1D, turning.roll(self.head_dim // 2, -1), sin_N1D)
        return turned[:, : self.heads], torch.cat([turned[:, self.heads :], fused[:, n_rotated:]], 1)

    def _norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), weight, self.eps)

    def _angles(self, positions_N: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines [N, 1, D]; the first half of the sines is negative, so that a roll does the turn."""
        end = int(positions_N.max()) + 1
        if self._rotary is None or len(self._rotary[0]) < end:
            angles = torch.outer(torch.arange(max(256, 2 * end), dtype=torch.float32), self._frequencies)
            tables = (torch.cat([angles, angles], -1).cos(), torch.cat([-angles, angles], -1).sin())
            cos_TD, sin_TD = ((table * self._scaling).to(self.device, self.dtype) for table in tables)
            self._rotary = cos_TD, sin_TD
        return self._rotary[0][positions_N][:, None], self._rotary[1][positions_N][:, None]


def _names(state: Mapping[str, Tensor], prefix: str) -> list[str]:
    return [name.removeprefix(prefix) for name in state if name.startswith(prefix)]
