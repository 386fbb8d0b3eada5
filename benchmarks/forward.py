"""Time the lean forward pass of rlcr_core.lfm2 against transformers' own: `python -m benchmarks.forward`.

Prints milliseconds (median of 7) of reading a batch of windows, of sampling one more token, and of one training step.
One thread, the policy of params.yaml, random ids.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

from rlcr_core import lfm2
from rlcr_core.config import load_params
from rlcr_core.policy import build_policy, hidden_states

VOCABULARY, WINDOW, ACTION = 254, 34, 4


def milliseconds(action: Callable[[], object]) -> float:
    """Median of 7 after two warm-up calls."""
    action()
    action()
    times = []
    for _ in range(7):
        started = time.perf_counter()
        action()
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times)


def main() -> None:
    torch.set_num_threads(1)
    model = build_policy(load_params().policy, VOCABULARY, 0)
    lean = lfm2.LeanDecoder(model)
    print(f"{'':32}{'transformers':>14}{'lean':>10}{'ratio':>8}")
    for rows in (32, 256):
        ids = torch.randint(2, VOCABULARY, (rows, WINDOW))
        with torch.inference_mode():
            theirs = milliseconds(lambda ids=ids: hidden_states(model, ids, use_cache=True))  # type: ignore[misc]
            ours = milliseconds(lambda ids=ids: lean.hidden(ids, WINDOW - 1, lfm2.Cache([], 0)))  # type: ignore[misc]
        print(f"{f'read {rows} windows':32}{theirs:11.1f} ms{ours:7.1f} ms{theirs / ours:8.2f}")
    ids = torch.randint(2, VOCABULARY, (215, WINDOW + ACTION))

    def step(hidden: Callable[[], torch.Tensor]) -> None:
        model.zero_grad()
        torch.autograd.backward(lean.logits(hidden()).log_softmax(-1)[..., 3].sum())

    theirs = milliseconds(lambda: step(lambda: hidden_states(model, ids, use_cache=False)[:, WINDOW - 1 :]))
    ours = milliseconds(lambda: step(lambda: lean.hidden(ids, WINDOW - 1)))
    print(f"{'train on 215 turns':32}{theirs:11.1f} ms{ours:7.1f} ms{theirs / ours:8.2f}")


if __name__ == "__main__":
    main()
