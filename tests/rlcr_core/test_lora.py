"""Low-rank adapters: nothing changes at first, merging is W + alpha / rank B A, checkpoints hold adapters alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from rlcr_core import lora
from rlcr_core.config import LoraConfig, Params
from rlcr_core.errors import ConfigError, WeightError
from rlcr_core.policy import load_policy
from rlcr_core.update import Updater
from rlcr_core.weights import Published, load_checkpoint, load_weights, save_checkpoint
from tests.tiny_chat import chat_folder, chat_params, tiny_llama

CONFIG = LoraConfig(rank=2, alpha=4.0, targets=("q_proj", "v_proj"))
IDS = torch.arange(1, 12)[None]


def test_merging_adds_the_scaled_product() -> None:
    # rank 1, alpha 3: 3 / 1 * [[1], [2]] @ [[10, 20]] = [[30, 60], [60, 120]].
    base = {"layer.weight": torch.tensor([[1.0, 1.0], [1.0, 1.0]]), "other": torch.tensor([5.0])}
    adapters = {
        "base_model.model.layer.lora_A.weight": torch.tensor([[10.0, 20.0]]),
        "base_model.model.layer.lora_B.weight": torch.tensor([[1.0], [2.0]]),
    }
    merged = lora.merge(base, adapters, 3.0)
    assert merged["layer.weight"].tolist() == [[31.0, 61.0], [61.0, 121.0]]
    assert merged["other"] is base["other"] and base["layer.weight"].sum() == 4.0
    with pytest.raises(WeightError, match=r"has no layer\.weight in the base"):
        lora.merge({}, adapters, 3.0)


def test_fresh_adapters_change_nothing_and_are_all_that_is_trained() -> None:
    model, plain = tiny_llama(50), tiny_llama(50)
    lora.inject(model, CONFIG, 0)
    assert torch.equal(model(IDS).logits, plain(IDS).logits)
    trained = [name for name, p in model.named_parameters() if p.requires_grad]
    # Two layers, two targets, A and B each.
    assert len(trained) == 8 and all(".lora_" in name for name in trained) and lora.is_adapted(model)
    again = tiny_llama(50)
    lora.inject(again, CONFIG, 0)
    assert all(torch.equal(a, b) for a, b in zip(model.state_dict().values(), again.state_dict().values(), strict=True))


def test_the_merged_model_says_what_the_adapted_one_says() -> None:
    model = tiny_llama(50)
    lora.inject(model, CONFIG, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B" in name:
                parameter.normal_(generator=torch.Generator().manual_seed(len(name)))
    plain = tiny_llama(50)
    before = plain(IDS).logits
    plain.load_state_dict(lora.merged_state(model, CONFIG), strict=False)
    assert torch.allclose(plain(IDS).logits, model(IDS).logits, atol=1e-5)
    assert not torch.allclose(plain(IDS).logits, before, atol=1e-2)


def test_a_checkpoint_of_adapters_is_small_resumes_and_merges(tmp_path: Path, params: Params) -> None:
    base, tokenizer = chat_folder(tmp_path / "base")
    adapters = lora.Adapters(CONFIG, base)
    model = load_policy(base)
    lora.inject(model, CONFIG, 0)
    updater = Updater(model, chat_params(params, base).update)
    with torch.no_grad():
        for name, parameter in updater.parameters.items():
            parameter.fill_(0.01 * len(name))
    digest = save_checkpoint(tmp_path / "c", model, tokenizer, {}, {"version": 1}, adapters)
    assert not (tmp_path / "c" / "model.safetensors").exists()
    loaded, _, meta = load_checkpoint(tmp_path / "c", digest, adapters)
    assert meta == {"version": 1}
    assert torch.equal(loaded(IDS).logits, model(IDS).logits)
    published = Published.of(tmp_path / "c", 1, base)
    assert published.policy == base
    plain = load_policy(base)
    plain.load_state_dict(load_weights(published.path, published.digest, published.base), strict=False)
    assert torch.allclose(plain(IDS).logits, model(IDS).logits, atol=1e-5)
    with pytest.raises(WeightError, match="no base was named"):
        load_weights(published.path, published.digest)


def test_adapters_of_other_settings_and_unknown_targets_are_refused(tmp_path: Path) -> None:
    model, other = tiny_llama(50), tiny_llama(50)
    lora.inject(model, CONFIG, 0)
    lora.inject(other, LoraConfig(rank=3, alpha=4.0, targets=("q_proj", "v_proj")), 0)
    with pytest.raises(WeightError, match=r"expected the 8 tensors of policy\.lora"):
        lora.load_adapter_state(model, lora.adapter_state(other))
    with pytest.raises(ConfigError, match=r"policy\.lora\.targets \['nothing'\] do not fit"):
        lora.inject(tiny_llama(50), LoraConfig(rank=2, alpha=4.0, targets=("nothing",)), 0)
    with pytest.raises(WeightError, match="holds no readable adapter"):
        lora.read_adapter(tmp_path)


def test_peft_itself_reads_the_adapter(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base, tokenizer = chat_folder(tmp_path / "base")
    model = load_policy(base)
    lora.inject(model, CONFIG, 0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".lora_B" in name:
                parameter.fill_(0.05)
    save_checkpoint(tmp_path / "c", model, tokenizer, {}, {}, lora.Adapters(CONFIG, base))
    loaded = peft.PeftModel.from_pretrained(load_policy(base), tmp_path / "c")
    assert torch.allclose(loaded(IDS).logits, model(IDS).logits, atol=1e-6)
