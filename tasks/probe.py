"""The probe: logprobs of fixed ids, read by the trainer and by every worker, must agree after a sync."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlcr_core.errors import WeightError
from rlcr_core.seeds import derive

if TYPE_CHECKING:
    from transformers import PreTrainedModel

TOLERANCE = 1e-4  # nats: float32 through two different code paths agrees to about 1e-5
ROWS, LENGTH = 1, 12  # an engine reads them token by token, at every sync


@dataclass(frozen=True, slots=True)
class Probe:
    """Fixed token ids and the trainer's logprobs (nats, temperature 1) of each next token."""

    ids: list[list[int]]
    expected: list[list[float]]


def probe_ids(vocab_size: int) -> list[list[int]]:
    """The same ids for the same vocabulary size; padding and unknown are left out."""
    rng = np.random.default_rng(derive("probe", vocab_size))
    return [[int(i) for i in row] for row in rng.integers(2, vocab_size, size=(ROWS, LENGTH))]


@torch.no_grad()
def make_probe(model: PreTrainedModel, vocab_size: int) -> Probe:
    """What the trainer says: one plain forward pass without cache or engine."""
    model.train(False)
    ids = probe_ids(vocab_size)
    tokens_BT = torch.tensor(ids, device=model.device)
    logprobs_BTV = model(input_ids=tokens_BT).logits[:, :-1].float().log_softmax(-1)
    return Probe(ids, logprobs_BTV.gather(-1, tokens_BT[:, 1:, None])[..., 0].tolist())


def check_probe(got: list[list[float]], probe: Probe, where: str, tolerance: float = TOLERANCE) -> None:
    """Raises WeightError naming `where`, the worst difference and its token, when logprobs differ by more than `tolerance`."""
    shape = [len(row) for row in got], [len(row) for row in probe.expected]
    if shape[0] != shape[1]:
        raise WeightError(
            f"The probe of {where} gives rows of {shape[0]} logprobs, expected {shape[1]}; the engine is broken."
        )
    worst, place = 0.0, (0, 0)
    for r, (row, expected) in enumerate(zip(got, probe.expected, strict=True)):
        for t, (a, b) in enumerate(zip(row, expected, strict=True)):
            difference = abs(a - b)
            if not math.isfinite(difference) or difference > worst:
                worst, place = (difference if math.isfinite(difference) else math.inf), (r, t)
    if worst > tolerance:
        r, t = place
        raise WeightError(
            f"The weights of {where} are not the trainer's: token {t} of probe row {r} has the logprob {got[r][t]:.6f}, the "
            f"trainer gives {probe.expected[r][t]:.6f} (difference {worst:.2g}, at most {tolerance:g} allowed, "
            "engine.probe_tolerance). The version was not advanced. Start the run again; if it stays, the engine does not "
            "support this policy."
        )
