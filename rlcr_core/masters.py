"""Masters: float32 copies of weights that compute in bfloat16, so that small steps are not rounded away.

Mixed precision by autocast keeps float32 weights and casts at every product, which on a CPU costs more than it saves; a
model whose weights are bfloat16 throughout is about twice as fast, and its optimiser works on the masters.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def settle(network: PreTrainedModel, device: torch.device, dtype: torch.dtype) -> None:
    """Move to the device. Where some weights are frozen, as with adapters, all are cast to `dtype`, and the trained ones
    get masters; where all are trained they stay float32."""
    torch.nn.Module.to(network, device=device)
    is_partial = not all(parameter.requires_grad for parameter in network.parameters())
    hold(network, dtype if is_partial else torch.float32)


def hold(network: torch.nn.Module, dtype: torch.dtype) -> None:
    """Cast all weights to `dtype`; what is trained keeps its exact values in a master when that is not float32."""
    for parameter in network.parameters():
        exact: Any = master_of(parameter).detach().float()
        parameter.data = parameter.data.to(dtype)
        if parameter.requires_grad and dtype != torch.float32:
            parameter.master = exact.clone().requires_grad_(True)  # type: ignore[attr-defined]


def master_of(parameter: Tensor) -> Tensor:
    """The float32 values that an optimiser works on: the parameter's master, or itself."""
    master: Tensor = getattr(parameter, "master", parameter)
    return master


@torch.no_grad()
def write_back(parameters: Iterable[Tensor]) -> None:
    """Round the masters into the weights that compute."""
    for parameter in parameters:
        master = master_of(parameter)
        if master is not parameter:
            parameter.copy_(master)
