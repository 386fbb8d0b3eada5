"""Sampling speed of the vLLM engine over growing transcripts: `python -m benchmarks.vllm_sampling --model FOLDER`.

Every agent takes turns of one growing context: new prompt tokens, then sampled ones; all agents of a turn at once. Prints the
seconds to start, and for each data type sampled and read tokens per second over the turns after the first, which warms up.
Needs the environment of `make setup-vllm`. Stop ids are left out, so every turn samples its full budget.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from rlcr_core.config import EngineConfig
from rlcr_core.engines.vllm import VllmEngine
from rlcr_core.engines.vllm_process import Serving
from rlcr_core.policy import load_policy
from rlcr_core.types import SampleRequest
from tasks.probe import make_probe


def measure(engine: VllmEngine, vocab_size: int, agents: int, turns: int, prompt: int, sampled: int) -> tuple[float, float]:
    """Seconds of the first turn, and of all later ones together."""
    rng = np.random.default_rng(0)
    seconds = []
    for turn in range(turns):
        new = rng.integers(10, vocab_size, (agents, prompt)).tolist()
        requests = [SampleRequest((0, a), new[a], turn == 0, 1000 * turn + a, sampled) for a in range(agents)]
        started = time.perf_counter()
        engine.sample(requests)
        seconds.append(time.perf_counter() - started)
    engine.release([(0, a) for a in range(agents)])
    return seconds[0], sum(seconds[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a Hugging Face folder")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    for name, default in (("agents", 16), ("turns", 6), ("prompt", 60), ("sampled", 24), ("block", 32), ("repeats", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    model = load_policy(options.model)
    vocab_size = int(model.config.vocab_size)
    probe = make_probe(model, vocab_size)
    del model
    context = options.turns * (options.prompt + options.sampled) + options.block
    print(f"{options.agents} agents, {options.turns} turns of {options.prompt} new and {options.sampled} sampled tokens")
    for dtype in options.dtypes:
        started = time.perf_counter()
        config = EngineConfig.model_validate(
            {
                "kind": "vllm",
                "dtype": dtype,
                "max_running": options.agents,
                "probe_tolerance": 1e-3 if dtype == "float32" else 0.5,
            }
        )
        engine = VllmEngine(options.model, config, Serving((), context, block_tokens=options.block))
        ready_s = time.perf_counter() - started
        started = time.perf_counter()
        worst = engine.sync_folder(options.model, 0, probe)
        sync_s = time.perf_counter() - started
        later = options.agents * (options.turns - 1)
        for _ in range(options.repeats):
            cached = engine.cached_tokens
            first_s, later_s = measure(engine, vocab_size, options.agents, options.turns, options.prompt, options.sampled)
            print(
                f"{dtype}: {later * options.sampled / later_s:.0f} sampled tokens/s "
                f"({later * (options.sampled + options.prompt) / later_s:.0f} with new prompt tokens), "
                f"first turn {first_s:.1f} s, {engine.cached_tokens - cached} tokens from the prefix cache"
            )
        print(f"{dtype}: start {ready_s:.0f} s, sync and probe {sync_s:.1f} s, probe off by {worst:.1e} nats")
        engine.close()


if __name__ == "__main__":
    main()
