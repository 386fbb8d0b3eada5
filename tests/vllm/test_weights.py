"""Weight sync on vLLM: proven after every sync, and every known way to serve the wrong weights is provoked and caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from rlcr_core.engines import vllm_weights
from rlcr_core.engines.vllm import VllmEngine
from rlcr_core.engines.vllm_transfer import TransferClient, weight_source
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.policy import save_policy
from rlcr_core.types import Sample, SampleRequest
from tasks.probe import make_probe
from tests.vllm.conftest import TOKENIZER, llama, trainer_logprobs


@pytest.fixture
def engine(shared_engine: VllmEngine) -> VllmEngine:
    """The shared engine with proven weights of seed 0 as version 0."""
    sync(shared_engine, 0, 0)
    return shared_engine


def sync(engine: VllmEngine, seed: int, version: int, tied: bool = True) -> float:
    model = llama(seed, tied)
    return engine.sync(dict(model.named_parameters()), version, make_probe(model, len(TOKENIZER)))


def request(agent: int, ids: list[int], new: bool = True, budget: int = 20) -> SampleRequest:
    return SampleRequest((0, agent), ids, new, 1000 + agent, budget)


def assert_refuses_then_recovers(engine: VllmEngine, version: int) -> None:
    """After a failed sync: the old version, no samples; after a good one everything works again."""
    assert engine.version == version
    with pytest.raises(EngineFault, match="cannot sample"):
        engine.sample([request(0, [3, 4])])
    sync(engine, 2, version + 2)
    assert engine.version == version + 2 and len(engine.sample([request(0, [3, 4])])[0].ids) > 0


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_samples_agree_with_the_trainer_after_every_sync(engine: VllmEngine, tied: bool) -> None:
    """Over 3 syncs and growing transcripts of 3 turns: every behaviour logprob is the trainer's within 1e-3 in fp32."""
    for version in (1, 2, 3):
        model = llama(10 * version, tied)
        assert engine.sync(dict(model.named_parameters()), version, make_probe(model, len(TOKENIZER))) < 1e-3
        history: dict[int, list[int]] = {agent: [] for agent in range(6)}
        for turn in range(3):
            prompts = {agent: [2 + (7 * agent + 3 * turn + i) % 60 for i in range(20 + 9 * agent)] for agent in history}
            samples = engine.sample([request(agent, prompt, turn == 0) for agent, prompt in prompts.items()])
            for (agent, prompt), sample in zip(prompts.items(), samples, strict=True):
                start = len(history[agent]) + len(prompt)
                history[agent] += [*prompt, *sample.ids]
                expected = trainer_logprobs(model, history[agent])[start - 1 :]
                assert sample.version == version and sample.logprobs == pytest.approx(expected, abs=1e-3)
    assert engine.cached_tokens > 0  # later turns did read the prefix cache


def test_a_context_does_not_survive_a_sync(engine: VllmEngine) -> None:
    engine.sample([request(0, [3, 4])])
    sync(engine, 1, 1)
    with pytest.raises(EngineFault, match="start a new context"):
        engine.sample([request(0, [5], new=False)])


def test_the_version_is_the_old_one_until_the_probe_has_agreed(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    check = vllm_weights.check_probe

    def watching(*arguments: Any) -> float:
        seen.append(engine.version)
        return check(*arguments)

    monkeypatch.setattr("rlcr_core.engines.vllm_sync.check_probe", watching)
    sync(engine, 1, 7)
    assert seen == [0] and engine.version == 7


def test_weights_of_another_model_are_caught_by_the_probe(engine: VllmEngine) -> None:
    """The message says by how much on which ids."""
    probe = make_probe(llama(2), len(TOKENIZER))
    with pytest.raises(WeightError, match=r"id \d+ after \[.*\] \(row 0\).*off by .* nats, at most 0.001") as caught:
        engine.sync(dict(llama(1).named_parameters()), 1, probe)
    assert any(f"id {token} after" in str(caught.value) for token in probe.ids[0])
    assert_refuses_then_recovers(engine, 0)


def test_a_prefix_cache_that_survives_the_sync_is_caught(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provoked by taking the reset away: the cache still holds keys and values of the old weights."""
    pause = engine.client.llm.pause_generation

    async def without_reset(mode: str, clear_cache: bool) -> None:
        await pause(mode=mode, clear_cache=False)

    with monkeypatch.context() as patch:
        patch.setattr(engine.client.llm, "pause_generation", without_reset)
        with pytest.raises(WeightError, match=r"prefix cache .* survived .*off by (?!0 nats)"):
            sync(engine, 1, 1)
    assert_refuses_then_recovers(engine, 0)


def test_stale_tied_embeddings_are_caught(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Provoked by exporting a tied model as it is, without its head spelled out: vLLM keeps the head of before."""
    with monkeypatch.context() as patch:
        patch.setattr(vllm_weights, "named_weights", lambda state: iter(state.items()))
        with pytest.raises(WeightError, match=r"first is lm_head\.weight: got the shape none"):
            sync(engine, 1, 1)
        assert engine.sample([request(0, [3, 4])])[0].version == 0  # refused in time
        patch.setattr("rlcr_core.engines.vllm.check_export", lambda *_: None)
        with pytest.raises(WeightError, match="not the trainer's"):
            sync(engine, 1, 1)
    assert_refuses_then_recovers(engine, 0)


def test_a_corrupted_weight_file_is_caught(engine: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Finite numbers in a sound file, but not the trainer's: bytes of one matrix changed between writing and reading."""

    def corrupting(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        name = "model.layers.1.mlp.down_proj.weight"
        save_file(tensors | {name: tensors[name].flip(0)}, path, metadata=metadata)

    with monkeypatch.context() as patch:
        patch.setattr(vllm_weights, "save_file", corrupting)
        with pytest.raises(WeightError, match="not the trainer's"):
            sync(engine, 1, 1)
    assert_refuses_then_recovers(engine, 0)


def test_weights_refused_before_anything_changed_leave_the_engine_serving(
    engine: VllmEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NaN, a file cut short when it was written here or elsewhere, a tensor of another shape."""
    broken = llama(1)
    with torch.no_grad():
        broken.get_parameter("model.norm.weight").fill_(float("nan"))
    with pytest.raises(WeightError, match="NaN"):
        engine.sync(dict(broken.named_parameters()), 1, make_probe(llama(1), len(TOKENIZER)))
    save_policy(llama(1), TOKENIZER, tmp_path / "policy")
    weights = tmp_path / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(WeightError, match="not a readable safetensors file"):
        engine.sync_folder(tmp_path / "policy", 1, make_probe(llama(1), len(TOKENIZER)))

    def cutting(tensors: dict[str, torch.Tensor], path: Path, metadata: dict[str, str]) -> None:
        save_file(tensors, path, metadata=metadata)
        path.write_bytes(path.read_bytes()[:-1000])

    with monkeypatch.context() as patch, pytest.raises(WeightError, match="not a readable safetensors file"):
        patch.setattr(vllm_weights, "save_file", cutting)
        sync(engine, 1, 1)
    state = dict(llama(1).named_parameters()) | {"model.norm.weight": torch.ones(63)}
    with pytest.raises(WeightError, match=r"first is model.norm.weight: got the shape \(63,\), expected \(64,\)"):
        engine.sync(state, 1, make_probe(llama(1), len(TOKENIZER)))
    (sample,) = engine.sample([request(0, [3, 4])])
    assert isinstance(sample, Sample) and sample.version == engine.version == 0


def test_a_transfer_is_proven_like_a_reload(engine: VllmEngine, tmp_path: Path) -> None:
    """`send` stands for a trainer's send_weights; here it loads a folder, since the CPU build has no transfer of its own."""
    model = llama(3)
    folder = vllm_weights.export_for_vllm(dict(model.named_parameters()), engine._source, tmp_path / "v", torch.float32)

    def send() -> None:
        engine.client.wait(engine.client.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)}))

    probe = make_probe(model, len(TOKENIZER))
    assert engine.sync_transferred(send, 1, probe) < 1e-3 and engine.version == 1
    with pytest.raises(WeightError, match="not the trainer's"):
        engine.sync_transferred(lambda: None, 2, make_probe(llama(4), len(TOKENIZER)))
    assert engine.version == 1
    with pytest.raises(WeightError, match="weight_transfer_config"):
        engine.sync_transferred(TransferClient(engine.client).start_weight_update, 2, probe)
    assert_refuses_then_recovers(engine, 1)


def test_the_source_of_a_transfer_spells_the_head_out(engine: VllmEngine) -> None:
    """Names, shapes and values: those of the model, and the embeddings once more as the head."""
    model = llama(1)
    source = weight_source(dict(model.named_parameters()))
    sent = dict(source)
    assert [(meta.name, meta.shape) for meta in source.metadata()] == [(n, tuple(t.shape)) for n, t in sent.items()]
    assert set(sent) == {name for name, _ in model.named_parameters()} | {"lm_head.weight"}
    assert torch.equal(sent["lm_head.weight"], model.get_parameter("model.embed_tokens.weight"))
