"""What keeping freed memory saves: `OMP_NUM_THREADS=1 python -m benchmarks.memory`, with `--keep` and without.

Times reading 150 windows and a training step on 150 turns in a thread, as rollout workers do; prints milliseconds per
row and page faults per call.
"""

from __future__ import annotations

import argparse
import resource
import threading
import time
from collections.abc import Callable

import torch

from rlcr_core import lfm2
from rlcr_core.config import load_params
from rlcr_core.policy import build_policy
from tasks.runtime import keep_memory

ROWS, CALLS = 150, 30


def measure(name: str, action: Callable[[], object]) -> None:
    action()
    faults, started = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    for _ in range(CALLS):
        action()
    seconds = time.perf_counter() - started
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - faults
    print(f"{name:10}{1e3 * seconds / CALLS / ROWS:8.3f} ms a row{faults // CALLS:8} page faults a call")


def work() -> None:
    model = build_policy(load_params().policy, 254, 0)
    lean, parameters = lfm2.LeanDecoder(model), list(model.parameters())
    ids = torch.randint(2, 254, (ROWS, 38))

    def read() -> None:
        with torch.inference_mode():
            lean.hidden(ids[:, :34], 33, lfm2.Cache([], 0))

    def train() -> None:
        loss = lean.logits(lean.hidden(ids, 33)).log_softmax(-1)[..., 3].sum()
        torch.autograd.grad(loss, parameters)

    measure("reading", read)
    measure("training", train)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--keep", action="store_true", help="call tasks.runtime.keep_memory first")
    if arguments.parse_args().keep:
        print("glibc keeps memory:", keep_memory())
    torch.set_num_threads(1)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


if __name__ == "__main__":
    main()
