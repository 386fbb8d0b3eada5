"""Weights from a trainer's GPUs straight into vLLM's, by vLLM's own weight transfer; for GPUs only, the CPU build has none.

Written from the source of vLLM 0.32 (vllm/distributed/weight_transfer) and run so far with a stand-in for the data's way only.
On the trainer's side:

    transfer = WeightTransferTrainerFactory.trainer_init(
        NCCLTrainerInitInfo(master_address, master_port, world_size, rank=rank),
        client=TransferClient(engine.client),     # where the engine is; across processes a Ray handle with the same methods
        source=weight_source(model.state_dict()),
    )
    engine.sync_transferred(transfer.send_weights, version, probe)

The engine is built with Serving(transfer="nccl"), or "ipc" when trainer and engine share a GPU. `send_weights` calls start,
update and finish here while its other half broadcasts; the engine pauses before, and proves and labels after.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rlcr_core.engines.vllm_client import VllmClient
from rlcr_core.engines.vllm_weights import named_weights

if TYPE_CHECKING:
    from torch import Tensor


class TransferClient:
    """vLLM's VLLMWeightSyncClient protocol over an engine of this process. Raises EngineFault."""

    def __init__(self, client: VllmClient) -> None:
        self._client = client

    def init_weight_transfer_engine(self, init_info: dict[str, Any]) -> None:
        """Meet the trainer: on NCCL this blocks until it has joined."""
        from vllm.distributed.weight_transfer.base import WeightTransferInitRequest

        request = WeightTransferInitRequest(init_info=init_info)
        self._client.control_and_wait(self._client.llm.init_weight_transfer_engine(request))

    def start_weight_update(self) -> None:
        self._client.control_and_wait(self._client.llm.start_weight_update())

    def update_weights(self, update_info: Any) -> None:
        """Receive; returns once the trainer's other half has sent everything."""
        from vllm.distributed.weight_transfer.base import WeightTransferUpdateRequest

        request = WeightTransferUpdateRequest(update_info=update_info)
        self._client.control_and_wait(self._client.llm.update_weights(request))

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """The version is not the transfer's to advance: `sync_transferred` does it after the probe."""
        self._client.control_and_wait(self._client.llm.finish_weight_update())


def weight_source(state: Mapping[str, Tensor]) -> Any:
    """The trainer's weights as vLLM's WeightSource, head spelled out.

    Sharded tensors (DTensor) are gathered one at a time, so every trainer rank must iterate alike.
    """
    from vllm.distributed.weight_transfer.base import ParamMeta, WeightSource, materialize_full_tensor

    class Source(WeightSource):  # type: ignore[misc, unused-ignore]  # vllm is not installed where types are checked
        def metadata(self) -> list[Any]:
            return [ParamMeta(name, tensor.dtype, tuple(tensor.shape)) for name, tensor in named_weights(state)]

        def __iter__(self) -> Iterator[tuple[str, Tensor]]:
            for name, tensor in named_weights(state):
                yield name, materialize_full_tensor(tensor)

    return Source()
