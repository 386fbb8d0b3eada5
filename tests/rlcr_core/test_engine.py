"""The torch engine against the training forward and transformers: logprobs, caches, weights, random numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from rlcr_core import lfm2
from rlcr_core.config import load_params
from rlcr_core.engines.torch import TorchEngine, choose
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.packing import Context, pack
from rlcr_core.policy import action_logprobs, build_policy, load_policy, save_policy
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import ActionFormat, SampleRequest

WORDS = [f"w{i}" for i in range(30)]
TOKENIZER = WordTokenizer(WORDS)
ARITY = ActionFormat({word: 1 + i % 4 for i, word in enumerate(WORDS)}, 4)


def lfm(seed: int = 0) -> PreTrainedModel:
    return build_policy(load_params().policy, len(TOKENIZER), seed)


def llama(seed: int = 0, tied: bool = True) -> PreTrainedModel:
    config = LlamaConfig(
        vocab_size=len(TOKENIZER), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, tie_word_embeddings=tied, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(seed)
    return LlamaForCausalLM(config).eval()


def sharpen(model: PreTrainedModel) -> PreTrainedModel:
    """Random weights give nearly uniform logits; larger ones make every mistake visible."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(6.0)
    return model


def request(ids: list[int], agent: int = 0, seed: int = 0, new: bool = True, budget: int = 4) -> SampleRequest:
    return SampleRequest((0, agent), ids, new, seed, budget)


def full_logprobs(model: PreTrainedModel, ids: list[int], temperature: float = 1.0) -> list[float]:
    """Logprob of each id but the first given all before it, by transformers' own forward."""
    with torch.inference_mode():
        logits = model(input_ids=torch.tensor([ids])).logits[0, :-1].float() / temperature
    return logits.log_softmax(-1).gather(-1, torch.tensor(ids[1:])[:, None])[:, 0].tolist()


@pytest.mark.parametrize("model", [lfm(), llama(), llama(tied=False)], ids=["lfm2", "llama-tied", "llama-untied"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("keep", [True, False])
def test_behaviour_logprobs_are_those_of_the_training_forward(model: PreTrainedModel, temperature: float, keep: bool) -> None:
    """Ratio 1 within 1e-4 before the first step, for histories of several turns and different lengths in one batch."""
    model = sharpen(model)
    engine = TorchEngine(model, TOKENIZER, ARITY, temperature, keep_caches=keep)
    rng = np.random.default_rng(0)
    history: dict[int, list[int]] = {agent: [] for agent in range(5)}
    sampled: list[tuple[list[int], int, list[float]]] = []
    for turn in range(3 if keep else 1):
        prompts = {agent: rng.integers(2, 32, 2 + (agent * 3 + turn) % 5).tolist() for agent in history if agent <= 2 * turn + 2}
        requests = [request(p, agent, seed=agent * 7 + turn, new=not history[agent]) for agent, p in prompts.items()]
        for (agent, prompt), sample in zip(prompts.items(), engine.sample(requests), strict=True):
            start = len(history[agent]) + len(prompt)
            history[agent] += [*prompt, *sample.ids]
            sampled.append((list(history[agent]), start, sample.logprobs))
            assert len(sample.ids) == min(4, 1 + (sample.ids[0] - 2) % 4 if sample.ids[0] >= 2 else 1)
    for ids, start, logprobs in sampled:
        assert logprobs == pytest.approx(full_logprobs(model, ids, temperature)[start - 1 :], abs=1e-4)
        mark = np.arange(len(ids)) >= start
        context = Context(
            np.array(ids, np.int32),
            mark,
            np.where(mark, -1.0, 0.0).astype(np.float32),
            1.0,
            0,
            0,
            np.zeros(len(ids), np.int32),
        )
        (batch,) = pack([context], 100, one_per_row=True)
        assert action_logprobs(model, batch, temperature)[0].tolist() == pytest.approx(logprobs, abs=1e-4)


def test_lean_pass_equals_transformers() -> None:
    model = sharpen(lfm())
    ids = torch.randint(2, 32, (7, 13))
    with torch.inference_mode():
        expected = model(input_ids=ids).logits
        lean = lfm2.LeanDecoder(model)
        assert torch.allclose(lean.logits(lean.hidden(ids)), expected, atol=2e-5)
        assert torch.allclose(lean.logits(lean.hidden(ids, 9)), expected[:, 9:], atol=2e-5)
        cache = lfm2.Cache([], 0)
        steps = [lean.hidden(ids[:, :5], 4, cache), *(lean.hidden(ids[:, t : t + 1], 0, cache) for t in range(5, 13))]
        assert torch.allclose(lean.logits(torch.cat(steps, 1)), expected[:, 4:], atol=2e-5)


def test_lean_gradients_equal_transformers() -> None:
    ids = torch.randint(2, 32, (3, 9))
    gradients = []
    for lean in (True, False):
        model = sharpen(lfm())
        decoder = lfm2.LeanDecoder(model)
        hidden = decoder.hidden(ids, 5) if lean else model.model(input_ids=ids, use_cache=False).last_hidden_state[:, 5:]
        decoder.logits(hidden).log_softmax(-1)[..., 3].sum().backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    assert set(gradients[0]) == set(gradients[1])
    for name, gradient in gradients[0].items():
        assert torch.allclose(gradient, gradients[1][name], rtol=1e-3, atol=1e-3), name


def test_samples_do_not_depend_on_batch_or_order() -> None:
    engine = TorchEngine(sharpen(lfm()), TOKENIZER, ARITY)
    requests = [request([2 + i, 5, 9 - i], agent=i, seed=i) for i in range(6)]
    together = engine.sample(requests)
    assert [engine.sample([r])[0].ids for r in requests] == [s.ids for s in together]
    assert [s.ids for s in engine.sample(requests[::-1])][::-1] == [s.ids for s in together]


def test_sampling_frequencies_are_the_distribution() -> None:
    logits = torch.tensor([[0.0, np.log(2.0), np.log(5.0), -np.inf]]).expand(20_000, -1)
    ids, logprobs = choose(logits.nan_to_num(neginf=-1e9).float(), np.random.default_rng(0).random(20_000))
    # shares 1/8, 2/8, 5/8, 0; the standard error at 20,000 draws is at most 0.0035
    assert np.bincount(ids, minlength=4) / 20_000 == pytest.approx([0.125, 0.25, 0.625, 0.0], abs=0.015)
    assert logprobs[ids == 2][0] == pytest.approx(np.log(0.625), abs=1e-6)


def test_uniform_numbers_pick_by_inverse_cdf() -> None:
    logits = torch.log(torch.tensor([[0.25, 0.25, 0.5]])).expand(4, -1)
    # the cumulative sums are .25, .5, 1: u = 0, .3, .5, .999 fall into cells 0, 1, 2, 2
    assert choose(logits, np.array([0.0, 0.3, 0.5, 0.999]))[0].tolist() == [0, 1, 2, 2]


def test_the_clock_s_token_budget_is_kept() -> None:
    engine = TorchEngine(lfm(), TOKENIZER, ActionFormat(None, 50))
    assert [len(s.ids) for s in engine.sample([request([3], i, i, budget=1 + i) for i in range(5)])] == [1, 2, 3, 4, 5]


def test_stop_words_end_an_action() -> None:
    engine = TorchEngine(lfm(), TOKENIZER, ActionFormat(None, 200, ("w3",)))
    stop = TOKENIZER.encode("w3")[0]
    for sample in engine.sample([request([3, 4], i, i, budget=200) for i in range(8)]):
        assert sample.ids.count(stop) == (sample.ids[-1] == stop)
        assert len(sample.ids) == 200 or sample.ids[-1] == stop


@pytest.mark.parametrize("make", [lfm, llama], ids=["lfm2", "llama"])
def test_no_token_after_a_sync_depends_on_old_weights(make: object) -> None:
    """Stale weights and stale caches: after a sync the engine answers like a fresh one, and old contexts are gone."""
    old, new = sharpen(make(0)), sharpen(make(1))  # type: ignore[operator]
    engine = TorchEngine(old, TOKENIZER, ARITY, keep_caches=True)
    engine.sample([request([3, 4, 5])])
    engine.sync(dict(new.named_parameters()), 8)
    with pytest.raises(EngineFault, match="not cached"):
        engine.sample([request([6], new=False)])
    fresh = TorchEngine(new, TOKENIZER, ARITY, keep_caches=True, version=8)
    assert engine.sample([request([3, 4, 5])]) == fresh.sample([request([3, 4, 5])])
    ids = [[2, 9, 4, 7, 11], [5, 6]]
    assert engine.probe(ids)[0] == pytest.approx(full_logprobs(new, ids[0]), abs=1e-4)
    assert engine.version == 8


def test_weights_that_do_not_fit_change_nothing() -> None:
    engine = TorchEngine(lfm(0), TOKENIZER, ARITY, version=3)
    before = engine.probe([[2, 3, 4]])
    state = dict(lfm(1).named_parameters())
    state.pop(next(iter(state)))
    with pytest.raises(WeightError, match="do not fit"):
        engine.sync(state, 4)
    assert engine.version == 3 and engine.probe([[2, 3, 4]]) == before


def test_damaged_weights_are_an_engine_fault() -> None:
    model = lfm()
    with torch.no_grad():
        next(iter(model.parameters())).fill_(float("nan"))
    with pytest.raises(EngineFault, match="not finite"):
        TorchEngine(model, TOKENIZER, ARITY).sample([request([3])])


def test_checkpoint_loads_unchanged_in_transformers(tmp_path: Path) -> None:
    model = sharpen(lfm())
    save_policy(model, TOKENIZER, tmp_path / "policy")
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "policy")
    ids = torch.randint(2, 32, (2, 11))
    with torch.inference_mode():
        assert torch.equal(theirs(input_ids=ids).logits, model(input_ids=ids).logits)
    first = (tmp_path / "policy" / "model.safetensors").read_bytes()
    save_policy(load_policy(tmp_path / "policy"), TOKENIZER, tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == first


def test_a_missing_or_cut_checkpoint_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(WeightError, match="dvc repro"):
        load_policy(tmp_path)
    save_policy(lfm(), TOKENIZER, tmp_path / "policy")
    weights = tmp_path / "policy" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(WeightError, match="restore it"):
        load_policy(tmp_path / "policy")


def test_the_same_seed_builds_the_same_policy() -> None:
    a, b, c = lfm(0), lfm(0), lfm(1)
    assert all(torch.equal(x, y) for x, y in zip(a.parameters(), b.parameters(), strict=True))
    assert not all(torch.equal(x, y) for x, y in zip(a.parameters(), c.parameters(), strict=True))
