"""LoRA adapters on vLLM: swapped at every sync, proven like weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from rlcr_core.engines.vllm import VllmEngine
from rlcr_core.engines.vllm_process import Serving
from rlcr_core.errors import WeightError
from rlcr_core.types import SampleRequest
from tasks.probe import make_probe
from tests.vllm.conftest import CONFIG, TOKENIZER, llama, trainer_logprobs

pytestmark = pytest.mark.slow
RANK, ALPHA, TARGETS = 4, 8.0, ("q_proj", "v_proj")


def write_adapter(folder: Path, seed: int) -> PreTrainedModel:
    """An adapter in peft's file format; returns the base with W + (alpha / rank) B A merged in by hand."""
    generator = torch.Generator().manual_seed(seed)
    model, tensors = llama(0), {}
    for layer in range(2):
        for target in TARGETS:
            name = f"model.layers.{layer}.self_attn.{target}"
            a = torch.randn(RANK, 64, generator=generator) * 0.3
            b = torch.randn(64, RANK, generator=generator) * 0.3
            tensors |= {f"base_model.model.{name}.lora_A.weight": a, f"base_model.model.{name}.lora_B.weight": b}
            with torch.no_grad():
                model.get_parameter(f"{name}.weight").add_(ALPHA / RANK * b @ a)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(TARGETS), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return model


def test_adapters_are_swapped_and_proven(start_engine: Callable[..., VllmEngine], tmp_path: Path) -> None:
    engine = start_engine(CONFIG, Serving((), 512, adapter_rank=RANK))
    base = llama(0)
    engine.sync(dict(base.named_parameters()), 0, make_probe(base, len(TOKENIZER)))
    prompt = [2 + i % 60 for i in range(70)]
    for version in (1, 2, 3):
        folder = tmp_path / f"adapter-{version}"
        merged = write_adapter(folder, version)
        assert engine.sync_adapter(folder, version, make_probe(merged, len(TOKENIZER))) < 1e-3
        (sample,) = engine.sample([SampleRequest((0, 0), prompt, True, 1, 30)])
        assert sample.version == version
        assert sample.logprobs == pytest.approx(trainer_logprobs(merged, [*prompt, *sample.ids])[69:], abs=1e-3)
        assert len(engine.client.wait(engine.client.llm.list_loras())) == 1  # the old one is gone
    with pytest.raises(WeightError, match="not the trainer's"):  # another adapter than the probe's
        write_adapter(tmp_path / "other", 9)
        engine.sync_adapter(tmp_path / "other", 4, make_probe(merged, len(TOKENIZER)))
    with pytest.raises(WeightError, match="did not take the adapter"):
        engine.sync_adapter(tmp_path / "nowhere", 4, make_probe(merged, len(TOKENIZER)))
    assert engine.version == 3
    engine.sync_adapter(tmp_path / "adapter-2", 5, make_probe(write_adapter(tmp_path / "again", 2), len(TOKENIZER)))
    assert engine.version == 5
    engine.close()  # its idle processes would take time from the other tests
