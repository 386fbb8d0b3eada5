"""The warm start: cloning a declared distribution of actions with exact soft targets.

At every action token the target is the whole distribution of the next token, and the loss is the Kullback-Leibler
divergence to it; with sampled targets the small policy did not learn to copy keys from its context.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel

from rlcr_core.errors import DataError
from rlcr_core.policy import decoder_hidden, head

Report = Callable[[int, float], None]  # (step, loss in nats per action token)


@dataclass(frozen=True, slots=True)
class CloneBatch:
    """Rows right-padded to T; at each of N positions (flat indices into B*T) the next token's target distribution."""

    input_ids_BT: Tensor
    position_N: Tensor
    target_NV: Tensor


def soft_target_loss(model: PreTrainedModel, batch: CloneBatch) -> Tensor:
    """Mean divergence KL(target || policy) over the N action tokens, in nats. Scalar."""
    width = batch.input_ids_BT.shape[1]
    row_N, column_N = batch.position_N // width, batch.position_N % width
    first = int(column_N.min())
    hidden_ND = decoder_hidden(model, batch.input_ids_BT, first)[row_N, column_N - first]
    logprobs_NV = head(model, hidden_ND).log_softmax(-1)
    target_NV = batch.target_NV
    entropy = torch.where(target_NV > 0, target_NV * target_NV.clamp(min=1e-30).log(), 0.0).sum()
    cross = -torch.where(target_NV > 0, target_NV * logprobs_NV, 0.0).sum()
    return (cross + entropy) / len(target_NV)


def clone(model: PreTrainedModel, batches: Iterable[CloneBatch], steps: int, lr: float, report: Report | None = None) -> float:
    """Train in place with AdamW, linear warm-up over 5 % of the steps and a cosine to zero; the last smoothed loss.

    Raises DataError when a loss is not finite.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    warm = max(1, steps // 20)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warm, 0.5 * (1 + math.cos(math.pi * min(1.0, s / steps))))
    )
    model.train()
    smoothed = math.nan
    for step, batch in zip(range(steps), batches, strict=False):
        loss = soft_target_loss(model, batch)
        value = float(loss.detach())
        if not math.isfinite(value):
            raise DataError(f"the warm start's loss is {value} at step {step}; lower base.lr.")
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        smoothed = value if math.isnan(smoothed) else 0.98 * smoothed + 0.02 * value
        if report is not None:
            report(step + 1, smoothed)
    model.train(False)
    return smoothed
