"""Masters: steps too small for bfloat16 add up, adapters are saved exactly, a resumed run goes on bit for bit."""

from __future__ import annotations

from pathlib import Path

import torch

from rlcr_core import lora
from rlcr_core.config import LoraConfig
from rlcr_core.masters import hold, master_of, settle, write_back
from rlcr_core.weights import load_checkpoint, save_checkpoint
from tests.tiny_chat import chat_folder, tiny_llama

CONFIG = LoraConfig(rank=2, alpha=4.0, targets=("q_proj", "v_proj"))
CPU = torch.device("cpu")


def test_small_steps_add_up_in_the_master() -> None:
    layer = torch.nn.Linear(1, 1, bias=False)
    layer.weight.data.fill_(1.0)
    hold(layer, torch.bfloat16)
    # bfloat16 has 8 bits: above 1 its step is 2^-7, and 1 + 2^-10 rounds back to 1. Eight such steps make 2^-7.
    for _ in range(8):
        with torch.no_grad():
            master_of(layer.weight).add_(2.0**-10)
        write_back(layer.parameters())
    assert layer.weight.dtype == torch.bfloat16 and layer.weight.item() == 1.0 + 2.0**-7


def test_what_is_trained_whole_stays_float32_and_needs_no_master() -> None:
    model = tiny_llama(50)
    settle(model, CPU, torch.bfloat16)
    assert all(p.dtype == torch.float32 and master_of(p) is p for p in model.parameters())


def test_adapters_compute_in_bfloat16_and_are_saved_exactly(tmp_path: Path) -> None:
    base, tokenizer = chat_folder(tmp_path / "base")
    model = tiny_llama(len(tokenizer))
    lora.inject(model, CONFIG, 0)
    before = lora.adapter_state(model)
    settle(model, CPU, torch.bfloat16)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert all(torch.equal(before[name], value) for name, value in lora.adapter_state(model).items())
    adapters = lora.Adapters(CONFIG, base)
    digest = save_checkpoint(tmp_path / "c", model, tokenizer, {}, {}, adapters)
    loaded, _, _ = load_checkpoint(tmp_path / "c", digest, adapters)
    assert all(torch.equal(before[name], value) for name, value in lora.adapter_state(loaded).items())
