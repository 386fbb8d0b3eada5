"""The deadline-bounded rollout loop on the derived clock, batched over agents and rollouts by conservative lookahead.

Each rollout is a discrete-event simulation. A turn has three moments: START (the agent sees what was stamped at or
before it), CALL (it has spoken; the tool begins) and END (the effect lands). Within one rollout all starts before
`first start + shortest turn` are sampled in one batch, because no turn of that batch can have an effect before then;
different rollouts never influence each other. Order at equal times: ends, calls, starts; then the agent's number.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

from rlcr_core.clock import COLLECTIVE_TOOLS, LatencyModel, tick
from rlcr_core.collective import Collective
from rlcr_core.config import Params
from rlcr_core.errors import EngineFault, EnvironmentFault, RLCRError
from rlcr_core.facts import event_text
from rlcr_core.harness import make_harness
from rlcr_core.seeds import derive, rollout_seed, turn_seed
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import (
    CEO,
    AgentView,
    Call,
    CallResult,
    Engine,
    Environment,
    Event,
    EventType,
    Measured,
    Rollout,
    RolloutKey,
    Sample,
    SampleRequest,
    StopReason,
    Task,
    Turn,
    TurnKind,
)  # fmt: skip

END, CALL, START = 0, 1, 2  # the order of moments at equal times


@dataclass(frozen=True, slots=True)
class RolloutSpec:
    """A rollout to run: the key gives every seed, the same at each attempt.

    For counterfactual replays: `withheld` messages (by number, in order of sending) reach nobody, and turns that start at
    `reseed_from_s` or later take other seeds, one set for each `salt`.
    """

    key: RolloutKey
    task: Task
    limit_s: float
    attempt: int = 0
    withheld: frozenset[int] = frozenset()
    reseed_from_s: float = math.inf
    salt: int = 0


@dataclass(slots=True)
class _Agent:
    """What the loop keeps for one agent between its turns."""

    turns: list[Turn] = field(default_factory=list)
    results: tuple[CallResult, ...] = ()  # of the last turn's calls
    context: int = -1


@dataclass(slots=True)
class Pending:
    """A turn in flight: its request before sampling, its calls afterwards, and the results of those that have ended."""

    turn: Turn
    prompt_tokens: int
    allowed: int
    busy: int
    calls: tuple[Call, ...] = ()
    results: list[CallResult] = field(default_factory=list)
    waits_since_s: float = 0.0  # while dormant

    @property
    def call(self) -> Call:
        """The call that runs now, or begins next."""
        return self.calls[len(self.results)]


class Simulation:
    """One rollout in progress: `advance` gives the next requests, `accept` takes their samples."""

    def __init__(self, spec: RolloutSpec, environment: Environment, tokenizer: Tokenizer, params: Params, uid: int) -> None:
        self.spec, self.environment, self.params, self.uid = spec, environment, params, uid
        self.seed = rollout_seed(spec.key)
        self.later_seed = derive("reseed", self.seed, spec.salt)  # of turns from spec.reseed_from_s on
        self.rollout = Rollout(spec.key, spec.task.id, spec.limit_s, self.seed, attempt=spec.attempt)
        self.collective = Collective(params.collective, environment, self.seed, spec.withheld)
        self.latency = LatencyModel(params.latency)
        self.harness = make_harness(environment, tokenizer, params)
        tools = {t.name: t for is_ceo in (True, False) for t in self.harness.tools(is_ceo)}
        self.shortest_s = self.latency.shortest_turn_s(tools.values(), params.collective)
        self.agents: list[_Agent] = [_Agent() for _ in self.collective.agents]
        self.flying: dict[int, Pending] = {}
        self.dormant: dict[int, Pending] = {}  # agents that wait for a message (wait_s: null)
        self.heap: list[tuple[float, int, int]] = [(0.0, START, agent) for agent in self.collective.employed]
        self.cutoff_s = spec.limit_s
        self.finished = False
        self._record_task()

    # -- advancing ---------------------------------------------------------------------------------------------------

    def advance(self) -> list[SampleRequest]:
        """Apply everything up to the next turns that can be sampled together; empty when the rollout has ended."""
        requests: list[SampleRequest] = []
        horizon, limit_s, heap = math.inf, self.spec.limit_s, self.heap
        while heap and not self.finished:
            time_s, moment, agent = heap[0]
            if time_s >= horizon or time_s > limit_s:
                break
            heapq.heappop(heap)
            if agent not in self.collective.employed:
                continue
            if moment == START:
                request = self._start(agent, time_s) if time_s < limit_s else None
                if request is not None:
                    requests.append(request)
                    horizon = min(horizon, time_s + self.shortest_s)
            elif moment == CALL:
                self._begin(agent, time_s)
            else:
                self._finish(agent, time_s)
        if not requests and not self.finished:
            self._stop(StopReason.STALLED if self._is_stalled() else StopReason.DEADLINE)
        return requests

    def _is_stalled(self) -> bool:
        return not self.heap and len(self.dormant) == len(self.collective.employed)

    def _start(self, agent: int, time_s: float) -> SampleRequest | None:
        state, collective = self.agents[agent], self.collective
        index = len(state.turns)
        seed = turn_seed(self.seed if time_s < self.spec.reseed_from_s else self.later_seed, agent, index)
        employed = collective.employed
        view = AgentView(
            agent, employed[agent], agent == CEO, time_s, self.spec.limit_s,
            collective.others(agent), len(employed) - 1,
            collective.config.max_hires, collective.collect(agent, time_s), state.results[-1] if state.results else None,
            seed, state.results,
        )  # fmt: skip
        prompt = self.harness.prompt(view)
        if prompt.new_context:
            state.context += 1
        busy = len(employed) - len(self.dormant)
        allowed = min(
            self.latency.tokens_by(self.spec.limit_s, time_s, prompt.charged, busy), self.harness.max_tokens
        )
        if allowed == 0:
            return None  # the clock allows no token of this turn
        turn = Turn(
            agent, index, state.context, prompt.ids, (), (), time_s, time_s, TurnKind.INVALID, -1, "", "", False, prompt.charged
        )
        self.flying[agent] = Pending(turn, prompt.charged, allowed, busy)
        return SampleRequest((self.uid, agent), prompt.ids, prompt.new_context, seed, allowed)

    def accept(self, samples: Sequence[tuple[int, Sample]]) -> None:
        """Take (agent, sample) for every request of the last `advance`."""
        for agent, sample in samples:
            pending = self.flying[agent]
            turn, n = pending.turn, len(sample.ids)
            if n == 0 or n != len(sample.logprobs):
                raise EngineFault(f"agent {agent} turn {turn.index}: got {n} ids and {len(sample.logprobs)} logprobs")
            turn.action_ids, turn.logprobs, turn.policy_version = sample.ids, sample.logprobs, sample.version
            pending.calls, turn.kind, turn.tool = self.harness.read(agent, sample.ids, pending.allowed)
            if pending.calls:
                heapq.heappush(self.heap, (self._spoken_s(pending), CALL, agent))
        if self.finished:
            self._close()

    def _spoken_s(self, pending: Pending) -> float:
        turn = pending.turn
        return self.latency.spoken_s(turn.start_s, pending.prompt_tokens, turn.n_tokens, pending.busy)

    # -- moments of a turn -------------------------------------------------------------------------------------------

    def _begin(self, agent: int, time_s: float) -> None:
        call = self.flying[agent].call
        if call.kind is TurnKind.INVALID:
            duration_s = self.params.collective.error_s
        elif call.tool in COLLECTIVE_TOOLS:
            duration_s = self.collective.begin(agent, call)
            if math.isinf(duration_s):
                if not self.collective.has_mail(agent):
                    self.dormant[agent] = self.flying[agent]
                    self.dormant[agent].waits_since_s = time_s
                    return
                duration_s = 0.0
        else:
            duration_s = self.environment.begin(agent, call, time_s)
        heapq.heappush(self.heap, (tick(time_s + duration_s), END, agent))

    def _finish(self, agent: int, time_s: float) -> None:
        pending = self.flying[agent]
        call = pending.call
        if call.kind is TurnKind.INVALID:
            result = CallResult(False, "invalid")
        elif call.tool in COLLECTIVE_TOOLS:
            result = self.collective.finish(agent, call, time_s)
            self._after_collective_call(call, result)
        else:
            result = self.environment.finish(agent, call, time_s)
            self._record_work(agent, result, time_s)
        pending.results.append(result)
        is_solved = call.kind is TurnKind.WORK and self.environment.done()
        if len(pending.results) < len(pending.calls) and not is_solved:
            heapq.heappush(self.heap, (time_s, CALL, agent))
        else:
            self._end_turn(agent, time_s)
        if is_solved:
            self._stop(StopReason.SOLVED, time_s)

    def _end_turn(self, agent: int, time_s: float) -> None:
        pending, state = self.flying.pop(agent), self.agents[agent]
        turn, state.results = pending.turn, tuple(pending.results)
        turn.end_s, turn.code = time_s, "+".join(result.code for result in state.results)
        turn.derived_s, turn.tool_s = tick(time_s - turn.start_s), tick(time_s - self._spoken_s(pending))
        state.turns.append(turn)
        heapq.heappush(self.heap, (time_s, START, agent))

    def _record_work(self, agent: int, result: CallResult, time_s: float) -> None:
        facts = result.info if result.uses is None else {**result.info, "uses": len(result.uses)}
        self.rollout.events.append(Event(time_s, EventType.WORK, agent, -1, result.reward, event_text(result.code, facts)))
        self.rollout.events += [Event(time_s, EventType.USE, agent, text=text) for text in result.uses or ()]
        if result.reward:
            self.rollout.events.append(Event(time_s, EventType.REWARD, agent, -1, result.reward))

    def _record_task(self) -> None:
        """The environment's optional side; asked by attribute, so that a wrapper that passes attributes on has it too."""
        task_facts = getattr(self.environment, "task_facts", None)
        if callable(task_facts):
            text = event_text("task", cast(Measured, self.environment).task_facts())
            self.rollout.events.append(Event(0.0, EventType.TASK, -1, text=text))

    def _after_collective_call(self, call: Call, result: CallResult) -> None:
        """Start a new hire, cut a fired agent's turn in flight, wake those who wait for a message."""
        if not result.ok:
            return
        if call.tool == "hire":
            record = self.collective.agents[-1]
            self.agents.append(_Agent())
            heapq.heappush(self.heap, (tick(record.started_s), START, record.id))
        elif call.tool == "fire":
            fired = self.collective.agents[self.collective.number(call.args[0])]
            assert fired.fired_s is not None
            self._cut(fired.id, fired.fired_s)
        if self.dormant and call.tool in ("dm", "post", "hire"):
            now_s = self.collective.archive[-1].time_s if self.collective.archive else 0.0
            for agent in [a for a in sorted(self.dormant) if self.collective.has_mail(a)]:
                del self.dormant[agent]
                heapq.heappush(self.heap, (now_s, END, agent))

    # -- ending ------------------------------------------------------------------------------------------------------

    def _cut(self, agent: int, time_s: float) -> None:
        """Void a turn in flight at `time_s`: the tokens that the clock allowed by then stay, the effect never happens."""
        pending = self.flying.get(agent)
        if pending is None or not pending.turn.action_ids:
            return  # not sampled yet: `_close` cuts it once it is
        del self.flying[agent]
        self.dormant.pop(agent, None)
        turn = pending.turn
        kept = self.latency.tokens_by(time_s, turn.start_s, pending.prompt_tokens, pending.busy)
        if kept:
            if kept >= turn.n_tokens and pending.calls:
                turn.tool_s = max(0.0, tick(time_s - self._spoken_s(pending)))
            turn.action_ids, turn.logprobs = turn.action_ids[:kept], turn.logprobs[:kept]
            turn.end_s, turn.cut, turn.derived_s = time_s, True, tick(time_s - turn.start_s)
            self.agents[agent].turns.append(turn)

    def _stop(self, reason: StopReason, time_s: float | None = None) -> None:
        self.finished = True
        self.rollout.stop_reason = reason
        if reason is StopReason.STALLED:
            time_s = max(pending.waits_since_s for pending in self.dormant.values())
        self.cutoff_s = self.spec.limit_s if time_s is None else time_s
        self._close()

    def _close(self) -> None:
        """Cut what is in flight; the rollout is complete once every requested turn has its sample."""
        records = self.collective.agents
        for agent in sorted(self.flying):
            fired_s = records[agent].fired_s
            self._cut(agent, self.cutoff_s if fired_s is None else fired_s)
        rollout = self.rollout
        rollout.end_s = self.cutoff_s
        rollout.agents = records
        rollout.trajectories = {agent: state.turns for agent, state in enumerate(self.agents)}

    def result(self) -> Rollout:
        """The finished rollout, its events in order of time."""
        events = [*self.rollout.events, *self.collective.events]
        self.rollout.events = sorted((e for e in events if e.time_s <= self.cutoff_s), key=lambda e: e.time_s)
        return self.rollout

    def fail(self, error: BaseException) -> None:
        """End as `failed`; what happened so far stays readable."""
        self.finished = True
        self._close()
        self.rollout.stop_reason = StopReason.FAILED
        self.rollout.error = f"{type(error).__name__}: {error}"


def run_rollouts(
    specs: Sequence[RolloutSpec],
    make_environment: Callable[[Task], Environment],
    engine: Engine,
    tokenizer: Tokenizer,
    params: Params,
    should_stop: Callable[[], bool] | None = None,
) -> list[Rollout]:
    """Run every rollout to its end, together. One rollout's fault makes that one `failed`; the others go on.

    `should_stop` is asked before each batch: when true, whatever is unfinished comes back as `failed`.
    """
    done: dict[int, Rollout] = {}
    active: dict[int, Simulation] = {}
    for uid, spec in enumerate(specs):
        try:
            environment = make_environment(spec.task)
            active[uid] = Simulation(spec, environment, tokenizer, params, uid)
        except Exception as error:
            done[uid] = stillborn(spec, error)
    while active:
        if should_stop is not None and should_stop():
            for simulation in active.values():
                simulation.fail(EngineFault("cut by the worker's own deadline; raise rollouts.worker_timeout_s"))
        else:
            _step(active, engine)
        for uid in [u for u, s in active.items() if s.finished]:
            simulation = active.pop(uid)
            done[uid] = simulation.result()
            engine.release([(uid, agent) for agent in range(len(simulation.agents))])
    return [done[uid] for uid in range(len(specs))]


def stillborn(spec: RolloutSpec, error: Exception) -> Rollout:
    return Rollout(
        spec.key, spec.task.id, spec.limit_s, rollout_seed(spec.key), attempt=spec.attempt,
        error=f"{type(error).__name__}: {error}",
    )  # fmt: skip


def _step(active: dict[int, Simulation], engine: Engine) -> None:
    """Advance every rollout once and sample all their requests in one batch."""
    requests: list[SampleRequest] = []
    owners: list[Simulation] = []
    for simulation in active.values():
        try:
            wanted = simulation.advance()
        except Exception as error:  # the environment's fault, or a bug in it: this rollout alone fails
            simulation.fail(error if isinstance(error, RLCRError) else EnvironmentFault(repr(error)))
            continue
        requests.extend(wanted)
        owners.extend([simulation] * len(wanted))
    if not requests:
        return
    try:
        samples = engine.sample(requests)
    except Exception as error:
        for simulation in set(owners):
            simulation.fail(error if isinstance(error, RLCRError) else EngineFault(repr(error)))
        return
    batches: dict[int, list[tuple[int, Sample]]] = {}
    for simulation, request, sample in zip(owners, requests, samples, strict=True):
        batches.setdefault(simulation.uid, []).append((request.cache_key[1], sample))
    for uid, batch in batches.items():
        try:
            active[uid].accept(batch)
        except Exception as error:
            active[uid].fail(error if isinstance(error, RLCRError) else EnvironmentFault(repr(error)))
