"""ChatHarness: one rollout's agents as a chat model reads and speaks them, each in a transcript that only grows.

A prompt appends to the agent's context what is new: the results of its last calls, messages, time, team and state. What
the model sampled stays as its ids. When the next turn would not fit `context.max_tokens`, a new context begins with
the system prompt and a summary that is written here. Every size has a limit; what is cut says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from rlcr_core.chat import texts
from rlcr_core.chat.forms import Form, Malformed, NativeForm, PlainForm, after_reasoning, turn_kind
from rlcr_core.chat.template import ChatTemplate
from rlcr_core.chat.tokenizer import ChatTokenizer
from rlcr_core.chat.tools import all_tools, schemas
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError
from rlcr_core.harness import Prompt, Spoken
from rlcr_core.types import CEO, AgentView, Call, Described, Environment, ToolSpec, TurnKind

MIN_TOKENS = {"max_turn_tokens": 4, "max_observation_tokens": 48, "max_result_tokens": 24, "max_summary_tokens": 48}
_KEPT = 8  # results and messages that are kept for a summary
_JOINTS = 8  # tokens allowed for the line breaks between parts that were measured one by one


@dataclass(slots=True)
class _Agent:
    """One agent's transcript: `tokens` of its current context, and what the next prompt needs to know of the last turn."""

    tokens: int = 0  # 0: no context yet
    turns: int = 0
    closed: bool = False  # its last action ended with the template's own stop token
    calls: tuple[Call, ...] = ()
    team: Sequence[str] | None = None  # as it was listed last
    past_results: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))
    past_messages: deque[str] = field(default_factory=lambda: deque(maxlen=_KEPT))


@dataclass(frozen=True, slots=True)
class _Role:
    """What CEO or staff have in common: tools, system text and the template with these tools."""

    tools: dict[str, ToolSpec]
    system_ids: list[int]
    template: ChatTemplate


class ChatHarness:
    """Implements `rlcr_core.harness.Harness`. Raises ConfigError when the sizes of params.yaml cannot hold a turn."""

    def __init__(self, environment: Environment, tokenizer: ChatTokenizer, params: Params) -> None:
        self.environment, self.tokenizer = environment, tokenizer
        self.prose = _prose(environment)
        self.config, self.limit = params.harness, params.context.max_tokens
        self.max_message_tokens = params.collective.max_message_tokens
        self.max_tokens = self.config.max_turn_tokens
        ceo_tools = all_tools(environment, True)
        native = self.config.form == "auto" and tokenizer.template(schemas(ceo_tools.values())).is_native
        self.form: Form = NativeForm() if native else PlainForm()
        self._roles = {True: self._role(True, ceo_tools), False: self._role(False, all_tools(environment, False))}
        self._agents: dict[int, _Agent] = {}
        self._check_sizes()

    def tools(self, is_ceo: bool) -> tuple[ToolSpec, ...]:
        return tuple(self._roles[is_ceo].tools.values())

    def write_calls(self, calls: Sequence[Call], is_ceo: bool) -> str:
        """The text of these calls, as a demonstration says them: `read` of it gives the calls. Raises DataError."""
        role = self._roles[is_ceo]
        opened = "</think>\n\n" if role.template.opens_reasoning else ""
        return opened + self.form.write(calls, role.tools)

    # -- what the agent reads ----------------------------------------------------------------------------------------

    def prompt(self, view: AgentView) -> Prompt:
        agent = self._agents.setdefault(view.agent, _Agent())
        results = self._results(agent, view)
        messages = texts.message_lines(view)
        state = self.prose.describe(view) if self.prose else self.environment.observe(view).text
        ids = self._go_on(agent, view, results, messages, state) if agent.tokens else []
        is_new = not ids or agent.tokens + len(ids) + self.max_tokens > self.limit
        if is_new:
            ids = self._begin(agent, view, results, messages, state)
            agent.tokens = 0
        agent.tokens += len(ids)
        agent.team = view.team
        agent.past_results.extend(results)
        agent.past_messages.extend(texts.cut(self.tokenizer, line, self.config.max_result_tokens) for line in messages)
        return Prompt(ids, len(ids), is_new)

    def _results(self, agent: _Agent, view: AgentView) -> list[str]:
        """A line for each call of the last turn; an explanation for a turn that was no call."""
        if len(agent.calls) == 1 and agent.calls[0].kind is TurnKind.INVALID:
            lines = [f"error {agent.calls[0].tool}: {agent.calls[0].args[0]}. Nothing was done."]
        else:
            lines = [texts.result_line(*pair) for pair in zip(agent.calls, view.results, strict=False)]
        share = self.config.max_observation_tokens // (2 * max(len(lines), 1))
        return [texts.cut(self.tokenizer, line, min(self.config.max_result_tokens, share)) for line in lines]

    def _user_ids(self, parts: texts.Parts, summary: str = "") -> list[int]:
        limit = self.config.max_observation_tokens
        text = texts.cut(self.tokenizer, parts.fit(self.tokenizer, limit).join(), limit)
        return self.tokenizer.encode(f"{summary}\n{text}" if summary else text)

    def _go_on(self, agent: _Agent, view: AgentView, results: list[str], messages: list[str], state: str) -> list[int]:
        """What to append to the agent's context."""
        template = self._roles[view.is_ceo].template
        as_tools = self.form.native and bool(agent.calls) and agent.calls[0].kind is not TurnKind.INVALID
        status = texts.status_line(view, names=view.team != agent.team)
        user_ids = self._user_ids(texts.Parts("", [] if as_tools else results, messages, status, state))
        tool_ids = [self.tokenizer.encode(line) for line in results] if as_tools else []
        return template.proceed(tool_ids, user_ids, agent.closed)

    def _begin(self, agent: _Agent, view: AgentView, results: list[str], messages: list[str], state: str) -> list[int]:
        """A new context: system prompt, the summary of the ones before it, and the turn."""
        role = self._roles[view.is_ceo]
        summary = ""
        if agent.turns:
            past = (list(agent.past_results), list(agent.past_messages))
            summary = texts.summary_text(self.tokenizer, agent.turns, *past, self.config.max_summary_tokens)
        parts = texts.Parts(f"You are {view.name}.", results, messages, texts.status_line(view, names=True), state)
        return role.template.open(role.system_ids, self._user_ids(parts, summary))

    # -- what it said ------------------------------------------------------------------------------------------------

    def read(self, agent: int, ids: Sequence[int], allowed: int) -> Spoken:
        """See `Harness.read`. Without its stop token an action is `unfinished` at `max_tokens`, and cut before that."""
        state = self._agents[agent]
        state.tokens += len(ids)
        state.turns += 1
        last = ids[-1] if ids else None
        stopped = last in self.tokenizer.stop_ids
        role = self._roles[agent == CEO]
        state.closed = last == role.template.stop_id
        text = self.tokenizer.decode(ids[:-1] if stopped else ids)
        text = after_reasoning(text, role.template.opens_reasoning)
        try:
            if not stopped:
                if len(ids) < self.max_tokens:
                    state.calls = ()
                    return Spoken((), self.form.first_kind(text, role.tools), "")
                raise Malformed("unfinished", f"not ended within {self.max_tokens} tokens, say less")
            calls = tuple(self._read(text, role.tools))
        except Malformed as error:
            calls = (Call(error.reason, (error.detail,), TurnKind.INVALID),)
            state.calls = calls
            return Spoken(calls, TurnKind.INVALID, error.reason)
        state.calls = calls
        return Spoken(calls, turn_kind(calls), "+".join(call.tool for call in calls))

    def _read(self, text: str, tools: dict[str, ToolSpec]) -> list[Call]:
        calls = self.form.read(text, tools)
        if len(calls) > self.config.max_calls:
            raise Malformed("too_many_calls", f"{len(calls)} calls, at most {self.config.max_calls} a turn")
        for call in calls:
            # Names, channels and queries have the same bound as messages: each may be shown to somebody.
            longest = max((len(self.tokenizer.encode(value)) for value in call.args), default=0)
            if longest > self.max_message_tokens:
                raise Malformed("too_long", f"an argument of {call.tool} has {longest} tokens, at most {self.max_message_tokens}")
        return calls

    # -- sizes -------------------------------------------------------------------------------------------------------

    def _role(self, is_ceo: bool, tools: dict[str, ToolSpec]) -> _Role:
        rules = self.prose.rules(is_ceo) if self.prose else ""
        native = self.form.native
        text = texts.system_text(is_ceo, rules, tools.values(), native, self.config.max_calls)
        template = self.tokenizer.template(schemas(tools.values()) if native else ())
        return _Role(tools, self.tokenizer.encode(text), template)

    def _check_sizes(self) -> None:
        for name, least in MIN_TOKENS.items():
            got = getattr(self.config, name)
            if got < least:
                raise ConfigError(f"harness.{name} must be at least {least} for chat, got {got}; raise harness.{name}.")
        config = self.config
        rest = config.max_summary_tokens + config.max_observation_tokens + _JOINTS + config.max_turn_tokens
        for is_ceo, role in self._roles.items():
            system = len(role.template.open(role.system_ids, []))
            if system + rest > self.limit:
                raise ConfigError(
                    f"a context of {self.limit} tokens does not hold the system prompt of {'the CEO' if is_ceo else 'staff'} "
                    f"({system} tokens), a summary ({config.max_summary_tokens}), an observation "
                    f"({config.max_observation_tokens}) and a turn ({config.max_turn_tokens}), {system + rest} in all; "
                    "raise context.max_tokens, or lower harness.max_summary_tokens, max_observation_tokens or max_turn_tokens."
                )


def _prose(environment: Environment) -> Described | None:
    """The environment's optional side; asked by attribute, so that a wrapper that passes attributes on has it too."""
    has_it = all(callable(getattr(environment, name, None)) for name in ("rules", "describe"))
    return cast(Described, environment) if has_it else None
