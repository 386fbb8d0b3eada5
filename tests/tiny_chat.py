"""A tiny random Llama with a chat tokenizer in a Hugging Face folder, and parameters that play the workshop with it."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.config import Params
from rlcr_core.policy import save_policy
from tests.rlcr_core.chat_models import chat_tokenizer
from tests.support import changed


def tiny_llama(vocabulary: int, seed: int = 0) -> PreTrainedModel:
    """Two layers of 32 with grouped-query attention and tied embeddings."""
    config = LlamaConfig(
        vocab_size=vocabulary, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = LlamaForCausalLM(config)
    model.train(False)
    return model


def chat_folder(directory: Path, seed: int = 0) -> tuple[Path, ChatTokenizer]:
    """A folder with model, tokenizer and chat template."""
    tokenizer = chat_tokenizer()
    save_policy(tiny_llama(len(tokenizer), seed), tokenizer, directory)
    return directory, tokenizer


def chat_params(params: Params, model: Path, lora: bool = False) -> Params:
    """The tiny parameters for a chat model: two packages of three modules, 12 s, at most two hires."""
    sections: dict[str, dict[str, object]] = {
        "task_set": {"packages": 2, "modules": 3},
        "schedule": {"kind": "constant", "start_s": 12.0, "end_s": 12.0, "points": []},
        "latency": {"decode_tps": 20.0, "prefill_tps": 1000.0},
        "collective": {"max_hires": 2},
        "context": {"mode": "transcript", "max_tokens": 1900},
        "harness": {"kind": "chat", "max_turn_tokens": 24, "max_observation_tokens": 300, "max_summary_tokens": 96},
        "engine": {"probe_tolerance": 1e-3},
        "policy": {"model": str(model), "lora": {"rank": 2, "alpha": 4.0, "targets": ["q_proj", "v_proj"]} if lora else None},
        "base": {"steps": 2, "batch_size": 2, "lr": 0.001, "observations": 20, "gate_valid": 0.0},
        "rollouts": {"workers": 1},
        "update": {"micro_batch_tokens": 1024, "min_minibatch_turns": 1, "minibatches": 1},
        "train": {"iterations": 2, "evaluate_every": 5},
        "evaluation": {"limit_s": 12.0},
    }
    return changed(params, sections)
