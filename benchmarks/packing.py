"""What sharing a common beginning saves in a training step: `python -m benchmarks.packing MODEL_FOLDER`.

Contexts of demonstrations of a chat model (docs/profiles/demo-llm.yaml unless --params names another file) go forward and
backward one per row, and packed. Printed are context tokens per second, once for the gradients of activations alone (what
adapters cost) and once for those of all weights, and the positions computed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.config import load_params
from rlcr_core.contexts import Context
from rlcr_core.packing import Batch, pack
from rlcr_core.policy import action_logprobs, load_policy
from tasks.demonstrations import demonstrated_contexts
from tasks.task_sets import generate_split

ROOT = Path(__file__).resolve().parents[1]


def seconds(model: torch.nn.Module, batches: Sequence[Batch], all_weights: bool) -> float:
    """Of one forward and backward; without all weights the first layer's norm stands for what asks for gradients."""
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(all_weights or "layers.0.input_layernorm" in name)
        parameter.grad = None
    started = time.perf_counter()
    for batch in batches:
        torch.autograd.backward(action_logprobs(model, batch)[0].sum())  # type: ignore[arg-type]
    return time.perf_counter() - started


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("model", type=Path, help="a Hugging Face folder of an attention-only chat model")
    arguments.add_argument("--params", type=Path, default=ROOT / "docs" / "profiles" / "demo-llm.yaml")
    arguments.add_argument("--contexts", type=int, default=16)
    options = arguments.parse_args()
    params, tokenizer = load_params(options.params), ChatTokenizer.load(options.model)
    tasks = generate_split(params.task_set, "train")
    contexts: list[Context] = demonstrated_contexts(tasks, tokenizer, params, "packing", 40 * options.contexts)
    contexts = contexts[: options.contexts]
    model = load_policy(options.model, torch.float32)
    limit = params.update.micro_batch_tokens
    arms = {
        "one per row": [batch for context in contexts for batch in pack([context], limit, False)],
        "packed": pack(contexts, limit, False),
    }
    tokens = sum(len(context.ids) for context in contexts)
    for name, batches in arms.items():
        positions = sum(batch.input_ids_BT.numel() for batch in batches)
        adapters, weights = (tokens / seconds(model, batches, every) for every in (False, True))
        speed = f"{adapters:.0f} tokens/s for adapters, {weights:.0f} for all weights"
        print(f"{name}: {tokens} tokens in {positions} positions; {speed}")


if __name__ == "__main__":
    main()
