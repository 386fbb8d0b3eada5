"""Scripted players in the same rollout loop as policies, with the same clock and the same charges.

A player is asked when an agent's turn starts; what it says is encoded and charged token by token like a policy's, and has
the logprob 0. Players know the environment itself, so they give ceilings and floors that no policy's window limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rlcr_core.clock import LatencyModel, tick
from rlcr_core.config import Params
from rlcr_core.errors import EngineFault
from rlcr_core.harness import make_harness
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import (
    CEO,
    AgentView,
    Call,
    Environment,
    Observation,
    Player,
    Rollout,
    Sample,
    SampleRequest,
    Scene,
    Task,
    Terms,
)  # fmt: skip

MakePlayer = Callable[[Environment, Terms], Player]


def terms_of(environment: Environment, tokenizer: Tokenizer, params: Params) -> Terms:
    """The least seconds of every turn under these parameters. Raises ConfigError for harnesses that do not fit."""
    latency, collective = LatencyModel(params.latency), params.collective
    harness = make_harness(environment, tokenizer, params)
    calls = params.harness.max_calls if params.harness.kind == "chat" else 1  # that may share one turn's overhead
    return Terms(
        overhead_s=latency.config.turn_overhead_s / calls,
        token_s=1.0 / latency.decode_tps(),
        tokens={tool.name: tool.min_tokens for is_ceo in (True, False) for tool in harness.tools(is_ceo)},
        hire_s=collective.hire_s,
        onboarding_s=collective.onboarding_s,
        wait_s=0.0 if collective.wait_s is None else collective.wait_s,
        max_hires=collective.max_hires,
        staff=collective.staff,
    )


Encode = Callable[[Any, int, str], list[int]]  # (environment, agent, text) -> ids


class _Played:
    """An environment whose agents a player plays: asks it at each observation and keeps what it says for the engine."""

    def __init__(self, environment: Environment, player: Player, encode: Encode) -> None:
        self._environment: Any = environment
        self._player, self._encode = player, encode
        self.said: dict[int, list[int]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def observe(self, view: AgentView) -> Observation:
        observation: Observation = self._environment.observe(view)
        text = self._player.act(Scene(view, observation.text, self._environment))
        ids = self.said[view.agent] = self._encode(self._environment, view.agent, text)
        if not ids:
            raise EngineFault(f"the player says {text!r} for agent {view.agent} at {view.time_s:g} s, expected an action")
        return observation

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        duration_s: float = self._environment.begin(agent, call, time_s)
        self._player.began(agent, call, tick(time_s + duration_s))
        return duration_s


class _Described(_Played):
    """The same for an environment with open texts, of which a chat model's harness asks `describe` instead."""

    def describe(self, view: AgentView) -> str:
        self.observe(view)
        text: str = self._environment.describe(view)
        return text


class ScriptedEngine:
    """An engine whose samples are what the rollouts' players say. `make` wraps the environments, one call a rollout."""

    def __init__(
        self, make_environment: Callable[[Task], Environment], make_player: MakePlayer, tokenizer: Tokenizer, params: Params
    ) -> None:
        self.version = 0
        self._make_environment, self._make_player = make_environment, make_player
        self._tokenizer, self._params = tokenizer, params
        self._terms: dict[str, Terms] = {}  # by environment id
        self._played: list[_Played | None] = []  # by rollout, in the order of `make`
        self._writer: Any = None  # the harness that writes calls in a chat model's form

    def make(self, task: Task) -> Environment:
        """The environment of the next rollout, with a player of its own."""
        self._played.append(None)  # the rollout keeps its number when its environment cannot be made
        environment = self._make_environment(task)
        if environment.id not in self._terms:
            self._terms[environment.id] = terms_of(environment, self._tokenizer, self._params)
        player = self._make_player(environment, self._terms[environment.id])
        played: Any = (_Described if hasattr(environment, "describe") else _Played)(environment, player, self._ids)
        self._played[-1] = played
        made: Environment = played
        return made

    def _ids(self, environment: Any, agent: int, text: str) -> list[int]:
        """The tokens of an action: its words, or for a chat model the call that they state, in the model's form."""
        if self._params.harness.kind == "words":
            return self._tokenizer.encode(text)
        if self._writer is None:
            self._writer = make_harness(environment, self._tokenizer, self._params)
        tokenizer: Any = self._tokenizer
        ids: list[int] = tokenizer.encode_action(self._writer.write_calls([environment.parse(agent, text)], agent == CEO))
        return ids

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]:
        samples = []
        for request in requests:
            rollout, agent = request.cache_key
            played = self._played[rollout]
            if played is None:
                raise EngineFault(f"rollout {rollout} has no player; make its environment with ScriptedEngine.make")
            ids = played.said.pop(agent)[: request.max_tokens]
            samples.append(Sample(ids, [0.0] * len(ids), self.version))
        return samples

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Nothing is cached."""

    def close(self) -> None:
        """Nothing is held."""


def scripted_rollouts(
    specs: Sequence[RolloutSpec],
    make_environment: Callable[[Task], Environment],
    make_player: MakePlayer,
    tokenizer: Tokenizer,
    params: Params,
) -> list[Rollout]:
    """Run every rollout with a player of its own; the same specs give the same rollouts. A player's fault fails its own."""
    engine = ScriptedEngine(make_environment, make_player, tokenizer, params)
    return run_rollouts(specs, engine.make, engine, tokenizer, params)
