"""Checkpoints: Hugging Face folders, one per version, whose every file has a digest that readers check.

A checkpoint adds the optimiser's state and plain JSON meta data to the policy; engines load its weights by digest
(`Published`), a run goes on from all of it. It is written to a temporary folder and renamed, and equal tensors give
equal bytes. Where low-rank adapters are trained a checkpoint holds the adapters alone, in peft's format, and its readers
are told where the base lies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlcr_core import lora
from rlcr_core.errors import DataError, StoreError, WeightError
from rlcr_core.lora import Adapters
from rlcr_core.manifests import (
    atomic_write,
    canonical_json,
    digest_file,
    digest_files,
    reason,
    replaced_directory,
    restore_directory,
)
from rlcr_core.policy import load_policy, save_policy

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODEL_FILE = "model.safetensors"
OPTIMIZER_FILE = "optimizer.safetensors"
CHECKPOINT_FILE = "checkpoint.json"


class Published(NamedTuple):
    """A version of the weights: its folder, the SHA-256 of the weights in it, and the base's folder for adapters."""

    path: Path
    digest: str
    version: int
    base: Path | None = None

    @classmethod
    def of(cls, directory: str | Path, version: int, base: Path | None = None) -> Published:
        """The folder as it is on disk now. Raises StoreError when its weights cannot be read."""
        path = Path(directory)
        return cls(path, digest_file(weights_file(path)), version, base)

    @property
    def policy(self) -> Path:
        """The folder with config.json: what the model is built from before the weights are loaded."""
        return self.base or self.path


def weights_file(directory: Path) -> Path:
    """The file that holds a folder's weights: model.safetensors, or adapters alone."""
    adapters = directory / lora.ADAPTER_FILE
    return adapters if adapters.is_file() else directory / MODEL_FILE


def check_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """Raise WeightError naming the tensors of `what` that hold NaN or infinity."""
    floating = {name: tensor for name, tensor in tensors.items() if tensor.is_floating_point()}
    bad = [name for name, tensor in floating.items() if not bool(torch.isfinite(tensor).all())]
    if bad:
        shown = ", ".join(bad[:5]) + (f" and {len(bad) - 5} more" if len(bad) > 5 else "")
        raise WeightError(
            f"{what} has NaN or infinite values in {shown} ({len(bad)} of {len(tensors)} tensors), expected finite "
            "ones. Go on from the checkpoint before; if it happens again lower update.lr or update.max_grad_norm."
        )


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file({name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        raise StoreError(f"Cannot write {path}: {error}. Free disk space and run the same command again.") from error


def _load_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise WeightError(f"{path} is not a readable safetensors file: {error}. Restore it.") from error


def _check_digest(path: Path, expected: str) -> None:
    got = digest_file(path) if path.is_file() else "no such file"
    if got != expected:
        raise WeightError(
            f"{path} is not the file that was written: expected SHA-256 {expected}, got {got}. Restore it (for example "
            f"with `dvc checkout`), or delete the folder {path.parent} and run the same command again to make it anew."
        )


def _write_model(model: PreTrainedModel, tokenizer: Any, directory: Path, adapters: Adapters | None) -> None:
    if adapters is not None:
        check_finite(lora.adapter_state(model), f"The adapters to be saved in {directory.parent}")
        lora.save_adapter(model, adapters.config, str(adapters.base), directory)
        return
    check_finite(model.state_dict(), f"The model to be saved in {directory.parent}")
    inner = directory / "model"  # inside, so that whatever a kill leaves goes away with the temporary folder
    try:
        save_policy(model, tokenizer, inner)
    except SafetensorError as error:
        raise StoreError(
            f"Cannot write the weights in {directory.parent}: {error}. Free disk space and run the same command again."
        ) from error
    for file in inner.iterdir():
        os.replace(file, directory / file.name)
    inner.rmdir()


def load_weights(path: str | Path, digest: str, base: Path | None = None) -> dict[str, Tensor]:
    """The tensors of a published folder (or of a safetensors file), on the CPU, by parameter name.

    Adapters come merged into the weights of `base`. Raises WeightError when the file is missing or damaged, has another
    digest, or a tensor is not finite.
    """
    path = Path(path)
    file = weights_file(path) if path.is_dir() else path
    _check_digest(file, digest)
    tensors = _load_tensors(file)
    check_finite(tensors, str(file))
    if file.name != lora.ADAPTER_FILE:
        return tensors
    if base is None:
        raise WeightError(f"{file} holds adapters, and no base was named to merge them into; name the base's folder.")
    return lora.merge(_load_tensors(base / MODEL_FILE), tensors, lora.read_adapter(path)[1])


def save_checkpoint(
    directory: str | Path,
    model: PreTrainedModel,
    tokenizer: Any,
    optimizer_state: Mapping[str, Tensor],
    meta: Mapping[str, Any],
    adapters: Adapters | None = None,
) -> str:
    """Write a checkpoint folder: Hugging Face files, optimizer.safetensors and checkpoint.json (digests and meta).

    `meta` is plain JSON (tuples come back as lists). An existing folder is replaced, or stays whole when anything
    fails. Returns the SHA-256 of checkpoint.json, which covers every file. Raises WeightError for non-finite tensors,
    DataError for other meta, StoreError when the disk refuses.
    """
    path = Path(directory)
    check_finite(optimizer_state, f"The optimiser state to be saved in {path}")
    with replaced_directory(path) as temporary:
        _write_model(model, tokenizer, temporary, adapters)
        _save_tensors(optimizer_state, temporary / OPTIMIZER_FILE)
        content = {"files": digest_files(temporary), "meta": dict(meta)}
        atomic_write(temporary / CHECKPOINT_FILE, canonical_json(content, f"The meta data of {path}"))
    return digest_file(path / CHECKPOINT_FILE)


def _read_index(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    index = path / CHECKPOINT_FILE
    try:
        content = json.loads(index.read_bytes())
        files, meta = dict(content["files"]), dict(content["meta"])
        if OPTIMIZER_FILE not in files or not {MODEL_FILE, lora.ADAPTER_FILE} & set(files):
            raise KeyError(f"{MODEL_FILE} and {OPTIMIZER_FILE} in files")
        return files, meta
    except OSError as error:
        what = reason(error)
    except (ValueError, KeyError, TypeError) as error:
        what = f"it is cut short or was not written by this project ({error!r})"
    raise DataError(
        f"{path} is not a usable checkpoint: {index}: {what}. Name a folder that save_checkpoint wrote, restore it "
        "with `dvc checkout`, or delete it and run the same command again."
    )


def load_checkpoint(
    directory: str | Path, expected_digest: str | None = None, adapters: Adapters | None = None
) -> tuple[PreTrainedModel, dict[str, Tensor], dict[str, Any]]:
    """The model (on the CPU), optimiser state and meta of a checkpoint; every file's digest is checked first.

    `expected_digest` is what save_checkpoint returned, `adapters` says what a checkpoint of adapters belongs to.
    Raises WeightError saying which file, expected and got, also for non-finite tensors; DataError when
    checkpoint.json is missing or unreadable.
    """
    path = Path(directory)
    restore_directory(path)
    if expected_digest is not None:
        _check_digest(path / CHECKPOINT_FILE, expected_digest)
    files, meta = _read_index(path)
    for name, digest in sorted(files.items()):
        _check_digest(path / name, digest)
    optimizer_state = _load_tensors(path / OPTIMIZER_FILE)
    check_finite(optimizer_state, str(path / OPTIMIZER_FILE))
    model = load_policy(path if adapters is None else adapters.base)
    if adapters is not None:
        lora.inject(model, adapters.config, 0)
        lora.load_adapter_state(model, lora.read_adapter(path)[0])
    check_finite(model.state_dict(), str(path / MODEL_FILE))
    return model, optimizer_state, meta
