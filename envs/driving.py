"""A small event loop that plays an environment with three agents and checks the rules of every call on the way."""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rlcr_core.errors import EnvironmentFault
from rlcr_core.types import AgentView, Call, CallResult, Environment, Observation, ToolSpec, TurnKind

COLLECTIVE_TOOLS: Final = frozenset({"dm", "post", "read", "search", "wait", "hire", "fire"})
N_AGENTS: Final = 3
N_TURNS: Final = 3000
N_AFTER_DONE: Final = 30
LIMIT_S: Final = 7200.0
SPEAKING_S: Final = 0.5
TOLERANCE: Final = 1e-9

Actions = Callable[[str, random.Random], str]  # (observation's text, source of randomness) -> action's text


def require(rule: str, condition: bool, detail: str) -> None:
    """Raise EnvironmentFault, beginning with the rule's name, unless the condition holds."""
    if not condition:
        raise EnvironmentFault(f"{rule}: {detail}")


def require_closed(rule: str, text: str, words: frozenset[str] | None, what: str) -> None:
    """Require that every word of a text is in the vocabulary (None: open text)."""
    unknown = [] if words is None else [word for word in text.split() if word not in words]
    require(rule, not unknown, f"{what} has the words {unknown}, which are not in the vocabulary; add them there")


def view_of(
    environment: Environment,
    agent: int,
    time_s: float,
    limit_s: float,
    seed: int,
    messages: tuple[tuple[str, str], ...] = (),
    last: CallResult | None = None,
) -> AgentView:
    """What agent `agent` of three may see; agent 0 is the CEO."""
    names = [environment.agent_name(a) for a in range(N_AGENTS)]
    team = tuple(name for a, name in enumerate(names) if a != agent)
    n_hired = N_AGENTS - 1
    return AgentView(agent, names[agent], agent == 0, time_s, limit_s, team, n_hired, n_hired, messages, last, seed)


def parse_checked(environment: Environment, agent: int, text: str, tools: dict[str, ToolSpec]) -> Call:
    """The call of a text, checked against the tools."""
    try:
        call = environment.parse(agent, text)
    except Exception as error:
        raise EnvironmentFault(f"parse: {text!r} raised {error!r}, expected an INVALID call") from error
    require("parse", isinstance(call, Call), f"{text!r} gave {call!r}, expected a Call")
    if call.kind is not TurnKind.INVALID:
        spec = tools.get(call.tool)
        if spec is None:
            raise EnvironmentFault(f"parse: {text!r} gave the tool {call.tool!r}, which no agent has")
        require("parse", call.kind is spec.kind, f"{text!r} has the kind {call.kind}, its tool {spec.kind}")
        long_enough = len(text.split()) >= spec.min_tokens
        require("parse", long_enough, f"{text!r} is shorter than {spec.name}'s min_tokens {spec.min_tokens}")
    return call


@dataclass(slots=True)
class Drive:
    """Three agents act until the limit, `max_moments` starts and ends of turns, or a while after everything is done.

    With `watch` the anytime questions are asked around every call; without, only at the end, which must change nothing.
    """

    environment: Environment
    tools: dict[str, ToolSpec]
    words: frozenset[str] | None
    propose: Actions
    seed: int
    watch: bool
    max_moments: int = 2 * N_TURNS
    trace: list[str] = field(default_factory=list)
    n_moments: int = 0
    n_own: int = 0
    own_call: Call = field(default_factory=lambda: Call(""))
    total: float = 0.0
    was_done: bool = False
    n_after_done: int = 0
    mail: list[list[tuple[str, str]]] = field(default_factory=lambda: [[] for _ in range(N_AGENTS)])
    last: list[CallResult | None] = field(default_factory=lambda: [None] * N_AGENTS)

    def run(self) -> Drive:
        rng = random.Random(self.seed)
        moments: list[tuple[float, int, Call | None]] = [(0.0, agent, None) for agent in range(N_AGENTS)]
        while moments[0][0] < LIMIT_S and self.n_moments < self.max_moments and self.n_after_done < N_AFTER_DONE:
            self.n_moments += 1
            time_s, agent, call = heapq.heappop(moments)
            if call is None:
                next_s, call = self._turn(agent, time_s, rng)
            else:
                self._finish(agent, call, time_s)
                next_s, call = time_s, None
            heapq.heappush(moments, (next_s, agent, call))
        self._ask()
        self.trace.append(f"earned {self.environment.earned():.12f}, done {self.environment.done()}")
        return self

    def _turn(self, agent: int, time_s: float, rng: random.Random) -> tuple[float, Call | None]:
        """Observe, act, begin; returns when the turn ends and the call to finish then, if it is the environment's."""
        environment = self.environment
        messages, self.mail[agent] = tuple(self.mail[agent]), []
        view = view_of(environment, agent, time_s, LIMIT_S, rng.getrandbits(62), messages, self.last[agent])
        observation = environment.observe(view)
        self._check_observation(observation)
        text = self.propose(observation.text, rng)
        call = parse_checked(environment, agent, text, self.tools)
        self.trace.append(f"{time_s:.6f} {agent} {observation.text} {observation.n_new} {text}")
        time_s += SPEAKING_S
        if call.kind is TurnKind.INVALID or call.tool in COLLECTIVE_TOOLS:
            self._talk(agent, call)
            return time_s + 1.0, None
        before = environment.earned() if self.watch else 0.0
        duration_s = environment.begin(agent, call, time_s)
        least_s = self.tools[call.tool].min_tool_s
        sane = math.isfinite(duration_s) and duration_s >= least_s
        require("begin", sane, f"{call} takes {duration_s} s, expected finite seconds >= its min_tool_s {least_s}")
        require("begin", not self.watch or environment.earned() == before, f"{call} earned before its finish")
        self.trace.append(f"{duration_s:.6f}")
        return time_s + duration_s, call

    def _talk(self, agent: int, call: Call) -> None:
        """Deliver what was said; the other tools of the collective change nothing here."""
        self.last[agent] = CallResult(call.kind is not TurnKind.INVALID, call.kind.value)
        if call.tool in ("dm", "post") and len(call.args) == 2:
            for other in range(N_AGENTS):
                if other != agent:
                    self.mail[other].append((self.environment.agent_name(agent), call.args[1]))

    def _finish(self, agent: int, call: Call, time_s: float) -> None:
        result = self.environment.finish(agent, call, time_s)
        sane = math.isfinite(result.reward) and result.reward >= 0
        require("finish", sane, f"{call} was rewarded {result.reward}, expected a finite reward >= 0")
        require_closed("vocabulary", " ".join((result.code, *result.args)), self.words, f"the result of {call}")
        require("done", not (self.was_done and result.reward), f"{call} was rewarded after done")
        self.total += result.reward
        self.n_own += 1
        self.n_after_done += self.was_done
        self.own_call, self.last[agent] = call, result
        self.trace.append(f"{result.ok} {result.code} {result.args} {result.reward:.12f} {dict(result.info)}")
        if self.watch:
            self._ask()

    def _ask(self) -> None:
        earned, done = self.environment.earned(), self.environment.done()
        equal = math.isfinite(earned) and abs(earned - self.total) <= TOLERANCE
        require("earned", equal, f"earned() is {earned}, the sum of the rewards {self.total}")
        require("done", done or not self.was_done, "done() was true and is false again")
        self.was_done = done

    def _check_observation(self, observation: Observation) -> None:
        require("vocabulary", bool(observation.text.split()), "an observation has no words")
        require_closed("vocabulary", observation.text, self.words, "an observation")
        require("vocabulary", observation.n_new >= 0, f"an observation has n_new {observation.n_new}, expected >= 0")
