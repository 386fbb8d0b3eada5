"""Sampling on vLLM: stop ids, budgets, the distribution, partial tokens on abort, versions, contexts."""

from __future__ import annotations

import asyncio
import dataclasses

import numpy as np
import pytest
import torch

from rlcr_core.engines.base import AsyncEngine
from rlcr_core.engines.vllm import VllmEngine
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.types import Sample, SampleRequest
from tasks.probe import make_probe
from tests.vllm.conftest import STOP, TOKENIZER, llama, trainer_logprobs

MODEL = llama(0)


@pytest.fixture
def engine(shared_engine: VllmEngine) -> VllmEngine:
    shared_engine.sync(dict(MODEL.named_parameters()), 0, make_probe(MODEL, len(TOKENIZER)))
    return shared_engine


def request(agent: int, ids: list[int], new: bool = True, budget: int = 20, seed: int | None = None) -> SampleRequest:
    return SampleRequest((0, agent), ids, new, agent if seed is None else seed, budget)


def assert_counts_reconcile(engine: VllmEngine, before: tuple[int, int, int], samples: list[Sample]) -> None:
    """What came back, what the engine counted, and what vLLM counted are the same tokens."""
    tokens, probes, generated = before
    assert engine.tokens_sampled - tokens == sum(len(sample.ids) for sample in samples)
    assert engine.counts.generated_tokens - generated == (engine.tokens_sampled - tokens) + (engine.probe_tokens - probes)


def counted(engine: VllmEngine) -> tuple[int, int, int]:
    return engine.tokens_sampled, engine.probe_tokens, engine.counts.generated_tokens


def test_an_action_ends_at_its_stop_id_or_its_budget(engine: VllmEngine) -> None:
    before = counted(engine)
    samples = engine.sample([request(i, [3, 4, 7], budget=1 + 3 * i) for i in range(32)])
    for i, sample in enumerate(samples):
        assert len(sample.ids) == len(sample.logprobs) <= 1 + 3 * i
        assert sample.ids[-1] == STOP or len(sample.ids) == 1 + 3 * i
        assert STOP not in sample.ids[:-1]
    assert any(sample.ids[-1] == STOP for sample in samples)
    assert_counts_reconcile(engine, before, samples)


def test_the_seed_decides(engine: VllmEngine) -> None:
    first, again, other = (engine.sample([request(0, [3, 4, 7], seed=seed)])[0] for seed in (2**64 - 5, 2**64 - 5, 8))
    assert first == again and first.ids != other.ids


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_frequencies_and_logprobs_are_those_of_the_temperature(engine: VllmEngine, temperature: float) -> None:
    """4,000 first tokens: the standard error of a share is at most 0.008, five of them are allowed."""
    serving = engine.serving
    engine.serving = dataclasses.replace(serving, temperature=temperature)
    try:
        samples = engine.sample([request(i, [3, 4, 7], budget=1) for i in range(4000)])
    finally:
        engine.serving = serving
    with torch.inference_mode():
        expected = (MODEL(input_ids=torch.tensor([[3, 4, 7]])).logits[0, -1] / temperature).log_softmax(-1)
    shares = np.bincount([sample.ids[0] for sample in samples], minlength=len(TOKENIZER)) / 4000
    assert shares == pytest.approx(expected.exp().numpy(), abs=0.04)
    assert [s.logprobs[0] for s in samples] == pytest.approx([float(expected[s.ids[0]]) for s in samples], abs=1e-3)


def test_abort_loses_no_token_and_invents_none(engine: VllmEngine) -> None:
    """Half of 8 long generations are cut in the middle: partial ids and logprobs come back, the others run to their end."""
    serving = engine.serving
    engine.serving = dataclasses.replace(serving, stop_ids=())
    prompt, before = [3, 4, 7] * 10, counted(engine)

    async def run() -> list[Sample]:
        tasks = [asyncio.create_task(engine.generate(request(agent, prompt, budget=600))) for agent in range(8)]
        while engine.counts.generated_tokens < before[2] + 8 * 20:
            await asyncio.sleep(0.001)
        engine.abort([(0, agent) for agent in range(4)] + [(9, 9)])
        cut = await asyncio.gather(*tasks[:4])
        assert not any(task.done() for task in tasks[4:])
        engine.abort([(0, 0)])  # over already: nothing happens
        return [*cut, *await asyncio.gather(*tasks[4:])]

    try:
        samples = asyncio.run(run())
        assert all(0 < len(sample.ids) < 600 for sample in samples[:4])
        assert [len(sample.ids) for sample in samples[4:]] == [600] * 4
        assert_counts_reconcile(engine, before, samples)
        for agent, sample in enumerate(samples):
            expected = trainer_logprobs(MODEL, [*prompt, *sample.ids])[len(prompt) - 1 :]
            assert sample.logprobs == pytest.approx(expected, abs=1e-3)
            (later,) = engine.sample([request(agent, [9, 9], new=False, budget=5)])
            whole = [*prompt, *sample.ids, 9, 9, *later.ids]
            assert later.logprobs == pytest.approx(trainer_logprobs(MODEL, whole)[-5:], abs=1e-3)
    finally:
        engine.serving = serving


def test_abort_right_after_the_start_returns_what_there_is(engine: VllmEngine) -> None:
    """Also when vLLM does not know the request yet."""
    before = counted(engine)

    async def run() -> list[Sample]:
        tasks = [asyncio.create_task(engine.generate(request(agent, [3, 4], budget=1500))) for agent in range(8)]
        await asyncio.sleep(0)
        engine.abort([(0, agent) for agent in range(8)])
        return await asyncio.wait_for(asyncio.gather(*tasks), 30.0)

    engine.serving, serving = dataclasses.replace(engine.serving, stop_ids=()), engine.serving
    try:
        samples = asyncio.run(run())
    finally:
        engine.serving = serving
    assert all(len(sample.ids) < 1500 and len(sample.ids) == len(sample.logprobs) for sample in samples)
    assert_counts_reconcile(engine, before, samples)


def test_a_sample_of_two_versions_is_a_fault(engine: VllmEngine) -> None:
    """Provoked by relabelling vLLM's weights in the middle of a generation."""
    engine.serving, serving = dataclasses.replace(engine.serving, stop_ids=()), engine.serving
    start = engine.counts.generated_tokens

    async def run() -> None:
        task = asyncio.create_task(engine.generate(request(0, [3, 4], budget=400)))
        while engine.counts.generated_tokens < start + 50:
            await asyncio.sleep(0.001)
        await engine.client.submit(engine.client.llm.update_weight_version("99"))
        await task

    try:
        with pytest.raises(EngineFault, match=r"weight versions \[\('0', 0, \d+\), \('99', \d+, 400\)\]"):
            asyncio.run(run())
    finally:
        engine.serving = serving
    with pytest.raises(EngineFault, match="start a new context"):  # what was sampled is nobody's: the context is given up
        engine.client.wait(engine.client.llm.update_weight_version("0"))
        engine.sample([request(0, [5], new=False)])


def test_no_sync_while_requests_run(engine: VllmEngine) -> None:
    engine.serving, serving = dataclasses.replace(engine.serving, stop_ids=()), engine.serving
    start = engine.counts.generated_tokens

    async def run() -> Sample:
        task = asyncio.create_task(engine.generate(request(0, [3, 4], budget=500)))
        while engine.counts.generated_tokens < start + 10:
            await asyncio.sleep(0.001)
        with pytest.raises(WeightError, match="1 requests are running"):
            engine.sync(dict(MODEL.named_parameters()), 1, make_probe(MODEL, len(TOKENIZER)))
        return await task

    try:
        sample = asyncio.run(run())
    finally:
        engine.serving = serving
    assert len(sample.ids) == 500 and sample.version == engine.version == 0


def test_the_wall_clock_s_face_samples_with_the_engine_s_version(engine: VllmEngine) -> None:
    face: AsyncEngine = engine.awaited()
    sample = asyncio.run(face.generate(request(0, [3, 4])))
    assert sample.version == face.version == 0
    face.release([(0, 0)])
    with pytest.raises(EngineFault, match="start a new context"):
        asyncio.run(face.generate(request(0, [3], new=False)))


def test_impossible_requests_are_faults_and_change_nothing(engine: VllmEngine) -> None:
    with pytest.raises(EngineFault, match="start a new context"):
        engine.sample([request(77, [3], new=False)])
    with pytest.raises(EngineFault, match=r"context of 2040 tokens and an action of 20 .* context.max_tokens"):
        engine.sample([request(0, [3] * 2040)])
    engine.sample([request(0, [3, 4])])
    engine.release([(0, 0), (5, 5)])
    with pytest.raises(EngineFault, match="start a new context"):
        engine.sample([request(0, [3], new=False)])


def test_a_cancelled_generation_gives_its_context_up(engine: VllmEngine) -> None:
    async def run() -> None:
        task = asyncio.create_task(engine.generate(request(0, [3, 4], budget=1500)))
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        while engine._running:
            await asyncio.sleep(0.01)

    asyncio.run(run())
    with pytest.raises(EngineFault, match="start a new context"):
        engine.sample([request(0, [3], new=False)])
    assert len(engine.sample([request(0, [3], budget=1)])[0].ids) == 1
