"""The moments of a rollout on the wall clock: the derived clock's own rules, stamped with real time.

A `WallSimulation` is a `Simulation` that is told when things happen instead of computing it. START, CALL and END of turns
are plain calls, made one at a time in order of time by the rollout's lane; what else they set off (agents hired, woken,
dismissed) is left in `news` for the tasks of rlcr_core.wall. An effect is stamped when the environment has made it, in the
thread that made it, and counts if that stamp is at or before the limit, however late anybody looks at it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from rlcr_core.clock import COLLECTIVE_TOOLS, LatencyModel, tick
from rlcr_core.config import Params
from rlcr_core.errors import EngineFault, EnvironmentFault
from rlcr_core.rollout import END, START, Pending, RolloutSpec, Simulation
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import Call, CallResult, Environment, Rollout, Sample, SampleRequest, StopReason, TurnKind

Heard = tuple[Sample, float]  # a sample and when it came, in seconds of the rollout


class _Unbounded(LatencyModel):
    """On real time the clock itself cuts; no number of tokens is known beforehand."""

    def tokens_by(self, limit_s: float, start_s: float, prompt_tokens: int, busy: int = 1) -> int:
        return sys.maxsize


class _Answered:
    """The environment as the simulation sees it: `begin` and `finish` were called already, their answers lie ready."""

    def __init__(self, environment: Environment, answers: dict[int, Any], landing: set[int]) -> None:
        self._environment, self._answers, self._landing = environment, answers, landing

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        return cast(float, self._answers.pop(agent))

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        return cast(CallResult, self._answers.pop(agent))

    def done(self) -> bool:
        """Not before every effect that the environment has made, or is making, has landed: none of them is lost."""
        return not self._landing and self._environment.done()


@dataclass(slots=True)
class News:
    """What a moment set off for others: hires with the time of their first turn, the woken, the dismissed."""

    hired: list[tuple[int, float]] = field(default_factory=list)
    woken: list[int] = field(default_factory=list)
    dismissed: list[int] = field(default_factory=list)


class WallSimulation(Simulation):
    """One rollout on real time. `now` gives seconds since its start; every method but `ask_*` is called on one lane."""

    def __init__(
        self,
        spec: RolloutSpec,
        environment: Environment,
        tokenizer: Tokenizer,
        params: Params,
        uid: int,
        now: Callable[[], float],
    ) -> None:
        super().__init__(spec, environment, tokenizer, params, uid)
        self.now = now
        self.concurrent = environment.concurrent
        self.model, self.latency = self.latency, _Unbounded(params.latency)
        self._real = environment
        self._answers: dict[int, Any] = {}
        self._stamps: dict[int, float] = {}  # of those answers
        self._landing: set[int] = set()  # agents whose call the environment is ending
        self._landed_last_s = 0.0
        self.environment = cast(Environment, _Answered(environment, self._answers, self._landing))
        self._spoken: dict[int, float] = {}  # agent -> when its last tokens came
        self._tool_s: dict[int, float] = {}  # agent -> tool time of its turn as the derived clock would have it
        self._asleep_s: dict[int, float] = {}  # agent -> since when it waits without end
        self.heap.clear()  # from here on an outbox: what a moment sets off

    # -- moments -----------------------------------------------------------------------------------------------------

    def start(self, agent: int) -> SampleRequest | None:
        """START: what the agent sees now, as a request; None when it has no more turns."""
        time_s = self.now()
        if time_s >= self.spec.limit_s or self._is_void(agent, time_s):
            return None
        return self._start(agent, time_s)

    def hear(self, agent: int, sample: Sample, spoken_s: float, cut: bool = False) -> bool:
        """CALL: what the agent said; whether a call of it begins. `cut`: the engine was told to stop."""
        cut = cut or self._is_void(agent, spoken_s)
        pending, n = self.flying[agent], len(sample.ids)
        if cut and n == len(sample.logprobs) == 0:
            del self.flying[agent]  # nothing of this turn was sampled
            return False
        if cut:
            pending.allowed = n
        self._spoken[agent] = spoken_s
        self.accept([(agent, sample)])
        self.heap.clear()
        if cut:
            fired_s = self.collective.agents[agent].fired_s
            if fired_s is not None:
                self._cut(agent, fired_s)
            return False
        if not pending.calls:
            raise EngineFault(f"agent {agent} turn {pending.turn.index}: the engine ended in mid-call, after {n} tokens")
        return True

    def ask_begin(self, agent: int) -> None:
        """Ask the environment for the tool time of the agent's call, if it is the environment's to give."""
        time_s, call = self.now(), self._own_call(agent)
        if call is None or self._is_void(agent, time_s):
            return
        duration_s = self._real.begin(agent, call, time_s)
        if not (math.isfinite(duration_s) and duration_s >= 0):
            raise EnvironmentFault(f"{call} takes {duration_s} s, expected finite seconds >= 0; correct the environment's begin")
        self._answers[agent], self._stamps[agent] = duration_s, time_s

    def begin(self, agent: int) -> float | None:
        """The call begins: when it will end, infinity for a wait without end; None when it never will."""
        time_s = self._landed_s(agent)
        if time_s is None:
            return None
        self._begin(agent, time_s)
        if agent in self.dormant:
            self._asleep_s[agent] = time_s
            if len(self.dormant) == len(self.collective.employed):
                self._stall(time_s)
            return math.inf
        ((end_s, _, _),) = self.heap
        self.heap.clear()
        self._tool_s[agent] = self._tool_s.get(agent, 0.0) + end_s - time_s
        return end_s

    def ask_finish(self, agent: int) -> None:
        """Let the environment end the agent's call; the effect is stamped when that has happened."""
        time_s, call = self.now(), self._own_call(agent)
        if call is None or self._is_void(agent, time_s):
            return
        self._landing.add(agent)
        self._answers[agent] = self._real.finish(agent, call, time_s)
        self._stamps[agent] = self.now()

    def finish(self, agent: int) -> tuple[bool, News]:
        """END: the effect lands. Whether a next call of the turn begins, and what this one set off."""
        time_s, news = self._landed_s(agent), News()
        self._landing.discard(agent)
        if time_s is None:
            return False, news
        time_s = self._landed_last_s = max(time_s, self._landed_last_s)  # those of a concurrent environment may cross
        if agent in self._asleep_s:
            self._tool_s[agent] = self._tool_s.get(agent, 0.0) + time_s - self._asleep_s.pop(agent)
        before = set(self.collective.employed)
        self._finish(agent, time_s)
        for due_s, moment, other in self.heap:
            if other != agent and moment == START:
                news.hired.append((other, due_s))
            elif other != agent and moment == END:
                news.woken.append(other)
        self.heap.clear()
        news.dismissed = sorted(before - set(self.collective.employed))
        return agent in self.flying and not self.finished, news

    def close(self, heard: Mapping[int, Heard], error: Exception | None = None) -> Rollout:
        """The end: cut what is in flight, with the tokens that engines gave back; `failed` with an error."""
        for agent, (sample, spoken_s) in sorted(heard.items()):
            if agent in self.flying:
                self.hear(agent, sample, spoken_s, cut=True)
        if error is not None:
            self.cutoff_s = min(self.cutoff_s, self.now())
            self.fail(error)
        elif not self.finished:
            self._stop(StopReason.DEADLINE)
        return self.result()

    def abandoned(self, error: Exception) -> Rollout:
        """A `failed` rollout made without the lane, which hangs: a copy that nothing can change when the call comes back."""
        rollout = replace(
            self.rollout, stop_reason=StopReason.FAILED, error=f"{type(error).__name__}: {error}", end_s=self.spec.limit_s
        )
        rollout.agents = [replace(record) for record in list(self.collective.agents)]
        rollout.trajectories = {a: [replace(turn) for turn in list(state.turns)] for a, state in enumerate(list(self.agents))}
        events = [*self.rollout.events, *self.collective.events]
        rollout.events = sorted((replace(e) for e in events), key=lambda event: event.time_s)
        return rollout

    # -- what differs from the derived clock -------------------------------------------------------------------------

    def _is_void(self, agent: int, time_s: float) -> bool:
        """Whether nothing of this agent has an effect any more."""
        return self.finished or agent not in self.collective.employed or time_s > self.spec.limit_s

    def _own_call(self, agent: int) -> Call | None:
        """The agent's running call if it is the environment's own."""
        pending = self.flying.get(agent)
        if pending is None or pending.call.kind is TurnKind.INVALID or pending.call.tool in COLLECTIVE_TOOLS:
            return None
        return pending.call

    def _landed_s(self, agent: int) -> float | None:
        """When the moment that is due happened: as the environment stamped it, or now. None when it never will."""
        stamp_s = self._stamps.pop(agent, None)
        time_s = self.now() if stamp_s is None else stamp_s
        if self._is_void(agent, time_s) or (stamp_s is None and self._own_call(agent) is not None):
            return None
        return time_s

    def _stall(self, time_s: float) -> None:
        """Everybody waits for a message that cannot come."""
        self.finished, self.cutoff_s = True, time_s
        self.rollout.stop_reason = StopReason.STALLED
        self._close()

    def _spoken_s(self, pending: Pending) -> float:
        return self._spoken[pending.turn.agent]

    def _model_s(self, pending: Pending) -> float:
        """What the derived clock says that reading the prompt and speaking take."""
        return self.model.spoken_s(0.0, pending.prompt_tokens, pending.turn.n_tokens, pending.busy)

    def _end_turn(self, agent: int, time_s: float) -> None:
        pending = self.flying[agent]
        super()._end_turn(agent, time_s)
        pending.turn.derived_s = tick(self._model_s(pending) + self._tool_s.pop(agent, 0.0))

    def _cut(self, agent: int, time_s: float) -> None:
        pending = self.flying.get(agent)
        super()._cut(agent, time_s)
        if pending is not None and pending.turn.cut:
            pending.turn.derived_s = tick(self._model_s(pending) + pending.turn.tool_s)
