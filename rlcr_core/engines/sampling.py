"""Inverse-CDF sampling from wide vocabularies: the same rule as `choose` of the small policy's engine, in two levels.

The token is the first one whose cumulative probability exceeds the uniform number. Summing 50,000 probabilities in
float64 for each row costs several times the exponentials; here float32 sums of blocks find the block, and float64 sums
the token inside it, so that only one block of each row is summed in full width.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rlcr_core.errors import EngineFault

_BLOCK = 256


def choose_wide(logits_BV: Tensor, uniforms_B: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids [B] and their logprobs [B] (nats) under softmax(logits); a token of probability 0 is never chosen.

    Cells are exact to about 1e-7 of the total. Raises EngineFault for logits that are not finite.
    """
    width = logits_BV.shape[-1]
    n_blocks = -(-width // _BLOCK)
    top_B1 = logits_BV.amax(-1, keepdim=True)
    weights_BV = (logits_BV - top_B1).exp_()
    padded = weights_BV if width == n_blocks * _BLOCK else torch.nn.functional.pad(weights_BV, (0, n_blocks * _BLOCK - width))
    blocks_BKN = padded.view(len(logits_BV), n_blocks, _BLOCK)
    sums_BK = blocks_BKN.sum(-1).double()
    bounds_BK = sums_BK.cumsum(-1)
    total_B1 = bounds_BK[:, -1:]
    if not bool(torch.isfinite(total_B1).all()):
        raise EngineFault("the policy gives logits that are not finite; its weights are damaged")
    target_B1 = torch.from_numpy(uniforms_B).to(logits_BV.device)[:, None] * total_B1
    block_B1 = torch.searchsorted(bounds_BK, target_B1, right=True).clamp_(max=n_blocks - 1)
    inside_BN = blocks_BKN.gather(1, block_B1[:, :, None].expand(-1, 1, _BLOCK))[:, 0].double().cumsum_(-1)
    before_BK = torch.nn.functional.pad(bounds_BK, (1, 0))[:, :-1]  # not bounds - sums, whose rounding could pass the target
    rest_B1 = target_B1 - before_BK.gather(1, block_B1)
    # The block's float32 sum may lie a rounding above its float64 one: the last token that has a weight takes the difference.
    rest_B1 = torch.minimum(rest_B1, torch.nextafter(inside_BN[:, -1:], torch.zeros_like(rest_B1)))
    ids_B1 = block_B1 * _BLOCK + torch.searchsorted(inside_BN, rest_B1, right=True)
    logprobs_B1 = (logits_BV.gather(-1, ids_B1) - top_B1).double() - total_B1.log()
    return ids_B1[:, 0].cpu().numpy(), logprobs_B1[:, 0].cpu().numpy()
