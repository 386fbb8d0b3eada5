"""Growing a policy's vocabulary by more words of the classes that it knows.

Some words of a closed vocabulary are exchangeable: agents and packages draw new names in each task, so a policy can know
nothing about a name but that it is one. The rows of new names are combinations C [n, K] of the K trained rows of their
class, the same for the input and the output embedding:

    gaussian     mean + z · deviations / sqrt(K - 1), z standard normal: the trained rows' mean and covariance
    rescaled     the same, each deviation from the mean as long as that of a trained row drawn at random
    orthogonal   mean + deviations mixed by rows of a random orthogonal matrix: second moments kept exactly per K rows
    mixture      w · one trained row + (1 - w) · another, w uniform in [0.25, 0.75]: inside the trained cloud, so shorter

Whether a policy treats such names like trained ones is a question for a measurement, and the answer so far is no:
absent names get too much of the probability (`python -m benchmarks.growth`, docs/city.md).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlcr_core.errors import ConfigError, WeightError
from rlcr_core.seeds import derive
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Float64Array

Method = Literal["gaussian", "rescaled", "orthogonal", "mixture"]
METHODS: tuple[Method, ...] = get_args(Method)


def combinations(method: Method, n: int, deviations_KD: Float64Array, seed: int) -> Float64Array:
    """Coefficients [n, K] that make n new rows of K trained ones with these deviations from their mean [K, D]."""
    k = len(deviations_KD)
    rng = np.random.default_rng(seed)
    if method == "mixture":
        chosen = np.zeros((n, k))
        for row in chosen:
            first, second = rng.choice(k, size=2, replace=False)
            row[first] = rng.uniform(0.25, 0.75)
            row[second] = 1.0 - row[first]
        return chosen
    if method == "orthogonal":
        blocks = [np.linalg.qr(rng.standard_normal((k, k)))[0] for _ in range(-(-n // k))]
        mix_nK = np.concatenate(blocks)[:n]
    else:
        mix_nK = rng.standard_normal((n, k)) / np.sqrt(k - 1)
    if method == "rescaled":
        wanted_n = rng.choice(np.linalg.norm(deviations_KD, axis=1), size=n)
        mix_nK *= (wanted_n / np.linalg.norm(mix_nK @ deviations_KD, axis=1))[:, None]
    found: Float64Array = 1.0 / k + mix_nK - mix_nK.mean(axis=1, keepdims=True)
    return found


def grow(
    model: PreTrainedModel,
    tokenizer: WordTokenizer,
    words: Sequence[str],
    classes: Sequence[Collection[str]],
    method: Method = "gaussian",
    seed: int = 0,
) -> WordTokenizer:
    """Give the model (in place) rows for all of `words`, which begin with the tokenizer's; returns the new tokenizer.

    Every new word must be in one of the `classes`, and the class must hold at least two trained words. Raises
    ConfigError for other words, WeightError when the model's rows are not the tokenizer's.
    """
    known = tokenizer.words[2:]
    if tuple(words[: len(known)]) != known:
        raise ConfigError(
            f"the vocabulary to grow to must begin with the policy's {len(known)} words in their order; take the environment "
            "that the policy was trained in as the beginning."
        )
    grown = WordTokenizer(words)
    embeddings: list[Any] = [model.get_input_embeddings()]
    if embeddings[0].weight.shape[0] != len(tokenizer):
        raise WeightError(
            f"the policy has rows for {embeddings[0].weight.shape[0]} tokens, its tokenizer {len(tokenizer)}; restore the folder."
        )
    members = members_of(tokenizer, grown, classes)
    model.resize_token_embeddings(len(grown), mean_resizing=False)
    embeddings = [model.get_input_embeddings()]
    output: Any = model.get_output_embeddings()  # type: ignore[no-untyped-call]
    if output is not None and output.weight is not embeddings[0].weight:
        embeddings.append(output)
    with torch.no_grad():
        for number, (old, new) in enumerate(members):
            if not new:
                continue
            rows_KD = embeddings[0].weight[old].double().numpy()
            mix_nK = combinations(method, len(new), rows_KD - rows_KD.mean(axis=0), derive("vocabulary", seed, number))
            for embedding in embeddings:
                _fill(embedding.weight, old, new, torch.from_numpy(mix_nK))
    return grown


Members = list[tuple[list[int], list[int]]]


def members_of(tokenizer: WordTokenizer, grown: WordTokenizer, classes: Sequence[Collection[str]]) -> Members:
    """For each class the ids of its trained words and those of its new ones. Raises ConfigError as `grow` does."""
    n_known = len(tokenizer)
    class_of = {word: number for number, members in enumerate(classes) for word in members}
    found: Members = [([], []) for _ in classes]
    for index, word in enumerate(grown.words[2:], start=2):
        number = class_of.get(word)
        if number is not None:
            found[number][index >= n_known].append(index)
        elif index >= n_known:
            raise ConfigError(f"the new word {word!r} is in no class of exchangeable words, so nothing says what it is like.")
    if any(new and len(old) < 2 for old, new in found):
        raise ConfigError("a class of words can grow from at least two trained ones; train with more names.")
    return found


def _fill(weight_VD: Tensor, old: list[int], new: list[int], mix_nK: Tensor) -> None:
    weight_VD[new] = (mix_nK @ weight_VD[old].double()).to(weight_VD.dtype)
