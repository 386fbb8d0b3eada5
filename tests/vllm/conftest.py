"""A tiny random Llama served by vLLM; all tests here are skipped where vllm is not installed."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rlcr_core.config import EngineConfig
from rlcr_core.engines.vllm import VllmEngine
from rlcr_core.engines.vllm_process import Serving
from rlcr_core.policy import save_policy
from rlcr_core.tokens import WordTokenizer

TOKENIZER = WordTokenizer([f"w{i}" for i in range(62)])  # 64 ids with padding and unknown
STOP = 5
CONFIG = EngineConfig(
    kind="vllm", max_running=64, kv_cache_gib=0.25, probe_tolerance=1e-3, request_timeout_s=60.0
)  # fmt: skip
SERVING = Serving((STOP,), 2048)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Warnings raised while vllm is imported are its own; without it nothing here can run."""
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.vllm)
            item.add_marker(pytest.mark.filterwarnings("ignore"))
            if importlib.util.find_spec("vllm") is None:
                item.add_marker(pytest.mark.skip(reason="vllm is not installed (make setup-vllm)"))


def llama(seed: int, tied: bool = True) -> PreTrainedModel:
    """Two layers, heads of 32 (vLLM's CPU build refuses 16), weights large enough that a mistake shows in the logprobs."""
    config = LlamaConfig(
        vocab_size=len(TOKENIZER), hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=2, max_position_embeddings=2048, tie_word_embeddings=tied,
        bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(seed)
    model = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    return model


def trainer_logprobs(model: PreTrainedModel, ids: list[int], temperature: float = 1.0) -> list[float]:
    """Logprob of each id but the first given all before it, by transformers' own forward."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


@pytest.fixture(scope="session")
def start_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., VllmEngine]]:
    """Builds engines on an exported tiny model; all of them are closed when the session ends."""
    folder = tmp_path_factory.mktemp("model") / "policy"
    save_policy(llama(0), TOKENIZER, folder)
    engines: list[VllmEngine] = []

    def start(config: EngineConfig = CONFIG, serving: Serving = SERVING) -> VllmEngine:
        engines.append(VllmEngine(folder, config, serving))
        return engines[-1]

    yield start
    for engine in engines:
        engine.close()


@pytest.fixture(scope="session")
def shared_engine(start_engine: Callable[..., VllmEngine]) -> VllmEngine:
    """One engine for the whole session: a start takes 20 to 50 s."""
    return start_engine()
