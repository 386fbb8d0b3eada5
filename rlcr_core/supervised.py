"""Supervised learning of demonstrations: next-token loss on the tokens that agents said, nothing on what they read.

A chat model's warm start: rollouts of scripted players become contexts exactly as sampled ones do, so positions,
masks and turn ends are those of training and sampling.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from rlcr_core.contexts import Context
from rlcr_core.errors import DataError
from rlcr_core.masters import hold, master_of, write_back
from rlcr_core.packing import Batch, pack
from rlcr_core.policy import action_logprobs, has_recurrent_layers

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Report = Callable[[int, float], None]  # (step, loss in nats per action token)


def supervise(
    model: PreTrainedModel,
    contexts: Sequence[Context],
    *,
    steps: int,
    batch_size: int,
    lr: float,
    micro_batch_tokens: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
    report: Report | None = None,
) -> float:
    """Train in place with AdamW on `batch_size` contexts a step, drawn anew when all were seen; the last smoothed loss.

    Linear warm-up over 10 % of the steps, then a cosine to zero; gradients are clipped at 1. With a `dtype` of bfloat16
    the model computes in it, and keeps it, while the optimiser works on float32 masters. The loss of a step is the mean
    over its action tokens. Raises DataError when there is no context or a loss is not finite.
    """
    if not any(context.is_action.any() for context in contexts):
        raise DataError(f"{len(contexts)} demonstrations hold no token that an agent said; raise base.observations.")
    rng = np.random.default_rng(seed)
    hold(model, dtype)
    masters = [master_of(parameter) for parameter in model.parameters()]
    optimizer = torch.optim.AdamW(masters, lr=lr, betas=(0.9, 0.99), weight_decay=0.0)
    warm = max(1, steps // 10)
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min((s + 1) / warm, 0.5 * (1 + math.cos(math.pi * min(1.0, s / steps))))
    )
    one_per_row = has_recurrent_layers(model)
    order: list[int] = []
    smoothed = math.nan
    for step in range(steps):
        while len(order) < batch_size:
            order += rng.permutation(len(contexts)).tolist()
        members, order = [contexts[i] for i in order[:batch_size]], order[batch_size:]
        batches = [b for b in pack(members, micro_batch_tokens, one_per_row) if b.n_tokens]
        loss = _accumulate(model, batches)
        if not math.isfinite(loss):
            raise DataError(f"The warm start's loss is {loss} at step {step}, expected a finite one; lower base.lr.")
        for parameter, master in zip(model.parameters(), masters, strict=True):
            master.grad = None if parameter.grad is None else parameter.grad.to(master.dtype)
        torch.nn.utils.clip_grad_norm_(masters, 1.0)
        optimizer.step()
        rate.step()
        write_back(model.parameters())
        model.zero_grad(set_to_none=True)
        smoothed = loss if math.isnan(smoothed) else 0.9 * smoothed + 0.1 * loss
        if report is not None:
            report(step + 1, smoothed)
    return smoothed


def _accumulate(model: PreTrainedModel, batches: Sequence[Batch]) -> float:
    """Add the gradients of all micro-batches; returns the mean loss over their action tokens (nats)."""
    n_tokens = sum(batch.n_tokens for batch in batches)
    total = 0.0
    for batch in batches:
        logprobs_N, _ = action_logprobs(model, batch.to(model.device))
        loss = -logprobs_N.sum() / n_tokens
        torch.autograd.backward(loss)
        total += float(loss.detach())
    return total


@torch.inference_mode()
def held_out_loss(model: PreTrainedModel, contexts: Sequence[Context], micro_batch_tokens: int) -> float:
    """Mean loss over the action tokens of these contexts, in nats."""
    batches = [b for b in pack(contexts, micro_batch_tokens, has_recurrent_layers(model)) if b.n_tokens]
    total = 0.0
    for batch in batches:
        total -= float(action_logprobs(model, batch.to(model.device))[0].sum())
    return total / max(1, sum(batch.n_tokens for batch in batches))
