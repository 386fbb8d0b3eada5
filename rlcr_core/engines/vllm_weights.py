"""Weights as vLLM reads them, and the comparison that proves them.

A model with tied embeddings is written with its head spelled out: vLLM's CPU build, told to reload a tied model, keeps the
head of the OLD weights in silence, which is off by whole nats. With `lm_head.weight` in the file and tie_word_embeddings
false both tensors are loaded each time. The files are an ordinary Hugging Face folder, so `vllm serve` reads it too.
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from rlcr_core.errors import StoreError, WeightError
from rlcr_core.weights import check_finite

HEAD, EMBEDDINGS = "lm_head.weight", "model.embed_tokens.weight"
WEIGHT_SUFFIXES = (".safetensors", ".bin", ".safetensors.index.json")


class Probe(Protocol):
    """Fixed token ids and the trainer's logprobs (nats, temperature 1) of each next token, row by row."""

    @property
    def ids(self) -> list[list[int]]: ...

    @property
    def expected(self) -> list[list[float]]: ...


def named_weights(state: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """The tensors of a model's state with the head spelled out, whether the model ties it or not."""
    yield from state.items()
    if HEAD not in state and EMBEDDINGS in state:
        yield HEAD, state[EMBEDDINGS]


def read_weights(directory: str | Path) -> dict[str, Tensor]:
    """All tensors of a Hugging Face folder, by name. Raises WeightError when one of its files is missing or damaged."""
    files = sorted(Path(directory).glob("*.safetensors"))
    if not (Path(directory) / "config.json").is_file() or not files:
        raise WeightError(f"{directory} holds no model: expected config.json and *.safetensors; name a Hugging Face folder.")
    state: dict[str, Tensor] = {}
    for file in files:
        try:
            state |= load_file(file)
        except (SafetensorError, OSError) as error:
            raise WeightError(f"{file} is not a readable safetensors file: {error}. Restore it.") from error
    return state


def export_for_vllm(state: Mapping[str, Tensor], source: str | Path, target: str | Path, dtype: torch.dtype) -> Path:
    """Write `state` as a Hugging Face folder that vLLM reloads in full; returns it.

    Everything but the weights (config, tokenizer, chat template) comes from the folder `source`. Raises WeightError for
    tensors that are not finite, FileExistsError when `target` exists: every version gets a fresh folder, because vLLM must
    never read one that is being written.
    """
    source, target = Path(source), Path(target)
    check_finite(state, f"The weights for {target}")
    target.mkdir(parents=True)
    for file in source.iterdir():
        if file.is_file() and not file.name.endswith(WEIGHT_SUFFIXES):
            shutil.copyfile(file, target / file.name)
    config = json.loads((source / "config.json").read_text(encoding="utf-8"))
    config["tie_word_embeddings"] = False
    (target / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    tensors = {name: tensor.detach().to("cpu", dtype).contiguous().clone() for name, tensor in named_weights(state)}
    try:
        save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    except (SafetensorError, OSError) as error:
        raise StoreError(f"Cannot write {target}: {error}. Free disk space and run the same command again.") from error
    return target


def check_export(folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Raise WeightError unless the folder holds exactly these tensors: a load that fails inside vLLM is the end of it."""
    got = weight_shapes(folder)
    wrong = sorted(name for name in got.keys() | shapes.keys() if got.get(name) != shapes.get(name))
    if wrong:
        name = wrong[0]
        raise WeightError(
            f"{len(wrong)} tensors of {folder} do not fit the engine's model, the first is {name}: got the shape "
            f"{got.get(name, 'none')}, expected {shapes.get(name, 'none')}; start from a base with the same policy section."
        )


def weight_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of an exported folder, from its header. Raises WeightError when the file is damaged."""
    file = folder / "model.safetensors"
    try:
        with safe_open(file, framework="pt") as tensors:
            return {name: tuple(tensors.get_slice(name).get_shape()) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise WeightError(f"{file} is not a readable safetensors file: {error}. Restore it.") from error


def check_probe(got: Sequence[Sequence[float]], probe: Probe, tolerance: float, where: str) -> float:
    """The worst difference (nats). Raises WeightError when it exceeds `tolerance`, saying by how much on which ids."""
    shapes = [len(row) for row in got], [len(row) for row in probe.expected]
    if shapes[0] != shapes[1]:
        raise WeightError(f"The probe of {where} gives rows of {shapes[0]} logprobs, expected {shapes[1]}.")
    worst, row, place = 0.0, 0, 0
    for r, (values, expected) in enumerate(zip(got, probe.expected, strict=True)):
        for t, (a, b) in enumerate(zip(values, expected, strict=True)):
            difference = abs(a - b)
            if not difference <= worst:  # also true for NaN
                worst, row, place = (difference if math.isfinite(difference) else math.inf), r, t
    if worst > tolerance:
        ids = probe.ids[row]
        raise WeightError(
            f"The weights of {where} are not the trainer's: id {ids[place + 1]} after {_shorten(ids[: place + 1])} (row {row}) "
            f"has the logprob {got[row][place]:.6f}, the trainer gives {probe.expected[row][place]:.6f}: off by {worst:.3g} "
            f"nats, at most {tolerance:g} allowed. The version was not advanced. Start the run again; if only rounding is left "
            "(bfloat16), raise engine.probe_tolerance."
        )
    return worst


def _shorten(ids: Sequence[int]) -> str:
    return str(list(ids)) if len(ids) <= 8 else f"[... {', '.join(map(str, ids[-8:]))}]"
