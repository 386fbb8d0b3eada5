"""What the vLLM engine needs of no vLLM: exports, the comparison of probes, its settings, what a failed load means."""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import json
import math
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rlcr_core.config import EngineConfig
from rlcr_core.engines import vllm_client, vllm_process
from rlcr_core.engines.event_loop import EventLoopThread
from rlcr_core.engines.vllm_client import VllmClient
from rlcr_core.engines.vllm_process import Serving, check_machine, engine_arguments
from rlcr_core.engines.vllm_sync import WeightSync
from rlcr_core.engines.vllm_weights import check_export, check_probe, export_for_vllm, read_weights, weight_shapes
from rlcr_core.errors import ConfigError, EngineFault, WeightError
from rlcr_core.policy import save_policy
from rlcr_core.tokens import WordTokenizer

TOKENIZER = WordTokenizer([f"w{i}" for i in range(30)])


def llama(tied: bool) -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=32, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    return LlamaForCausalLM(config).eval()


@dataclass
class FixedProbe:
    ids: list[list[int]]
    expected: list[list[float]]


PROBE = FixedProbe([[4, 5, 6], [7, 8]], [[-1.0, -2.0], [-3.0]])


@pytest.mark.parametrize("tied", [True, False])
def test_an_export_is_the_same_model_with_its_head_spelled_out(tied: bool, tmp_path: Path) -> None:
    model = llama(tied)
    save_policy(model, TOKENIZER, tmp_path / "policy")
    export = export_for_vllm(read_weights(tmp_path / "policy"), tmp_path / "policy", tmp_path / "1", torch.float32)
    assert json.loads((export / "config.json").read_text())["tie_word_embeddings"] is False
    tensors = load_file(export / "model.safetensors")
    assert torch.equal(tensors["lm_head.weight"], model.get_output_embeddings().weight)
    ids = torch.tensor([[3, 9, 4, 7]])
    with torch.inference_mode():
        theirs = AutoModelForCausalLM.from_pretrained(export)
        assert torch.equal(theirs(input_ids=ids).logits, model(input_ids=ids).logits)
    assert AutoTokenizer.from_pretrained(export).encode("w3 w4") == TOKENIZER.encode("w3 w4")
    with pytest.raises(FileExistsError):  # every version gets a fresh folder
        export_for_vllm(tensors, tmp_path / "policy", tmp_path / "1", torch.float32)


def test_an_export_has_the_engine_s_data_type(tmp_path: Path) -> None:
    save_policy(llama(True), TOKENIZER, tmp_path / "policy")
    export = export_for_vllm(read_weights(tmp_path / "policy"), tmp_path / "policy", tmp_path / "1", torch.bfloat16)
    assert {tensor.dtype for tensor in load_file(export / "model.safetensors").values()} == {torch.bfloat16}


def test_damaged_weights_are_not_exported(tmp_path: Path) -> None:
    save_policy(llama(True), TOKENIZER, tmp_path / "policy")
    state = read_weights(tmp_path / "policy")
    shapes = weight_shapes(export_for_vllm(state, tmp_path / "policy", tmp_path / "1", torch.float32))
    check_export(tmp_path / "1", shapes)
    with pytest.raises(WeightError, match="NaN"):
        export_for_vllm(
            state | {"model.norm.weight": torch.full((32,), math.nan)}, tmp_path / "policy", tmp_path / "2", torch.float32
        )
    assert not (tmp_path / "2").exists()
    state.pop("model.norm.weight")
    export_for_vllm(state, tmp_path / "policy", tmp_path / "3", torch.float32)
    with pytest.raises(WeightError, match=r"first is model\.norm\.weight: got the shape none, expected \(32,\)"):
        check_export(tmp_path / "3", shapes)
    file = tmp_path / "1" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-10])
    with pytest.raises(WeightError, match="not a readable safetensors file"):
        check_export(tmp_path / "1", shapes)
    with pytest.raises(WeightError, match="holds no model"):
        read_weights(tmp_path)


def test_a_probe_says_by_how_much_on_which_ids() -> None:
    assert check_probe([[-1.0, -2.0005], [-3.0]], PROBE, 1e-3, "x") == pytest.approx(5e-4)
    # the worst is 0.5: id 6 after 4, 5 of row 0
    with pytest.raises(WeightError, match=r"of x .* id 6 after \[4, 5\] \(row 0\) .* -2\.500000.* -2\.000000: off by 0\.5 nats"):
        check_probe([[-1.1, -2.5], [-3.2]], PROBE, 1e-3, "x")


@pytest.mark.parametrize("place", [(0, 0), (0, 1), (1, 0)])
def test_a_probe_that_is_not_a_number_disagrees(place: tuple[int, int]) -> None:
    got = [list(row) for row in PROBE.expected]
    got[place[0]][place[1]] = math.nan
    with pytest.raises(WeightError, match="off by inf nats"):
        check_probe(got, PROBE, 1e-3, "x")


def test_a_probe_of_another_shape_disagrees() -> None:
    with pytest.raises(WeightError, match=r"rows of \[2\] logprobs, expected \[2, 1\]"):
        check_probe([[-1.0, -2.0]], PROBE, 1e-3, "x")


class FailingClient:
    """A vLLM whose load fails; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.dead = ""
        self.llm = self

    async def pause_generation(self, mode: str, clear_cache: bool) -> None:
        self.asked.append(f"pause {mode} {clear_cache}")

    async def collective_rpc(self, method: str, kwargs: dict[str, Any]) -> None:
        self.asked.append(f"{method} {kwargs['weights_path']}")
        raise EngineFault("vLLM failed: KeyError: layers.7")

    async def control(self, work: Any) -> Any:
        return await work

    def die(self, reason: str) -> None:
        self.dead = reason


def test_a_load_that_fails_inside_vllm_is_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that was half reloaded holds no weights: the next request would end vLLM's process."""
    client = FailingClient()
    sync = WeightSync(client, 1e-3, Serving((5,), 100))  # type: ignore[arg-type]

    async def canary() -> tuple[float, int]:
        return 0.0, 0

    monkeypatch.setattr(sync, "_canary_through_cache", canary)
    with pytest.raises(WeightError, match=r"could not load version 4: .*layers\.7.* The version was not advanced"):
        asyncio.run(sync.from_folder(Path("w"), 4, PROBE))
    assert client.asked == ["pause abort True", "reload_weights w"] and client.dead == "it failed to load version 4"


def test_settings_that_vllm_would_change_in_silence_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"temperature of at least 0\.01, got 0\.001; change rollouts\.temperature"):
        Serving((5,), 100, temperature=0.001)
    with pytest.raises(ConfigError, match=r"longer than a cache block of 32 tokens, got 32; raise context\.max_tokens"):
        Serving((5,), 32)
    arguments = engine_arguments(Path("m"), EngineConfig(kind="vllm", kv_cache_gib=0.5), Serving((5,), 100, adapter_rank=12))
    assert arguments["logprobs_mode"] == "processed_logprobs" and arguments["enable_prefix_caching"]
    assert arguments["max_lora_rank"] == 16  # the next rank that vLLM takes
    if not vllm_process.has_cuda():
        assert arguments["kv_cache_memory_bytes"] == 2**29
    with pytest.raises(ConfigError, match="rank 512 at most, got 600"):
        engine_arguments(Path("m"), EngineConfig(kind="vllm"), Serving((5,), 100, adapter_rank=600))


def test_a_machine_without_vllm_or_libnuma_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="make setup-vllm"):
        check_machine()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(vllm_process, "has_cuda", lambda: False)

    def missing(name: str) -> None:
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(vllm_process.ctypes, "CDLL", missing)
    with pytest.raises(ConfigError, match=r"libnuma\.so\.1.*apt-get install libnuma1"):
        check_machine()


def test_a_loop_thread_stuck_in_a_blocking_call_is_not_waited_for() -> None:
    thread, release = EventLoopThread("test"), threading.Event()

    async def block() -> bool:
        return release.wait(60.0)

    with pytest.raises(builtins.TimeoutError):
        thread.run(block(), 0.05)
    thread.close(0.05)
    assert thread.is_closed
    release.set()


def test_a_vllm_that_starts_too_slowly_is_a_fault_and_is_ended_later(monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended = threading.Event(), threading.Event()

    class Slow:
        def shutdown(self, timeout_s: float) -> None:
            ended.set()

    def start(*_: object) -> Slow:
        started.wait(60.0)
        return Slow()

    monkeypatch.setattr(vllm_client, "start_vllm", start)
    monkeypatch.setattr(vllm_client, "SHUTDOWN_S", 0.05)
    with pytest.raises(EngineFault, match=r"did not start within 0\.05 s"):
        VllmClient(Path("m"), EngineConfig(kind="vllm"), Serving((5,), 100, start_timeout_s=0.05))
    started.set()
    assert ended.wait(60.0)


class Silent:
    """A vLLM that takes requests and never answers; `errored` says that its process is gone."""

    def __init__(self) -> None:
        self.errored = False

    def shutdown(self, timeout_s: float) -> None: ...


@pytest.mark.parametrize("dies", [True, False], ids=["dies", "hangs"])
def test_a_vllm_that_dies_or_hangs_ends_its_requests(monkeypatch: pytest.MonkeyPatch, dies: bool) -> None:
    silent = Silent()
    monkeypatch.setattr(vllm_client, "start_vllm", lambda *_: silent)
    config = EngineConfig(kind="vllm", request_timeout_s=3600.0 if dies else 0.2)
    client = VllmClient(Path("m"), config, Serving((5,), 100))

    async def never(*_: object) -> None:
        silent.errored = dies
        await asyncio.Event().wait()

    monkeypatch.setattr(client, "_last_output", never)
    reason = "its process ended" if dies else r"no token for .* engine\.request_timeout_s allows 0\.2"
    with pytest.raises(EngineFault, match=f"the engine died: {reason}"):
        client.wait(client.request([3], None, "name"))
    assert client.dead
    client.close()


def test_work_in_the_loop_thread_ends_with_it() -> None:
    thread = EventLoopThread("test")

    async def give(value: int) -> int:
        return value

    async def forever() -> None:
        await asyncio.Event().wait()

    assert thread.run(give(3)) == 3
    with pytest.raises(builtins.TimeoutError):
        thread.run(forever(), 0.05)
    pending = thread.submit(forever())
    thread.close()
    thread.close()
    assert pending.cancelled()
    with pytest.raises(EngineFault, match="closed"):
        thread.run(give(3))
