"""Time one policy update by the number of micro-batches worked on at once.

Run it with `OMP_NUM_THREADS=1 python -m benchmarks.update_threads`. 5,000 turns of 38 tokens, the policy and the update
settings of params.yaml; median of 3 after one warm-up.
"""

from __future__ import annotations

import statistics
import time

import numpy as np

from rlcr_core.config import load_params
from rlcr_core.contexts import Context
from rlcr_core.policy import build_policy
from rlcr_core.update import Updater


def main() -> None:
    params = load_params()
    rng = np.random.default_rng(0)
    mark = np.arange(38) >= 34
    logprobs = np.where(mark, -1.0, 0.0).astype(np.float32)
    contexts = [
        Context(rng.integers(2, 254, 38).astype(np.int32), mark, logprobs, i % 3 - 1.0, i % 64, i % 9, np.zeros(38, np.int32))
        for i in range(5000)
    ]
    for threads in (1, 2):
        updater = Updater(build_policy(params.policy, 254, 0), params.update.model_copy(update={"threads": threads}))
        times = []
        for seed in range(4):
            started = time.perf_counter()
            updater.step(contexts, seed)
            times.append(time.perf_counter() - started)
        print(f"{threads} at once: {statistics.median(times[1:]):.2f} s")


if __name__ == "__main__":
    main()
