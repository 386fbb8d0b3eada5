"""AdamW's state as named tensors, so that a checkpoint holds it in safetensors and a run resumes bit for bit.

Names are `exp_avg.<parameter>`, `exp_avg_sq.<parameter>` and `step.<parameter>` (a float32 scalar), in sorted order.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rlcr_core.errors import DataError

MOMENTS = ("exp_avg", "exp_avg_sq")
SLOTS = (*MOMENTS, "step")


def export_state(optimizer: torch.optim.AdamW, parameters: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies on the CPU of the state of every parameter that was ever stepped; empty before the first step."""
    state = {
        f"{slot}.{name}": optimizer.state[parameter][slot].detach().cpu().clone().contiguous()
        for name, parameter in parameters.items()
        if parameter in optimizer.state
        for slot in SLOTS
    }
    return dict(sorted(state.items()))


def import_state(optimizer: torch.optim.AdamW, parameters: Mapping[str, Tensor], state: Mapping[str, Tensor]) -> None:
    """Replace the optimiser's state by a copy of `state`; the optimiser is unchanged when it does not fit.

    Raises DataError for a name that is missing or unknown, a shape of another policy, or a value that is not finite.
    """
    stepped = [name for name in parameters if any(f"{slot}.{name}" in state for slot in SLOTS)]
    expected = {f"{slot}.{name}": parameters[name].shape for name in stepped for slot in MOMENTS}
    expected |= {f"step.{name}": torch.Size() for name in stepped}
    wrong = [name for name, shape in expected.items() if name not in state or state[name].shape != shape]
    wrong += [name for name in state if name not in expected or not bool(torch.isfinite(state[name]).all())]
    if wrong:
        raise DataError(
            f"The optimiser state does not fit this policy: {min(wrong)} is missing, unknown, not finite or of another "
            "shape; use the checkpoint that belongs to this run, or start the run again."
        )
    optimizer.state.clear()
    for name in stepped:
        parameter = parameters[name]
        moments = {slot: state[f"{slot}.{name}"].detach().to(parameter.device, copy=True) for slot in MOMENTS}
        # AdamW keeps its step counter on the CPU, wherever the weights are.
        optimizer.state[parameter] = {"step": state[f"step.{name}"].detach().to("cpu", copy=True), **moments}
