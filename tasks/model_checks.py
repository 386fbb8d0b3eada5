"""What a chat model must be to be trained here, each point refused with one paragraph: the cheap ones first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.errors import ConfigError, WeightError

MAX_NAMED = 5  # tensors named in an error


def check_model(folder: Path) -> None:
    """Everything that `check_model_files` checks, then the weights, loaded once.

    Raises WeightError for weights that are missing, do not fit config.json, or are not finite.
    """
    check_model_files(folder)
    check_weights(folder)


def check_model_files(folder: Path) -> ChatTokenizer:
    """config.json, tokenizer, chat template, round trip and vocabulary, without reading the weights. Raises ConfigError."""
    config = read_config(folder)
    try:
        tokenizer = ChatTokenizer.load(folder)  # refuses a missing template and texts that do not come back
    except ConfigError as error:
        raise ConfigError(" ".join(str(error).split())) from error  # it may quote a library's list of reasons
    rows = config.get_text_config().vocab_size
    if len(tokenizer) > rows:
        raise ConfigError(
            f"{folder} does not fit together: its tokenizer has {len(tokenizer)} tokens, the embedding of config.json "
            f"(vocab_size) only {rows}. Take tokenizer and weights of the same model, or resize the embedding and save the "
            "model anew."
        )
    return tokenizer


def read_config(folder: Path) -> Any:
    """The configuration of transformers. Raises ConfigError when there is none, or the model is quantised."""
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise ConfigError(
            f"{folder} is no model: config.json is missing. Name a Hugging Face folder (config.json, model.safetensors, "
            "tokenizer.json) in policy.model."
        )
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # transformers raises OSError, ValueError, KeyError and its validators' own
        raise ConfigError(
            f"{folder}/config.json cannot be read ({_first_line(error)}). Restore it, or install a version of transformers that "
            "knows the model."
        ) from error
    if getattr(config, "quantization_config", None) is not None:
        raise ConfigError(f"{folder} is quantised and cannot be trained; name the unquantised model in policy.model.")
    return config


def check_weights(folder: Path) -> None:
    """Load the model as it is stored. Raises WeightError."""
    import torch
    from transformers import AutoModelForCausalLM

    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(folder), dtype="auto", local_files_only=True, use_safetensors=True, output_loading_info=True
        )
        model, report = loaded
    except Exception as error:
        raise WeightError(
            f"The weights of {folder} cannot be loaded ({_first_line(error)}). Restore its safetensors files (every one that "
            "model.safetensors.index.json names), or name another model in policy.model; other formats are not read."
        ) from error
    absent = sorted(str(name) for name in report["missing_keys"])
    unfit = sorted(str(entry) for entry in report["mismatched_keys"])
    if absent or unfit:
        raise WeightError(
            f"The weights of {folder} do not fit its config.json: {_named(absent + unfit)} missing or of another shape, and "
            "would be random. Take weights and config.json of the same model."
        )
    rows, expected = model.get_input_embeddings().weight.shape[0], model.config.get_text_config().vocab_size
    if rows != expected:
        raise WeightError(
            f"The embedding of {folder} has {rows} rows, config.json (vocab_size) says {expected}. Take weights and config.json "
            "of the same model."
        )
    bad = [name for name, t in model.state_dict().items() if t.is_floating_point() and not bool(torch.isfinite(t).all())]
    if bad:
        raise WeightError(
            f"The weights of {folder} have NaN or infinite values in {_named(bad)}, expected finite ones. Delete the folder and "
            "get the model anew, or name another in policy.model."
        )


def context_length(folder: Path) -> int:
    """Positions that the model was made for (max_position_embeddings), 0 when config.json does not say."""
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        return int(config.get("max_position_embeddings", 0))
    except (OSError, ValueError, TypeError):
        return 0


def _named(names: list[str]) -> str:
    return ", ".join(names[:MAX_NAMED]) + (f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else "")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]
