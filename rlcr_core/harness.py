"""Between a rollout and its tokens: what an agent reads at a turn, and what the tokens that it sampled mean.

A harness lives as long as one rollout and keeps each agent's context: how many tokens it holds, and where a new one
begins. `WordHarness` speaks the closed vocabulary of an environment, one word a token, one call a turn; chat models are
served by rlcr_core.chat. The rollout loop knows neither words nor templates, only prompts and calls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, EnvironmentFault
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import AgentView, Call, Environment, ToolSpec, TurnKind


class Prompt(NamedTuple):
    """Tokens to append to the agent's context, how many of them are charged, and whether the context is a new one."""

    ids: Sequence[int]
    charged: int
    new_context: bool


class Spoken(NamedTuple):
    """A finished action's calls, in order, and the turn's kind and tool. No calls: it was cut before its end."""

    calls: tuple[Call, ...]
    kind: TurnKind
    tool: str


class Harness(Protocol):
    """One rollout's rendering and parsing. Raises EnvironmentFault when the environment or a size cannot be served."""

    max_tokens: int  # of one action

    def tools(self, is_ceo: bool) -> tuple[ToolSpec, ...]:
        """Every tool of an agent, the collective's included, with the fewest tokens that a call of it takes."""

    def prompt(self, view: AgentView) -> Prompt:
        """What the agent reads at the start of its turn; called once a turn, in order of time."""

    def read(self, agent: int, ids: Sequence[int], allowed: int) -> Spoken:
        """What sampled ids mean; `allowed` is how many could be sampled. Called once for every prompt."""


@dataclass(slots=True)
class _Context:
    exists: bool = False
    tokens: int = 0


class WordHarness:
    """Closed-vocabulary texts as they are: an observation is one text, an action one call of `arity[verb]` words."""

    def __init__(self, environment: Environment, tokenizer: Tokenizer, params: Params) -> None:
        self.environment, self.tokenizer, self.config = environment, tokenizer, params.context
        self.format = environment.action_format()
        self.max_tokens = self.format.max_tokens
        self._contexts: dict[int, _Context] = {}

    def tools(self, is_ceo: bool) -> tuple[ToolSpec, ...]:
        return self.environment.tools(is_ceo)

    def prompt(self, view: AgentView) -> Prompt:
        observation = self.environment.observe(view)
        ids = self.tokenizer.encode(observation.text)
        context = self._contexts.get(view.agent)
        if context is None:
            context = self._contexts[view.agent] = _Context()
        new = self._place(context, len(ids))
        return Prompt(ids, observation.n_new if self.config.mode == "window" else len(ids), new)

    def _place(self, context: _Context, n_ids: int) -> bool:
        """Put an observation into the agent's context, or into a new one; returns whether it is a new one."""
        needed = n_ids + self.max_tokens
        if needed > self.config.max_tokens:
            raise EnvironmentFault(
                f"an observation of {n_ids} tokens and an action of {self.max_tokens} do not fit a context of "
                f"{self.config.max_tokens} tokens; raise context.max_tokens"
            )
        new = not context.exists or self.config.mode == "window" or context.tokens + needed > self.config.max_tokens
        context.tokens = n_ids + (0 if new else context.tokens)
        context.exists = True
        return new

    def read(self, agent: int, ids: Sequence[int], allowed: int) -> Spoken:
        self._contexts[agent].tokens += len(ids)
        text = self.tokenizer.decode(ids)
        words = text.split()
        if self.format.arity is not None:
            complete = len(ids) >= self.format.arity.get(words[0], 1)
        else:
            complete = len(ids) >= self.max_tokens or words[-1] in self.format.stop_words
        if not complete:
            return Spoken((), self.format.kinds.get(words[0], TurnKind.INVALID), "")
        call = self.environment.parse(agent, text)
        return Spoken((call,), call.kind, call.tool)


def make_harness(environment: Environment, tokenizer: Tokenizer, params: Params) -> Harness:
    """The harness that the tokenizer's policy needs. Raises ConfigError when they do not fit."""
    if params.harness.kind == "words":
        return WordHarness(environment, tokenizer, params)
    from rlcr_core.chat.harness import ChatHarness
    from rlcr_core.chat.tokenizer import ChatTokenizer

    if not isinstance(tokenizer, ChatTokenizer):
        raise ConfigError(
            f"harness.kind chat needs a chat model's tokenizer, got {type(tokenizer).__name__}; change policy.model or "
            "harness.kind."
        )
    return ChatHarness(environment, tokenizer, params)
