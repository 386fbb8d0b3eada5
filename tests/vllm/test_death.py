"""A vLLM that dies or hangs in mid-rollout: EngineFault for every request in flight, never a wait without end."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import psutil
import pytest

from rlcr_core.config import EngineConfig
from rlcr_core.engines.vllm import VllmEngine
from rlcr_core.engines.vllm_process import Serving
from rlcr_core.errors import EngineFault, WeightError
from rlcr_core.types import SampleRequest
from tasks.probe import make_probe
from tests.vllm.conftest import CONFIG, TOKENIZER, llama

pytestmark = pytest.mark.slow
SERVING = Serving((), 2048)


def core_of(engine: VllmEngine) -> psutil.Process:
    """The process of this engine's scheduler: the child that came with it."""
    (process,) = engine.client.llm.engine_core.resources.engine_manager.processes
    assert process.pid in [child.pid for child in psutil.Process(os.getpid()).children()]
    return psutil.Process(process.pid)


async def interrupted(engine: VllmEngine, number: signal.Signals) -> list[BaseException]:
    """What 4 generations end with when the scheduler's process gets a signal in their middle."""
    start = engine.counts.generated_tokens
    requests = [SampleRequest((0, agent), [3, 4], True, agent, 1900) for agent in range(4)]
    tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
    while engine.counts.generated_tokens < start + 40:
        await asyncio.sleep(0.001)
    core_of(engine).send_signal(number)
    return await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 60.0)


@pytest.mark.parametrize("number, reason", [(signal.SIGKILL, "died"), (signal.SIGSTOP, "engine.request_timeout_s allows 3")])
def test_requests_in_flight_end_as_faults(start_engine: Callable[..., VllmEngine], number: signal.Signals, reason: str) -> None:
    config = EngineConfig.model_validate(CONFIG.model_dump() | {"request_timeout_s": 3.0})
    engine = start_engine(config, SERVING)
    model = llama(0)
    probe = make_probe(model, len(TOKENIZER))
    engine.sync(dict(model.named_parameters()), 0, probe)
    core = core_of(engine)
    ends = asyncio.run(interrupted(engine, number))
    assert len(ends) == 4 and all(isinstance(end, EngineFault) for end in ends)
    assert engine.is_dead and all(reason in str(end) for end in ends)
    with pytest.raises(EngineFault, match="cannot sample"):
        engine.sample([SampleRequest((1, 0), [3], True, 0, 1)])
    with pytest.raises(WeightError, match="build a new one"):
        engine.sync(dict(model.named_parameters()), 1, probe)
    if number == signal.SIGSTOP:
        core.send_signal(signal.SIGCONT)
    asyncio.run(engine.awaited().close())
    engine.close()
    assert not psutil.wait_procs([core], timeout=60.0)[1]  # vLLM's process is gone
    with pytest.raises(EngineFault, match="closed"):
        engine.sample([SampleRequest((1, 0), [3], True, 0, 1)])
