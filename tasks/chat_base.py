"""The base stage of a chat model: take it by name, teach it the grammar of calls, measure before and after, gate it.

The demonstrations show no strategy (tasks/demonstrations.py), and `preference` says how far the result is from having
none: distances between what it chooses and uniform choice among what it saw.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

import envs
from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.config import Params
from rlcr_core.contexts import Context
from rlcr_core.errors import ConfigError, GateError
from rlcr_core.policy import load_policy, save_policy
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.seeds import derive
from rlcr_core.supervised import held_out_loss, supervise
from rlcr_core.types import Rollout, RolloutKey, Task, TurnKind
from rlcr_core.update import resolve_device
from tasks.demonstrations import demonstrated_contexts
from tasks.engines import chat_engine

HELD_OUT_TURNS = 64
MEASURED = 8  # rollouts that the share of valid calls is measured on

Report = Callable[[int, float], None]


def valid_share(rollouts: Sequence[Rollout]) -> float:
    """Share of the finished turns whose calls could all be parsed."""
    kinds = [turn.kind for rollout in rollouts for turn in rollout.turns() if not turn.cut]
    return 1.0 - kinds.count(TurnKind.INVALID) / max(1, len(kinds))


def tool_distance(rollouts: Sequence[Rollout], demonstrated: Mapping[str, float]) -> float:
    """Total variation between the tools of valid calls and the demonstrations': 0 equal, 1 disjoint."""
    turns = [turn for rollout in rollouts for turn in rollout.turns() if turn.kind is not TurnKind.INVALID]
    counts = Counter(tool for turn in turns for tool in turn.tool.split("+") if tool)
    total = max(1, sum(counts.values()))
    tools = set(counts) | set(demonstrated)
    return sum(abs(counts[tool] / total - demonstrated.get(tool, 0.0)) for tool in tools) / 2


def play(model: torch.nn.Module, tokenizer: ChatTokenizer, tasks: Sequence[Task], params: Params, name: str) -> list[Rollout]:
    """Rollouts of this model on the first tasks, at the evaluation's limit."""
    engine = chat_engine(model, tokenizer, params)
    specs = [RolloutSpec(RolloutKey(name, 0, i, 0), task, params.evaluation.limit_s) for i, task in enumerate(tasks[:MEASURED])]
    try:
        return run_rollouts(specs, envs.make, engine, tokenizer, params)
    finally:
        engine.close()


def tool_shares(contexts: Sequence[Context], tokenizer: ChatTokenizer) -> dict[str, float]:
    """How often each tool is called in demonstrations in the plain or the native form, by its first word."""
    counts: Counter[str] = Counter()
    for context in contexts:
        text = tokenizer.decode(context.ids[context.is_action].tolist())
        for action in text.split(tokenizer.decode([tokenizer.stop_ids[0]]))[:-1]:  # what follows the last was cut
            words = action.replace('<tool_call>\n{"name": "', "/").replace('"', " ").split()
            if words and words[0].startswith("/"):
                counts[words[0][1:]] += 1
    total = max(1, sum(counts.values()))
    return {tool: n / total for tool, n in counts.items()}


def train_chat_base(
    params: Params, tasks: Sequence[Task], source: Path, directory: Path, report: Report | None
) -> dict[str, float]:
    """Teach the model in `source`, save it in `directory`, return its metrics. Raises GateError, ConfigError, WeightError."""
    if params.harness.kind != "chat":
        raise ConfigError(f"a chat model's base needs harness.kind chat, got {params.harness.kind}; change harness.kind.")
    torch.set_num_threads(os.cpu_count() or 1)
    base, tokenizer = params.base, ChatTokenizer.load(source)
    dtype = torch.bfloat16 if params.update.dtype == "bfloat16" else torch.float32
    contexts = demonstrated_contexts(tasks, tokenizer, params, f"base-{base.seed}", base.observations)
    held_out = demonstrated_contexts(tasks, tokenizer, params, f"base-held-out-{base.seed}", HELD_OUT_TURNS)
    model = load_policy(source, dtype)
    torch.nn.Module.to(model, device=resolve_device(params.update.device))
    metrics = {"base/turns": float(base.observations), "base/loss_before_nats": _loss(model, held_out, params)}
    metrics["base/valid_before"] = valid_share(play(model, tokenizer, tasks, params, "base-before"))
    supervise(
        model, contexts, steps=base.steps, batch_size=base.batch_size, lr=base.lr, seed=derive("base", base.seed),
        micro_batch_tokens=params.update.micro_batch_tokens, dtype=dtype, report=report,
    )  # fmt: skip
    model.train(False)
    metrics["base/loss_nats"] = _loss(model, held_out, params)
    rollouts = play(model, tokenizer, tasks, params, "base-after")
    metrics["base/valid"] = valid_share(rollouts)
    metrics["base/tool_distance"] = tool_distance(rollouts, tool_shares(contexts, tokenizer))
    metrics["base/return_mean"] = sum(r.return_ for r in rollouts) / len(rollouts)
    metrics = {key: round(value, 6) for key, value in metrics.items()}
    gate_valid(metrics, base.gate_valid)
    save_policy(torch.nn.Module.to(model, device="cpu", dtype=dtype), tokenizer, directory)
    return metrics


def _loss(model: torch.nn.Module, contexts: Sequence[Context], params: Params) -> float:
    return held_out_loss(model, contexts, params.update.micro_batch_tokens)  # type: ignore[arg-type]


def gate_valid(metrics: Mapping[str, float], least: float) -> None:
    """Raise GateError when too few calls are valid for anything to be learnt by trying."""
    if metrics["base/valid"] < least:
        raise GateError(
            f"the base is too weak to start from: {metrics['base/valid']:.3f} of its turns are valid calls, expected at least "
            f"{least:.2f} (base.gate_valid). Raise base.steps or base.observations, or take a larger model (policy.model)."
        )
