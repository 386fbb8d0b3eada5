"""Starting vLLM's asynchronous engine: what it needs of the machine, its arguments, its environment, its own counts.

Everything that touches vLLM's arguments is here, so that another version of vLLM is a change of this file.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcr_core.config import EngineConfig
from rlcr_core.errors import ConfigError, EngineFault

# Read by vLLM and the processes it spawns. No usage statistics leave the machine; without the compiler the first request
# of an eager engine takes 1 s instead of 30 s, because only a helper that ranks logprobs would be compiled.
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCHDYNAMO_DISABLE": "1",
}
MIN_TEMPERATURE = 0.01  # below, vLLM samples at another temperature than the one it was given


@dataclass(frozen=True, slots=True)
class Serving:
    """What an engine serves: when an action ends, how long a context may get, and how it is sampled.

    `adapter_rank` is the rank of LoRA adapters, 0 without; `transfer` names vLLM's weight transfer backend on GPUs
    ("nccl", "ipc"), empty to reload from folders; a prefix is cached in whole blocks of `block_tokens`.
    """

    stop_ids: tuple[int, ...]
    max_context_tokens: int
    temperature: float = 1.0
    adapter_rank: int = 0
    transfer: str = ""
    block_tokens: int = 32
    start_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        if not self.temperature >= MIN_TEMPERATURE:
            raise ConfigError(
                f"vLLM samples at a temperature of at least {MIN_TEMPERATURE}, got {self.temperature}; change "
                "rollouts.temperature."
            )
        if self.max_context_tokens <= self.block_tokens:
            raise ConfigError(
                f"a context must be longer than a cache block of {self.block_tokens} tokens, got {self.max_context_tokens}; "
                "raise context.max_tokens."
            )


class Counts:
    """vLLM's own counts, told by its output handler after every step: the second opinion on what was sampled."""

    def __init__(self) -> None:
        self.generated_tokens = 0
        self.last_step = time.monotonic()

    def record(self, scheduler_stats: Any, iteration_stats: Any, *_: Any, **__: Any) -> None:
        self.last_step = time.monotonic()
        if iteration_stats is not None:
            self.generated_tokens += iteration_stats.num_generation_tokens

    def log_engine_initialized(self) -> None: ...

    def log(self) -> None: ...

    def record_sleep_state(self, *_: Any, **__: Any) -> None: ...


def check_machine() -> None:
    """Raise ConfigError, saying what to install, when vLLM cannot run here."""
    if importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            "engine.kind vllm needs the package vllm, which is not installed: `make setup-vllm` makes an environment with its "
            "CPU build, `pip install -e '.[vllm]'` takes the one for GPUs; or set engine.kind to torch."
        )
    if not has_cuda():
        try:
            ctypes.CDLL("libnuma.so.1")
        except OSError as error:
            raise ConfigError(
                f"vLLM's CPU build needs the system library libnuma.so.1 ({error}): install it (Debian and Ubuntu: apt-get "
                "install libnuma1; Fedora: dnf install numactl-libs; conda: libnuma), or set engine.kind to torch."
            ) from None


def has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


def engine_arguments(folder: Path, config: EngineConfig, serving: Serving) -> dict[str, Any]:
    """The keyword arguments of vllm's AsyncEngineArgs."""
    arguments: dict[str, Any] = {
        "model": str(folder),
        "skip_tokenizer_init": True,  # tokens in, tokens out
        "generation_config": "vllm",  # no sampling defaults of the model's own
        "dtype": config.dtype,
        "max_model_len": serving.max_context_tokens,
        "max_num_seqs": config.max_running,
        "block_size": serving.block_tokens,
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",  # of the distribution sampled from, after the temperature
        "tensor_parallel_size": config.tensor_parallel,
        "use_tqdm_on_load": False,
        "seed": 0,
        "disable_log_stats": True,
    }
    if has_cuda():
        arguments["gpu_memory_utilization"] = config.memory_share
        arguments["block_size"] = None
    else:
        arguments["kv_cache_memory_bytes"] = int(config.kv_cache_gib * 2**30)
        arguments["enforce_eager"] = True
    if serving.adapter_rank:
        arguments |= {"enable_lora": True, "max_loras": 1, "max_cpu_loras": 2, "max_lora_rank": _lora_rank(serving.adapter_rank)}
    if serving.transfer:
        from vllm.config import WeightTransferConfig

        arguments["weight_transfer_config"] = WeightTransferConfig(backend=serving.transfer)
    return arguments


def _lora_rank(rank: int) -> int:
    """vLLM takes some ranks only; smaller adapters are padded to the next one."""
    for allowed in (8, 16, 32, 64, 128, 256, 320, 512):
        if rank <= allowed:
            return allowed
    raise ConfigError(f"vLLM serves adapters of rank 512 at most, got {rank}; lower policy.lora.rank.")


def start_vllm(folder: Path, config: EngineConfig, serving: Serving, counts: Counts) -> Any:
    """An AsyncLLM that serves the folder. Call it on the event loop that will use it. Raises EngineFault."""
    with environment(ENVIRONMENT):
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        try:
            arguments = AsyncEngineArgs(**engine_arguments(folder, config, serving))
            return AsyncLLM.from_engine_args(arguments, stat_loggers=[lambda *_: counts])
        except Exception as error:
            raise EngineFault(
                f"vLLM did not start on {folder}: {type(error).__name__}: {error}. Set VLLM_LOGGING_LEVEL=INFO to see its log; "
                "engine.kv_cache_gib, engine.max_running and context.max_tokens bound its memory."
            ) from error


@contextlib.contextmanager
def environment(values: dict[str, str]) -> Iterator[None]:
    """Set variables that the user has not set, and take them back afterwards."""
    mine = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in mine})
    try:
        yield
    finally:
        for name in mine:
            os.environ.pop(name, None)
