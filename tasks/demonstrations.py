"""Demonstrations for chat models: scripted players that make random valid calls through the chat harness.

They show how calls are written and which arguments can be copied from where, and no strategy: who calls what, on which
module, with which key is drawn from the environment's declared grammar.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import envs
from rlcr_core.chat.harness import ChatHarness
from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.config import Params
from rlcr_core.contexts import Context, contexts_of
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.types import CEO, AgentView, Described, Environment, Rollout, RolloutKey, Sample, SampleRequest, Task

BATCH = 16  # rollouts played together


class _Watched:
    """An environment that keeps the words that its grammar reads, of each agent's last turn."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self.words: dict[int, str] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def describe(self, view: AgentView) -> str:
        words = self.words[view.agent] = self._environment.observe(view).text
        return self._environment.describe(view) if isinstance(self._environment, Described) else words


class Demonstrator:
    """Plays every agent: an engine whose samples are random valid calls, and the environments that it watches."""

    def __init__(self, tokenizer: ChatTokenizer, params: Params) -> None:
        self.version = 0
        self._tokenizer, self._params = tokenizer, params
        self._watched: list[_Watched] = []
        self._harnesses: list[ChatHarness] = []
        self._grammar: Any = None

    def make(self, task: Task) -> Environment:
        self._grammar = envs.grammar(task.environment)
        watched: Any = _Watched(envs.make(task))
        self._watched.append(watched)
        self._harnesses.append(ChatHarness(watched, self._tokenizer, self._params))
        environment: Environment = watched
        return environment

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        samples = []
        for request in requests:
            uid, agent = request.cache_key
            environment, harness = self._watched[uid], self._harnesses[uid]
            action = self._grammar.random_action(environment.words[agent], random.Random(request.seed))
            call = environment.parse(agent, action)
            ids = self._tokenizer.encode_action(harness.write_calls([call], agent == CEO))[: request.max_tokens]
            samples.append(Sample(ids, [0.0] * len(ids), self.version))
        return samples

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Nothing is cached."""

    def close(self) -> None:
        """Nothing is held."""


def demonstrate(tasks: Sequence[Task], tokenizer: ChatTokenizer, params: Params, name: str) -> Iterator[Rollout]:
    """Rollouts of random valid calls without end, over limits from short to long; `name` gives the seeds."""
    limits = np.resize(np.linspace(params.schedule.start_s, params.schedule.end_s, 4), BATCH)
    batch = 0
    while True:
        player = Demonstrator(tokenizer, params)
        specs = [
            RolloutSpec(RolloutKey(name, batch, i, 0), tasks[(batch * BATCH + i) % len(tasks)], float(limit))
            for i, limit in enumerate(limits)
        ]
        yield from run_rollouts(specs, player.make, player, tokenizer, params)
        batch += 1


def demonstrated_contexts(
    tasks: Sequence[Task], tokenizer: ChatTokenizer, params: Params, name: str, turns: int
) -> list[Context]:
    """The contexts of demonstrations with `turns` or more turns; every token that an agent said is a target."""
    found: list[Context] = []
    count = 0
    for index, rollout in enumerate(demonstrate(tasks, tokenizer, params, name)):
        count += len(rollout.turns())
        found.extend(contexts_of(rollout, 1.0, index))
        if count >= turns:
            break
    return found
