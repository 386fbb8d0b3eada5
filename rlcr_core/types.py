"""The words of the project, fixed here: task, turn, trajectory, rollout, event, and the Environment protocol.

Nothing here imports more than numpy. Times are virtual seconds since the start of the rollout (`_s`); token ids are
int32, behaviour logprobs float32 natural logarithms. Agents are numbered in order of employment; 0 is the CEO.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Int32Array = NDArray[np.int32]
Float32Array = NDArray[np.float32]
Float64Array = NDArray[np.float64]

CEO = 0


class TurnKind(StrEnum):
    """What a turn did: `work` acts on the environment, `talk` communicates, `roster` hires or fires."""

    WORK = "work"
    TALK = "talk"
    ROSTER = "roster"
    WAIT = "wait"
    INVALID = "invalid"


class StopReason(StrEnum):
    """Why a rollout ended. Checked in this order: failed, solved, deadline, stalled."""

    DEADLINE = "deadline"
    SOLVED = "solved"
    STALLED = "stalled"
    FAILED = "failed"


class EventType(StrEnum):
    """Types of rollout events; `reward` events are the reward curve."""

    REWARD = "reward"
    HIRE = "hire"  # agent = the CEO, other = the new agent, stamped when the call ends
    START = "start"  # agent = the new agent, stamped when it may take its first turn
    FIRE = "fire"  # agent = the CEO, other = the fired agent
    MESSAGE = "message"  # agent = sender, other = receiver (-1: a channel post), stamped when it is sent
    DELIVERY = "delivery"  # agent = receiver, other = sender, stamped at the turn that showed it
    WORK = "work"  # an environment call ended: text = its code and facts (rlcr_core.facts)
    USE = "use"  # that call's success relied on a message: agent = who succeeded, text = the message's
    TASK = "task"  # what the environment says about the task, for metrics: agent = -1, text = its facts


class RolloutKey(NamedTuple):
    """Identity of a rollout; every seed of the rollout derives from it (rlcr_core.seeds)."""

    run: str
    iteration: int
    group: int
    rollout: int


@dataclass(frozen=True, slots=True)
class Task:
    """One problem instance; `spec` is plain JSON that the environment understands."""

    id: str
    environment: str
    split: str
    seed: int
    spec: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Message:
    """A message in the archive: `to` is an agent (direct) or None (posted to `channel`)."""

    id: int
    time_s: float
    sender: int
    to: int | None
    channel: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A parsed action. `kind` is INVALID when it could not be parsed, `tool` then names the reason."""

    tool: str
    args: tuple[str, ...] = ()
    kind: TurnKind = TurnKind.WORK


@dataclass(frozen=True, slots=True)
class CallResult:
    """What a call came to: a short `code` of a closed set, arguments, and the rewards earned at the call's end.

    `info` and `uses` are for metrics only, never shown to agents. `uses` are the texts of messages without which this
    success would not have come, () when it relied on none, None when the environment cannot say.
    """

    ok: bool
    code: str
    args: tuple[str, ...] = ()
    reward: float = 0.0
    info: Mapping[str, float] = field(default_factory=dict)
    uses: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool of an agent: shortest length in tokens and shortest tool time in seconds bound the lookahead."""

    name: str
    kind: TurnKind
    min_tokens: int
    min_tool_s: float
    description: str = ""
    parameters: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ActionFormat:
    """When an action ends: at `arity[first word]` words (1 for an unknown first word), or at a stop word.

    `kinds` classes an action that the deadline cut before its end, by its first word.
    """

    arity: Mapping[str, int] | None
    max_tokens: int
    stop_words: tuple[str, ...] = ()
    kinds: Mapping[str, TurnKind] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentView:
    """What the collective knows that one agent may see at `time_s`; the environment renders it into words."""

    agent: int
    name: str
    is_ceo: bool
    time_s: float
    limit_s: float
    team: Sequence[str]  # names of the other employed agents, by agent id
    n_hired: int
    max_hires: int
    new_messages: tuple[tuple[str, str], ...]  # (sender's name, text), in order of delivery, shown exactly once
    last: CallResult | None  # the result of this agent's own last call
    seed: int  # of (rollout key, agent, turn): the only source of randomness for rendering
    results: tuple[CallResult, ...] = ()  # of all calls of its last turn, in order

    @property
    def time_left_s(self) -> float:
        return self.limit_s - self.time_s


@dataclass(frozen=True, slots=True)
class Observation:
    """Rendered words and how many of them are information this agent was never shown (charged as prompt tokens)."""

    text: str
    n_new: int


@runtime_checkable
class Environment(Protocol):
    """One attempt at one task. Every call is made by one thread, in order of time, unless `concurrent` is true.

    `begin` is called when the agent has finished speaking, `finish` when the tool time is over; effects and rewards
    land in `finish`. After the deadline neither is called. `earned` may be asked at any moment (anytime return) and is
    the sum of the rewards of every `finish` so far.
    """

    id: str
    concurrent: bool

    def vocabulary(self) -> tuple[str, ...] | None:
        """The closed list of words of every text of this environment; None for open text."""

    def action_format(self) -> ActionFormat: ...

    def tools(self, is_ceo: bool) -> tuple[ToolSpec, ...]:
        """The environment's own tools and those of the collective (dm, post, read, search, wait, hire, fire) it speaks."""

    def agent_name(self, agent: int) -> str:
        """A unique name for the agent with this number."""

    def observe(self, view: AgentView) -> Observation: ...

    def parse(self, agent: int, text: str) -> Call:
        """Strict parsing: whatever is not exactly a call is an INVALID one; never raises on any text."""

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        """Start one of the environment's own calls; returns its tool time in seconds (>= its spec's `min_tool_s`)."""

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult: ...

    def earned(self) -> float: ...

    def done(self) -> bool:
        """Nothing is left to earn: the rollout ends as `solved`."""

    def judge(self, sender: int, text: str) -> Mapping[str, float]:
        """Facts about a message for metrics only, never shown to agents, such as {"true": 1.0}."""

    def corrupt(self, text: str, seed: int) -> str:
        """The same message with its content scrambled: the causal control of evaluations."""


@runtime_checkable
class Described(Protocol):
    """What an environment adds to be played by chat models in open text; without it they read `observe`'s words."""

    def rules(self, is_ceo: bool) -> str:
        """A few lines for the system prompt: what earns a reward, what its tools do."""

    def describe(self, view: AgentView) -> str:
        """The state that this agent sees now; messages and the results of its calls are shown by the harness, not here."""


@runtime_checkable
class Measured(Protocol):
    """What an environment adds so that metrics can hold a rollout against what its task allows."""

    def task_facts(self) -> Mapping[str, float]:
        """Facts about the task for metrics only, asked once, before the rollout begins.

        `total_work_s`: tool seconds of all its work; `critical_path_s`: of the longest chain of work that has to be done
        one after another; `unit_s`: tool seconds of one unit in the fact `units` of a success. All above 0.
        """


@dataclass(slots=True)
class Turn:
    """One agent's turn. A turn cut by the deadline keeps the tokens sampled by then (`cut`), without effect."""

    agent: int
    index: int
    context: int
    observation_ids: Sequence[int]
    action_ids: Sequence[int]
    logprobs: Sequence[float]
    start_s: float
    end_s: float
    kind: TurnKind
    policy_version: int
    tool: str = ""
    code: str = ""
    cut: bool = False
    prompt_tokens: int = 0  # charged by the clock
    tool_s: float = 0.0  # seconds of its calls, waiting included
    derived_s: float = 0.0  # its duration on the derived clock; on that clock end_s - start_s

    @property
    def n_tokens(self) -> int:
        return len(self.action_ids)


@dataclass(slots=True)
class Event:
    """Something that happened at `time_s`; `value` is the reward of REWARD events, truth of MESSAGE ones."""

    time_s: float
    type: EventType
    agent: int
    other: int = -1
    value: float = 0.0
    text: str = ""


@dataclass(slots=True)
class AgentRecord:
    """An agent ever employed: when it was hired, could start, and was fired (None while employed)."""

    id: int
    name: str
    hired_s: float
    started_s: float
    fired_s: float | None = None


@dataclass(slots=True)
class Rollout:
    """One collective's attempt at one task under one limit."""

    key: RolloutKey
    task_id: str
    limit_s: float
    seed: int
    agents: list[AgentRecord] = field(default_factory=list)
    trajectories: dict[int, list[Turn]] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    stop_reason: StopReason = StopReason.FAILED
    end_s: float = 0.0
    attempt: int = 0
    error: str = ""

    def return_at(self, limit_s: float) -> float:
        """Sum of the rewards stamped at or before `limit_s` seconds."""
        return float(sum(e.value for e in self.events if e.type is EventType.REWARD and e.time_s <= limit_s))

    @property
    def return_(self) -> float:
        return self.return_at(self.limit_s)

    @property
    def n_hires(self) -> int:
        return len(self.agents) - 1

    def turns(self) -> list[Turn]:
        """All turns of all agents, by (agent, index)."""
        return [turn for agent in sorted(self.trajectories) for turn in self.trajectories[agent]]


class Terms(NamedTuple):
    """What clock and collective allow: the least seconds of everything, for scripted players and analytic bounds.

    A call of tool t takes `overhead_s` + `tokens[t]` * `token_s` and its tool time at least; no turn can beat that.
    """

    overhead_s: float
    token_s: float
    tokens: Mapping[str, int]  # tool -> the fewest tokens of a call
    hire_s: float
    onboarding_s: float
    wait_s: float
    max_hires: int
    staff: int

    def spoken_s(self, tool: str) -> float:
        """Seconds from the start of a turn until a call of this tool is spoken, at least."""
        return self.overhead_s + self.tokens[tool] * self.token_s


class Scene(NamedTuple):
    """What a scripted player knows when a turn starts: all that the agent sees, and the environment itself."""

    view: AgentView
    text: str  # the agent's observation
    environment: Environment


class Player(Protocol):
    """Plays every agent of one rollout by rule. One object per rollout; called in order of time."""

    def act(self, scene: Scene) -> str:
        """The agent's action, in the environment's words."""

    def began(self, agent: int, call: Call, end_s: float) -> None:
        """One of the environment's own calls has begun and will end at `end_s`."""


class SampleRequest(NamedTuple):
    """Tokens to append to one agent's context and sample from.

    `cache_key` names the context whose key-value cache may survive; `new_context` empties it first.
    """

    cache_key: tuple[int, int]
    new_ids: Sequence[int]
    new_context: bool
    seed: int
    max_tokens: int


class Sample(NamedTuple):
    """Sampled ids with the logprobs of the distribution sampled from, and the weights' version."""

    ids: list[int]
    logprobs: list[float]
    version: int


class Engine(Protocol):
    """Samples actions; `sync` makes a published version the current one, and empties every cache."""

    version: int

    def sample(self, requests: Sequence[SampleRequest]) -> list[Sample]: ...

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        """Forget the contexts of these agents."""

    def close(self) -> None: ...
