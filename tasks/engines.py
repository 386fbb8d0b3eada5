"""Which engine a rollout worker owns, by params.yaml: the small policy's, a chat model's on torch, vLLM, or a server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import torch

import envs
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError
from rlcr_core.policy import load_policy
from rlcr_core.tokens import PolicyTokenizer, WordTokenizer, load_tokenizer
from rlcr_core.types import Engine, Task
from rlcr_core.update import resolve_device
from rlcr_core.weights import Published, load_weights
from tasks.probe import Probe, check_probe

STEP_TOKENS, WALL_STEP_TOKENS = 2048, 256  # prompt tokens that a chat engine reads at once


def engine_dtype(params: Params) -> torch.dtype:
    """The type of the weights that are sampled with."""
    return torch.bfloat16 if params.engine.dtype == "bfloat16" else torch.float32


def worker_threads(params: Params) -> int:
    """Threads of one worker: one for the small policy, whose products gain nothing from more, else its share of the cores."""
    if params.harness.kind == "words":
        return 1
    return max(1, (os.cpu_count() or 1) // params.rollouts.workers)


def chat_engine(model: Any, tokenizer: Any, params: Params, version: int = 0) -> Any:
    """A chat model on torch, with a cache per agent that survives between turns."""
    from rlcr_core.engines.chat import ChatEngine

    # On the wall clock a long prompt must not hold up the tokens of everybody else.
    step_tokens = WALL_STEP_TOKENS if params.rollouts.clock == "wall" else STEP_TOKENS
    return ChatEngine(
        model, tokenizer.stop_ids, params.rollouts.temperature, dtype=engine_dtype(params),
        max_running=params.engine.max_running, step_tokens=step_tokens, version=version,
    )  # fmt: skip


def build_engine(policy: Path, params: Params, example: Task, version: int) -> tuple[Engine, PolicyTokenizer]:
    """The engine of params.engine.kind with the policy in a folder. Raises ConfigError, WeightError, EngineFault."""
    tokenizer = load_tokenizer(policy)
    kind = params.engine.kind
    if kind == "openai":
        from rlcr_core.engines.openai import OpenAIEngine

        rollouts = params.rollouts
        server = OpenAIEngine(params.engine, cast(Any, tokenizer), rollouts.temperature, rollouts.top_p, version)
        return server, tokenizer
    if kind == "vllm":
        from rlcr_core.engines.vllm import VllmEngine
        from rlcr_core.engines.vllm_process import Serving

        stop_ids = getattr(tokenizer, "stop_ids", ())
        if not stop_ids:
            raise ConfigError(f"engine.kind vllm serves chat models, {policy} is none; change engine.kind to torch.")
        serving = Serving(stop_ids, params.context.max_tokens, params.rollouts.temperature)
        return VllmEngine(policy, params.engine, serving), tokenizer
    model = load_policy(policy)
    if isinstance(tokenizer, WordTokenizer):
        from rlcr_core.engines.torch import TorchEngine

        keep_caches = params.context.mode == "transcript"
        action_format = envs.make(example).action_format()
        return TorchEngine(
            model, tokenizer, action_format, params.rollouts.temperature, keep_caches=keep_caches, version=version
        ), tokenizer
    if params.harness.kind != "chat":
        raise ConfigError(f"{policy} is a chat model and harness.kind is {params.harness.kind}; change harness.kind to chat.")
    torch.nn.Module.to(model, device=resolve_device("auto"))
    return chat_engine(model, tokenizer, params, version), tokenizer


def sync_engine(engine: Any, published: Published, probe: Probe, params: Params) -> int:
    """Bring published weights to an engine and prove them; returns its version. Raises WeightError when they disagree.

    A server elsewhere has weights of its own: nothing is brought there, and its version is the published one's number.
    """
    if params.engine.kind == "openai":
        engine.version = published.version
        return published.version
    state = load_weights(published.path, published.digest, published.base)
    if params.engine.kind == "vllm":
        engine.sync(state, published.version, probe)
    else:
        engine.sync(state, published.version)
        where = f"version {published.version} on a rollout worker"
        check_probe(engine.probe(probe.ids), probe, where, params.engine.probe_tolerance)
    return int(engine.version)
