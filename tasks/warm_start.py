"""The base policy: cloned from the environment's declared random valid actions, measured, and refused when too weak.

Observations come from rollouts of the random player itself; most have their facts replaced by drawn ones, so that keys
can only be got by reading them. The gate is in-context retrieval: of the keys written for a package whose key is
visible, the share that matches, for own notes and for received messages (0.87 when the grammar is met exactly).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

import envs
from rlcr_core.base import CloneBatch, clone, soft_target_loss
from rlcr_core.config import Params
from rlcr_core.errors import GateError
from rlcr_core.players import PlayerEngine
from rlcr_core.policy import build_policy, decoder_hidden, head, save_policy
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.seeds import derive
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import RolloutKey, Task

HELD_OUT = 2048  # observations that the figures are measured on
Words = list[str]


def make_tokenizer(task: Task) -> WordTokenizer:
    """The tokenizer of the environment's closed vocabulary. Raises GateError for an open one."""
    vocabulary = envs.make(task).vocabulary()
    if vocabulary is None:
        raise GateError(f"{task.environment} speaks an open vocabulary; the small policy's warm start needs a closed one.")
    return WordTokenizer(vocabulary)


def random_observations(tasks: list[Task], tokenizer: WordTokenizer, params: Params, count: int) -> list[Words]:
    """Observations, as words, of `count` or more turns of the random player, over limits from short to long."""
    grammar = envs.grammar(tasks[0].environment)
    engine = PlayerEngine(lambda text, key, seed: grammar.random_action(text, random.Random(seed)), tokenizer)
    limits = np.linspace(params.schedule.start_s, params.schedule.end_s, 4)
    found: list[Words] = []
    batch = 0
    while len(found) < count:
        specs = [
            RolloutSpec(RolloutKey(f"base-{params.base.seed}", batch, i, 0), tasks[(batch * 32 + i) % len(tasks)], float(limit))
            for i, limit in enumerate(np.resize(limits, 32))
        ]
        for rollout in run_rollouts(specs, envs.make, engine, tokenizer, params):
            found.extend(tokenizer.decode(turn.observation_ids).split() for turn in rollout.turns())
        batch += 1
    return found[:count]


def training_batch(observations: list[Words], rng: random.Random, params: Params, tokenizer: WordTokenizer, grammar: ModuleType,
                   size: int) -> CloneBatch:  # fmt: skip
    """`size` drawn observations, most with shuffled facts, each with one action drawn from the grammar."""
    index = {word: i for i, word in enumerate(tokenizer.words)}
    rows: list[list[int]] = []
    positions: list[tuple[int, int]] = []
    targets: list[dict[str, float]] = []
    for row in range(size):
        words = rng.choice(observations)
        if rng.random() < params.base.shuffled_share:
            words = grammar.shuffle_facts(words, rng)
        action: Words = []
        while distribution := grammar.next_word(words, action):
            positions.append((row, len(words) + len(action) - 1))
            targets.append(distribution)
            action.append(rng.choices(list(distribution), list(distribution.values()))[0])
        rows.append([index[word] for word in [*words, *action]])
    longest = max(map(len, rows))
    ids = np.zeros((size, longest), dtype=np.int64)
    for row, values in enumerate(rows):
        ids[row, : len(values)] = values
    target = np.zeros((len(targets), len(tokenizer)), dtype=np.float32)
    for n, distribution in enumerate(targets):
        target[n, [index[word] for word in distribution]] = list(distribution.values())
    flat = np.array([row * longest + t for row, t in positions])
    return CloneBatch(torch.from_numpy(ids), torch.from_numpy(flat), torch.from_numpy(target))


def train_base(
    params: Params, tasks: list[Task], directory: Path, report: Callable[[int, float], None] | None = None
) -> dict[str, float]:
    """Clone, measure, gate and save the base policy into `directory`; returns its metrics. Raises GateError."""
    tokenizer = make_tokenizer(tasks[0])
    grammar = envs.grammar(tasks[0].environment)
    base = params.base
    model = build_policy(params.policy, len(tokenizer), base.seed)
    observations = random_observations(tasks, tokenizer, params, base.observations)

    def batches() -> Iterator[CloneBatch]:
        for step in range(base.steps):
            rng = random.Random(derive("base", base.seed, step))
            yield training_batch(observations[HELD_OUT:], rng, params, tokenizer, grammar, base.batch_size)

    clone(model, batches(), base.steps, base.lr, report)
    metrics = measure(model, observations[:HELD_OUT], params, tokenizer, grammar)
    gate(metrics, base.gate_retrieval)
    save_policy(model, tokenizer, directory)
    return metrics


@torch.inference_mode()
def measure(
    model: Any, observations: list[Words], params: Params, tokenizer: WordTokenizer, grammar: ModuleType
) -> dict[str, float]:
    """Divergence from the grammar on held-out observations, and retrieval from notes and from messages."""
    rng = random.Random(derive("base-held-out", params.base.seed))
    batch = training_batch(observations, rng, params, tokenizer, grammar, len(observations))
    metrics = {"base/divergence_nats": float(soft_target_loss(model, batch))}
    for place in ("notes", "messages"):
        metrics[f"base/retrieval_{place}"] = _retrieval(model, observations, rng, tokenizer, grammar, place)
    return {key: round(value, 6) for key, value in metrics.items()}


def _retrieval(model: Any, observations: list[Words], rng: random.Random, tokenizer: WordTokenizer, grammar: ModuleType,
               place: str) -> float:  # fmt: skip
    """Probability of the matching key among all keys, after `work x` with one visible key of x, shown in `place` only."""
    rows, matching = [], []
    for words in observations:
        for prompt, key in grammar.retrieval_probes(grammar.shuffle_facts(words, rng), place):
            rows.append(tokenizer.encode(" ".join(prompt)))
            matching.append(tokenizer.encode(key)[0])
    keys = tokenizer.encode(" ".join(grammar.KEYS))
    hidden = decoder_hidden(model, torch.tensor(rows), len(rows[0]) - 1)[:, 0]
    probabilities = head(model, hidden).softmax(-1)
    right = probabilities[torch.arange(len(rows)), torch.tensor(matching)]
    return float((right / probabilities[:, keys].sum(-1)).mean())


def gate(metrics: dict[str, float], least: float) -> None:
    """Raise GateError when the base copies keys too rarely for talk to be learnt from it."""
    weak = {k: v for k, v in metrics.items() if k.startswith("base/retrieval") and v < least}
    if weak:
        figures = ", ".join(f"{key} {value:.3f}" for key, value in weak.items())
        raise GateError(
            f"the base is too weak to start from: {figures}, expected at least {least:.2f} (base.gate_retrieval). "
            "Raise base.steps, or take another base.seed."
        )


__all__ = ["gate", "make_tokenizer", "measure", "random_observations", "train_base", "training_batch"]
