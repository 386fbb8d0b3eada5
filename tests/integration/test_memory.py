"""Memory does not grow with the number of iterations."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

import envs
from rlcr_core.config import load_params
from rlcr_core.contexts import contexts_of
from rlcr_core.engines.torch import TorchEngine
from rlcr_core.policy import load_policy
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import RolloutKey
from rlcr_core.update import Updater

ROOT = Path(__file__).parents[2]


def resident_mib() -> float:
    """Resident memory now; where the system does not tell, the peak, which is stricter."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return pages * resource.getpagesize() / 2**20


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["window", "transcript"])
def test_two_hundred_iterations_keep_resident_memory_flat(mode: str) -> None:
    """Rollouts, caches, contexts and optimiser of iterations 50 to 200 need no more than those of the first 50 (+ 24 MiB)."""
    data = load_params(ROOT / "params.yaml").model_dump()
    data["context"] = {"mode": mode, "max_tokens": 200}
    params = type(load_params(ROOT / "params.yaml")).model_validate(data)
    base = ROOT / params.base.checkpoint
    tokenizer, model = WordTokenizer.load(base), load_policy(base)
    shape = {"packages": 2, "modules": 3, "parallel_share": 1.0, "coupling": 1.0}
    (task,) = envs.generate("workshop@1", families={"star": 1.0}, split="memory", count=1, seed=0, **shape)
    keep = mode == "transcript"
    engine = TorchEngine(load_policy(base), tokenizer, envs.make(task).action_format(), keep_caches=keep)
    updater = Updater(model, params.update)
    sizes = {}
    for iteration in range(200):
        engine.sync(dict(model.named_parameters()), iteration)
        specs = [RolloutSpec(RolloutKey("memory", iteration, 0, i), task, 12.0) for i in range(4)]
        rollouts = run_rollouts(specs, envs.make, engine, tokenizer, params)
        contexts = [c for i, r in enumerate(rollouts) for c in contexts_of(r, float(i - 1.5), i)]
        updater.step(contexts, iteration)
        assert not engine._slots  # every context of a finished rollout is released
        if iteration in (50, 199):
            sizes[iteration] = resident_mib()
    assert sizes[199] - sizes[50] < 24.0, sizes
