"""The lean pass of Llama-type decoders against transformers' own forward: packing, slots, growth, rotary positions."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rlcr_core import llama
from rlcr_core.config import load_params
from rlcr_core.engines.attention import Plan, Row
from rlcr_core.engines.memory import HuggingFaceMemory, LlamaMemory, Memory, Reading, make_memory
from rlcr_core.engines.pool import SlotPool
from rlcr_core.policy import build_policy

VOCABULARY = 97


def tiny(kind: str = "llama-tied", seed: int = 0) -> PreTrainedModel:
    """A random decoder with grouped-query attention; larger weights than usual make every mistake visible."""
    sizes = dict(
        vocab_size=VOCABULARY, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, bos_token_id=None, eos_token_id=None, pad_token_id=None, max_position_embeddings=2048,
    )  # fmt: skip
    scaled = {
        "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }  # fmt: skip
    torch.manual_seed(seed)
    model: PreTrainedModel
    if kind == "qwen2":
        model = Qwen2ForCausalLM(Qwen2Config(**sizes, tie_word_embeddings=True))
    elif kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(**sizes, head_dim=16, tie_word_embeddings=False))
    elif kind == "llama-biased":
        model = LlamaForCausalLM(LlamaConfig(**sizes, attention_bias=True, mlp_bias=True))
    elif kind == "llama3-rope":
        model = LlamaForCausalLM(LlamaConfig(**sizes, rope_parameters=scaled))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes, tie_word_embeddings=kind == "llama-tied"))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
            else:
                parameter.add_(0.3 * torch.randn_like(parameter))  # norms and biases that are not 1 and 0
    return model.eval()


KINDS = ["llama-tied", "llama-untied", "llama-biased", "llama3-rope", "qwen2", "qwen3"]


def full_logits(model: PreTrainedModel, ids: Sequence[int]) -> torch.Tensor:
    """Logits [V] after the last of the ids, by transformers' own forward over all of them."""
    with torch.inference_mode():
        return model(input_ids=torch.tensor([list(ids)])).logits[0, -1].float()


@torch.inference_mode()
def read_on(memory: Memory, model: PreTrainedModel, texts: dict[int, list[int]], pieces: Sequence[tuple[int, int, bool]]) -> None:
    """Read n random ids on in each named context, and compare the wanted logits with the full forward."""
    readings = []
    for context, n, wanted in pieces:
        ids = torch.randint(0, VOCABULARY, (n,)).tolist()
        texts.setdefault(context, []).extend(ids)
        readings.append(Reading(context, ids, wanted))
    logits = memory.read(readings)
    wanted_contexts = [reading.context for reading in readings if reading.wanted]
    assert logits.shape == (len(wanted_contexts), VOCABULARY) and logits.dtype == torch.float32
    for row, context in zip(logits, wanted_contexts, strict=True):
        assert torch.allclose(row, full_logits(model, texts[context]), atol=1e-4), context


@pytest.mark.parametrize("kind", KINDS)
def test_any_mixture_of_rows_reads_as_transformers_does(kind: str) -> None:
    model = tiny(kind)
    assert llama.supports(model)
    memory, texts = LlamaMemory(model, torch.float32), dict[int, list[int]]()
    read_on(memory, model, texts, [(1, 5, True), (2, 1, True), (3, 40, False), (4, 17, True)])  # fresh, one of a single token
    read_on(memory, model, texts, [(4, 1, True), (1, 1, True), (2, 1, True)])  # decoding, in another order
    read_on(memory, model, texts, [(3, 1, True), (1, 9, True), (5, 3, True), (2, 1, False)])  # pasts of 40, 6, 0 and 2
    memory.drop(1)
    read_on(memory, model, texts, [(5, 1, True), (3, 1, True)])  # slots 2 and 4 of 0..4: a gap inside one call
    read_on(memory, model, texts | {1: []}, [(6, 1, True), (2, 2, True)])  # the freed slot's new owner sees nothing old


def test_contexts_longer_and_more_than_the_pool_s_first_size() -> None:
    """The pool starts with 16 slots of 256 positions: 20 contexts, one of 300 and then 301 tokens, make both grow."""
    model = tiny()
    memory, texts = LlamaMemory(model, torch.float32), dict[int, list[int]]()
    read_on(memory, model, texts, [(i, 3 + i, True) for i in range(20)])
    read_on(memory, model, texts, [(7, 290, True), (3, 1, True)])
    assert (memory.pool.n_slots, memory.pool.n_positions) == (32, 512)
    read_on(memory, model, texts, [(i, 1, True) for i in range(20)])


def test_bfloat16_is_as_close_as_transformers_in_bfloat16() -> None:
    """Both differ from float32 by rounding: ours, on the same weights, at most twice as much as theirs, on average."""
    exact, rounded = tiny(), tiny().to(torch.bfloat16)
    memory = LlamaMemory(exact, torch.bfloat16)
    ids = torch.randint(0, VOCABULARY, (60,), generator=torch.Generator().manual_seed(0)).tolist()
    with torch.inference_mode():
        ours = torch.stack([memory.read([Reading(0, [token], True)])[0] for token in ids])
        theirs = rounded(input_ids=torch.tensor([ids])).logits[0].float()
        truth = exact(input_ids=torch.tensor([ids])).logits[0]
    assert float((ours - truth).abs().mean()) < 2 * float((theirs - truth).abs().mean()) < 0.2 * float(truth.abs().mean())


def test_what_is_not_supported_is_served_by_transformers() -> None:
    sliding = Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, use_sliding_window=True, sliding_window=8, max_window_layers=1,
        )
    )  # fmt: skip
    dynamic = tiny()
    dynamic.config.rope_parameters = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    assert not llama.supports(sliding) and not llama.supports(dynamic)
    assert isinstance(make_memory(build_policy(load_params().policy, VOCABULARY, 0), torch.float32), HuggingFaceMemory)


@pytest.mark.parametrize("kind", ["llama-tied", "lfm2"])
def test_the_memory_of_other_models(kind: str) -> None:
    """transformers' own caches behind the same interface, also with layers that carry a state along the row."""
    model = build_policy(load_params().policy, VOCABULARY, 0) if kind == "lfm2" else tiny(kind)
    memory, texts = HuggingFaceMemory(model, torch.float32), dict[int, list[int]]()
    read_on(memory, model, texts, [(1, 5, True), (2, 7, True), (3, 5, False)])
    read_on(memory, model, texts, [(3, 1, True), (2, 1, True), (1, 1, True)])
    read_on(memory, model, texts, [(1, 1, True), (3, 1, True)])  # a subset, in another order, goes on
    read_on(memory, model, texts, [(2, 1, True), (1, 1, True)])  # one comes back
    memory.drop(3)
    read_on(memory, model, texts, [(1, 4, True), (2, 1, True), (4, 4, True)])


def test_slots_are_handed_out_lowest_first_and_the_memory_goes_with_the_last() -> None:
    pool = SlotPool(2, 1, 4, torch.float32, torch.device("cpu"))
    assert [pool.take() for _ in range(17)] == list(range(17)) and pool.n_slots == 32  # 16 at first, then twice as many
    pool.extend(16, 257)
    assert pool.n_positions == 512
    for slot in (5, 3):
        pool.give_back(slot)
    assert [pool.take(), pool.take(), pool.take()] == [3, 5, 17]
    for slot in range(18):
        pool.give_back(slot)
    assert pool.n_slots == 0 and pool.layers[0].numel() == 0


def test_rows_far_apart_are_attended_in_calls_of_their_own() -> None:
    """Two rows of 100 keys, 4 slots apart: 5 slots cost 500 <= 200 + 384 keys together; 40 apart: 4,100 > 584."""
    packed = torch.arange(2)
    near = Plan([Row(0, 99, 1), Row(4, 99, 1)], 256, packed, torch.float32)
    far = Plan([Row(0, 99, 1), Row(40, 99, 1)], 256, packed, torch.float32)
    assert [(c.low, c.high, c.keys) for c in near.calls] == [(0, 5, 128)]
    assert [(c.low, c.high, c.keys) for c in far.calls] == [(0, 1, 128), (40, 41, 128)]
    assert near.places_N.tolist() == [99, 4 * 256 + 99]


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 70), st.integers(1, 5)), min_size=1, max_size=6), st.integers(0, 99))
def test_attention_on_the_pool_is_attention(rows: list[tuple[int, int, int]], seed: int) -> None:
    """Every packed token attends to its own context up to itself: against one plain softmax for each token."""
    torch.manual_seed(seed)
    heads, kv_heads, head_dim, width = 4, 2, 8, 96
    by_slot = {slot: Row(slot, start, n) for slot, start, n in rows}
    placed = sorted(by_slot.values(), key=lambda row: (row.n > 1, row.slot))
    pool = torch.randn(61, width, 2 * kv_heads, head_dim)
    total = sum(row.n for row in placed)
    query_NHD = torch.randn(total, heads, head_dim)
    plan = Plan(placed, width, torch.arange(total), torch.float32)
    expected = []
    for token, (slot, t) in enumerate((row.slot, t) for row in placed for t in range(row.start, row.end)):
        for head in range(heads):
            keys, values = pool[slot, : t + 1, head // 2], pool[slot, : t + 1, kv_heads + head // 2]
            expected.append(((keys @ query_NHD[token, head]) / head_dim**0.5).softmax(0) @ values)
    assert torch.allclose(plan.attend(query_NHD, pool), torch.stack(expected).view(total, -1), atol=1e-5)
