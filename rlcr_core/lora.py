"""Low-rank adapters (Hu et al. 2021): the base's weights stay as they are, two small matrices a layer are trained.

Peft puts the adapters into the model in place, so the policy keeps its class; its file format is what transformers,
peft and vLLM load. Engines that know no adapters get the merged weights: W + (alpha / rank) B A.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlcr_core.config import LoraConfig
from rlcr_core.errors import ConfigError, WeightError
from rlcr_core.masters import master_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ADAPTER_FILE, ADAPTER_CONFIG = "adapter_model.safetensors", "adapter_config.json"
_PREFIX, _NAME = "base_model.model.", ".default"
_INNER = ".base_layer"  # where the adapted layer keeps the base's own weight


class Adapters(NamedTuple):
    """What a checkpoint of adapters needs besides its own files: their settings and the folder of the base."""

    config: LoraConfig
    base: Path


def _peft() -> Any:
    try:
        import peft
    except ImportError as error:
        raise ConfigError(
            f"policy.lora needs the package peft, which is not installed ({error}); install the extra `llm` "
            "(pip install -e '.[llm]'), or set policy.lora to null."
        ) from error
    return peft


def inject(model: PreTrainedModel, config: LoraConfig, seed: int) -> None:
    """Put fresh adapters into a model, in place: B is zero, so nothing changes yet; only adapters require gradients.

    Raises ConfigError when a target is no linear layer of the model or peft is missing.
    """
    peft = _peft()
    settings = peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, target_modules=list(config.targets), lora_dropout=0.0, bias="none"
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            peft.inject_adapter_in_model(settings, model)
        except ValueError as error:
            raise ConfigError(f"policy.lora.targets {list(config.targets)} do not fit the model: {error}.") from error
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(".lora_" in name)


def is_adapted(model: PreTrainedModel) -> bool:
    return any(".lora_" in name for name, _ in model.named_parameters())


def adapter_state(model: PreTrainedModel) -> dict[str, Tensor]:
    """The adapters' tensors (their masters) under the names of peft's file format, in float32 on the CPU."""
    return {
        _PREFIX + name.replace(_NAME, ""): master_of(parameter).detach().float().cpu()
        for name, parameter in model.named_parameters()
        if ".lora_" in name
    }


def load_adapter_state(model: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
    """Take the adapters' values. Raises WeightError when names or shapes differ."""
    own = {_PREFIX + name.replace(_NAME, ""): p for name, p in model.named_parameters() if ".lora_" in name}
    wrong = sorted(set(own) ^ set(state)) or [n for n, p in own.items() if p.shape != state[n].shape]
    if wrong:
        raise WeightError(
            f"The adapters do not fit the policy: {', '.join(wrong[:3])} missing, unknown or of another shape, expected the "
            f"{len(own)} tensors of policy.lora; go back to the settings that the checkpoint was trained with."
        )
    with torch.no_grad():
        for name, parameter in own.items():
            parameter.copy_(state[name])


def merge(base: Mapping[str, Tensor], adapters: Mapping[str, Tensor], alpha: float) -> dict[str, Tensor]:
    """The base's tensors with the adapters added: W + (alpha / rank) B A, in W's type. Raises WeightError."""
    merged = dict(base)
    for name, a_RI in adapters.items():
        if ".lora_A." not in name:
            continue
        target = name.removeprefix(_PREFIX).replace(".lora_A.weight", ".weight")
        if target not in merged:
            raise WeightError(f"The adapter {name} has no {target} in the base to be added to; name the base it was trained on.")
        b_OR = adapters[name.replace(".lora_A.", ".lora_B.")]
        weight_OI = merged[target]
        merged[target] = (weight_OI.float() + alpha / a_RI.shape[0] * (b_OR.float() @ a_RI.float())).to(weight_OI.dtype)
    return merged


def merged_state(model: PreTrainedModel, config: LoraConfig) -> dict[str, Tensor]:
    """The plain model's tensors with this model's adapters merged in."""
    base = {n.replace(_INNER, ""): p.detach() for n, p in model.state_dict().items() if ".lora_" not in n}
    return merge(base, adapter_state(model), config.alpha)


def save_adapter(model: PreTrainedModel, config: LoraConfig, base: str, directory: Path) -> None:
    """Write adapter_model.safetensors and adapter_config.json; `base` is what peft will look the base up by."""
    save_file(adapter_state(model), directory / ADAPTER_FILE)
    document = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "r": config.rank,
        "lora_alpha": config.alpha, "target_modules": sorted(config.targets), "lora_dropout": 0.0, "bias": "none",
        "inference_mode": True, "fan_in_fan_out": False,
    }  # fmt: skip
    (directory / ADAPTER_CONFIG).write_text(json.dumps(document, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def read_adapter(directory: Path) -> tuple[dict[str, Tensor], float]:
    """Adapters and alpha of a folder. Raises WeightError when it cannot be read."""
    try:
        alpha = float(json.loads((directory / ADAPTER_CONFIG).read_text(encoding="utf-8"))["lora_alpha"])
        return load_file(directory / ADAPTER_FILE), alpha
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise WeightError(f"{directory} holds no readable adapter ({error!r}); restore it or train it again.") from error
