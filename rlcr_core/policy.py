"""The policy: a decoder in the Hugging Face format, so that transformers and vLLM load its checkpoints unchanged.

The small default is LFM2's architecture (Liquid AI, 2025): a gated short convolution, which gives the previous-token
step that in-context retrieval needs, then full attention. Any causal decoder of transformers can take its place.
"""

from __future__ import annotations

import inspect
import json
import os
import shutil
import tempfile
from logging import ERROR, getLogger
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, Lfm2Config, Lfm2ForCausalLM, PreTrainedModel
from transformers.utils import logging

from rlcr_core import lfm2
from rlcr_core.config import PolicyConfig
from rlcr_core.errors import StoreError, WeightError
from rlcr_core.packing import Batch
from rlcr_core.tokens import PolicyTokenizer

logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # a bar for each 400 kB checkpoint would drown the stages' own progress
getLogger("transformers.integrations.hub_kernels").setLevel(ERROR)  # no optional kernels on the CPU


def build_policy(config: PolicyConfig, vocab_size: int, seed: int) -> PreTrainedModel:
    """A freshly initialised small policy in float32; the same seed gives the same bytes."""
    hidden, inner = config.hidden_size, config.intermediate_size
    serving: dict[str, Any] = {"conv_dim": hidden, "block_dim": hidden}  # read by vLLM
    model_config = Lfm2Config(
        vocab_size=vocab_size, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=len(config.layers),
        num_attention_heads=config.heads, num_key_value_heads=config.heads, layer_types=list(config.layers),
        block_auto_adjust_ff_dim=False, block_multiple_of=1, block_ffn_dim_multiplier=1.0, conv_L_cache=3,
        max_position_embeddings=config.max_positions, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
        pad_token_id=0, bos_token_id=None, eos_token_id=None, **serving,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Lfm2ForCausalLM(model_config)
    model.train(False)
    return model


def load_policy(directory: str | Path, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """Load a checkpoint directory in `dtype`. Raises WeightError when it is missing or not loadable."""
    path = Path(directory)
    if not (path / "config.json").is_file():
        raise WeightError(f"{path} holds no policy (config.json is missing); run the stage that makes it, or `dvc repro`.")
    try:
        config = AutoConfig.from_pretrained(path, local_files_only=True)
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            path, config=config, dtype=dtype, local_files_only=True
        )
    except Exception as error:
        raise WeightError(f"{path} cannot be loaded: {error}; restore it, or run the stage that makes it.") from error
    model.train(False)
    return model


def save_policy(model: PreTrainedModel, tokenizer: PolicyTokenizer, directory: str | Path) -> None:
    """Write a checkpoint directory (safetensors, config, tokenizer) under a temporary name, then rename it."""
    target = Path(directory)
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        os.chmod(temporary, 0o755)
        model.save_pretrained(temporary, save_original_format=False)
        _complete_for_vllm(temporary / "config.json")
        tokenizer.save(temporary)
        if target.exists():
            shutil.rmtree(target)
        os.replace(temporary, target)
    except OSError as error:
        raise StoreError(f"cannot write the policy to {target}: {error}; free some disk space and start again.") from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _complete_for_vllm(path: Path) -> None:
    """Add LFM2's `block_ff_dim`, which transformers reads and does not write, and without which vLLM does not start."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if config["model_type"] == "lfm2":
        config["block_ff_dim"] = config["intermediate_size"]
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def has_recurrent_layers(model: PreTrainedModel) -> bool:
    """Whether some layer carries state along the row (short convolution, state space): contexts may not share a row."""
    layers = getattr(model.config, "layer_types", None) or []
    return any("attention" not in layer or "linear" in layer for layer in layers)


def cache_argument(model: PreTrainedModel) -> str:
    """The name of forward's cache argument in this version of transformers."""
    names = inspect.signature(inspect.unwrap(type(model.base_model).forward)).parameters
    return "cache" if "cache" in names else "past_key_values"


def hidden_states(model: PreTrainedModel, input_ids_BT: Tensor, **inputs: Any) -> Tensor:
    """Final hidden states [B, T, D] of the decoder without its head."""
    hidden_BTD: Tensor = model.base_model(input_ids=input_ids_BT, **inputs).last_hidden_state
    return hidden_BTD


def head(model: PreTrainedModel, hidden: Tensor) -> Tensor:
    """Float32 logits [..., V] of final hidden states [..., D]."""
    output: torch.nn.Module = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    logits: Tensor = output(hidden)
    return logits.float()


def action_logprobs(model: PreTrainedModel, batch: Batch, temperature: float = 1.0) -> tuple[Tensor, Tensor]:
    """Logprobs and entropies [N] (nats) of the batch's action tokens at `temperature`, in the batch's order."""
    logits_NV = head(model, _predicting(model, batch)) / temperature
    logprobs_NV = logits_NV.log_softmax(-1)
    chosen_N = logprobs_NV.gather(-1, batch.target_ids_N[:, None]).squeeze(-1)
    entropy_N = -(logprobs_NV.exp() * logprobs_NV).sum(-1)
    return chosen_N, entropy_N


def decoder_hidden(model: PreTrainedModel, input_ids_BT: Tensor, first: int = 0) -> Tensor:
    """Final hidden states [B, T - first, D] of the positions from `first` on; rows padded on the right."""
    if lfm2.supports(model):
        return lfm2.LeanDecoder(model).hidden(input_ids_BT, first)
    return hidden_states(model, input_ids_BT, use_cache=False)[:, first:]


def _predicting(model: PreTrainedModel, batch: Batch) -> Tensor:
    """Final hidden states [N, D] of the positions just before the action tokens."""
    if batch.one_per_row:
        width = batch.input_ids_BT.shape[1]
        row_N, column_N = batch.action_index_N // width, batch.action_index_N % width - 1
        first = int(column_N.min())
        return decoder_hidden(model, batch.input_ids_BT, first)[row_N, column_N - first]
    inputs: dict[str, Any] = {"position_ids": batch.position_ids_BT, "use_cache": False}
    mask = batch.attention_mask()
    if mask is not None:
        inputs["attention_mask"] = mask
    return hidden_states(model, batch.input_ids_BT, **inputs).flatten(0, 1)[batch.action_index_N - 1]
