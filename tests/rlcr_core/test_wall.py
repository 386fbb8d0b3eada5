"""The wall clock on virtual time: the derived clock's rules, and that nothing an engine or an environment does costs more.

Scripted players speak at the latency model's pace, so on virtual time every moment falls where the derived clock has it and
expected times are those of the same scripts by hand: 1 s a turn, 10 prompt and 1 sampled tokens a second, free tools.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.clock import LatencyModel
from rlcr_core.config import Params
from rlcr_core.engines.asynchronous import PacedPlayers
from rlcr_core.engines.base import AsyncEngine
from rlcr_core.lanes import InlineLane, Lane, ThreadLane
from rlcr_core.ledger import ledger
from rlcr_core.players import Play, PlayerEngine
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.types import (
    AgentView,
    Call,
    CallResult,
    EventType,
    Observation,
    Rollout,
    RolloutKey,
    Sample,
    SampleRequest,
    StopReason,
    Task,
    TurnKind,
)  # fmt: skip
from rlcr_core.virtual_time import VirtualLoop
from rlcr_core.wall import Machinery, run_wall_rollouts
from tests.rlcr_core.toy import NAMES, TASK, TOKENIZER, Toy, toy_params

VIRTUAL = Machinery(VirtualLoop, InlineLane)
GRACE_S = 19.9  # rollouts.grace_s of the checked-in parameters is 20 s, of which 0.1 s is kept for giving up
VERBS = ["dig 1 .", "dig 3 .", "post key red .", "dm ann key blue .", "dm chief key 7 .", "wait .", "hire .", "fire ann .",
         "read all .", "search key .", "wait wait wait wait wait wait wait wait"]  # fmt: skip


def wall_params(**sections: dict[str, Any]) -> Params:
    """Transcripts, where every word of an observation is charged: what the paced players are asked is what they charge."""
    return toy_params(context={"mode": "transcript", "max_tokens": 4000}, **sections)


def spec(number: int = 0, limit_s: float = 20.0, task: Task = TASK) -> RolloutSpec:
    return RolloutSpec(RolloutKey("wall", 0, number // 4, number), task, limit_s)


def scripted(scripts: Mapping[str, Sequence[str]]) -> Play:
    """Lines by agent's name, in every rollout the same; an agent without lines left waits."""
    lines: dict[tuple[int, int], Any] = {}

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        if key not in lines:
            lines[key] = iter(scripts.get(NAMES[key[1]], ()))
        return next(lines[key], "wait .")

    return speak


def wall(
    specs: Sequence[RolloutSpec],
    play: Play,
    make: Callable[[Task], Any] = Toy,
    params: Params | None = None,
    engine: AsyncEngine | None = None,
    machinery: Machinery = VIRTUAL,
) -> tuple[list[Rollout], list[float]]:
    """The rollouts, and when each was over."""
    params = params or wall_params()
    over: dict[int, float] = {}
    rollouts = run_wall_rollouts(
        specs, make, engine or PacedPlayers(play, TOKENIZER, LatencyModel(params.latency)), TOKENIZER, params,
        lambda rollout, over_s: over.update({rollout.key.rollout: over_s}), machinery,
    )  # fmt: skip
    assert [rollout.key for rollout in rollouts] == [s.key for s in specs]  # each exactly once, in order
    return rollouts, [over[s.key.rollout] for s in specs]


def one(
    scripts: Mapping[str, Sequence[str]], limit_s: float = 20.0, params: Params | None = None, goal: int = 10**9
) -> tuple[Rollout, Toy, float]:
    environment = Toy(TASK, goal)
    (rollout,), (over_s,) = wall([spec(limit_s=limit_s)], scripted(scripts), lambda task: environment, params)
    return rollout, environment, over_s


def times(rollout: Rollout) -> dict[tuple[int, int], tuple[float, float, int, bool]]:
    return {(t.agent, t.index): (t.start_s, t.end_s, t.n_tokens, t.cut) for t in rollout.turns()}


# -- the derived clock's rules ------------------------------------------------------------------------------------------


class Wordy(Toy):
    """Shows agent k 13 k words more than agent 0, more than messages make up for: no two agents' moments fall together."""

    def observe(self, view: AgentView) -> Observation:
        seen = super().observe(view)
        return Observation(" ".join([seen.text, *["all"] * 13 * view.agent]), seen.n_new + 13 * view.agent)


def comparable(rollout: Rollout) -> Rollout:
    """Leave out of a turn cut in mid-speech what only the derived clock knows: how the sentence would have ended.

    Who is woken starts at the same moment as the sender: the order of events of one moment is left out too.
    """
    turns = {
        agent: [
            dataclasses.replace(t, kind=TurnKind.WAIT, tool="", tool_s=0.0, derived_s=0.0)
            if t.cut
            else dataclasses.replace(t, tool_s=round(t.tool_s, 7), derived_s=round(t.derived_s, 7))
            for t in own
        ]
        for agent, own in rollout.trajectories.items()
    }
    return dataclasses.replace(rollout, trajectories=turns, events=sorted(rollout.events, key=str))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.floats(5, 90), st.sampled_from([1.0, None]), st.sampled_from([3, 10**9]))
def test_on_ideal_time_a_rollout_is_the_derived_clock_s(iteration: int, limit_s: float, wait_s: float | None, goal: int) -> None:
    """The same events, turns, stop and end as the simulation; constants without common multiples keep moments apart."""
    latency = {"turn_overhead_s": 1.0371, "prefill_tps": 13.7, "decode_tps": 1.131}
    params = wall_params(latency=latency, collective={"wait_s": wait_s})
    specs = [RolloutSpec(RolloutKey("same", iteration, 0, 0), TASK, limit_s)]

    def babble(observation: str, key: tuple[int, int], seed: int) -> str:
        return VERBS[seed % len(VERBS)]

    def make(task: Task) -> Toy:
        return Wordy(task, goal)

    (derived,) = run_rollouts(specs, make, PlayerEngine(babble, TOKENIZER), TOKENIZER, params)
    (real,), _ = wall(specs, babble, make, params)
    assert comparable(real) == comparable(derived)


def test_three_agents_two_messages_and_a_deadline_in_mid_turn() -> None:
    """The rollout on paper of test_clock, with the observation charged whole (`now`: 1 word, .1 s a turn):

    chief: 0 `hire .` spoken 3.1, ends 4.1 (ann 6.1); 4.1 `hire .` ends 8.2 (bob 10.2); 8.2 `post all key red .` ends 14.3;
           14.3 `dig 3 .` spoken 18.4, would end 21.4: cut at 20
    ann:   6.1 `dig 2 .` spoken 10.2, ends 12.2 -> reward; 12.2 `dm bob key blue .` 5 tokens: ends 18.3;
           18.3 sees `now key red`: 3 words .3 s, first token at 20.6: none by 20, no turn
    bob:   10.2 `dig 4 .` spoken 14.3, ends 18.3 -> reward; 18.3 like ann, and ann's message too
    """
    scripts = {
        "chief": ["hire .", "hire .", "post all key red .", "dig 3 ."],
        "ann": ["dig 2 .", "dm bob key blue ."],
        "bob": ["dig 4 ."],
    }
    rollout, environment, over_s = one(scripts)
    assert times(rollout) == {
        (0, 0): (0.0, 4.1, 2, False),
        (0, 1): (4.1, 8.2, 2, False),
        (0, 2): (8.2, 14.3, 5, False),
        (0, 3): (14.3, 20.0, 3, True),
        (1, 0): (6.1, 12.2, 3, False),
        (1, 1): (12.2, 18.3, 5, False),
        (2, 0): (10.2, 18.3, 3, False),
    }
    assert [(e.time_s, e.agent) for e in rollout.events if e.type is EventType.REWARD] == [(12.2, 1), (18.3, 2)]
    assert {v.agent: v.new_messages for v in environment.views if v.time_s == 18.3}[1] == (("chief", "key red"),)
    assert (rollout.stop_reason, rollout.end_s) == ("deadline", 20.0)
    assert over_s == pytest.approx(20.0, abs=1e-5)


def test_an_observation_holds_what_landed_before_it_and_nothing_later() -> None:
    """chief hires (4.1) and posts `post red .`: spoken and ends 4.1 + 1.1 + 3 = 8.2. ann starts at 6.1 (`wait .`: ends
    6.1 + 1.1 + 2 + 1 = 10.2) and does not see the post; at 10.2 she does, once."""
    rollout, environment, _ = one({"chief": ["hire .", "post red ."]}, limit_s=18.0)
    seen = {v.time_s: v.new_messages for v in environment.views if v.agent == 1}
    # 10.2: `now` (the post has no words beside its channel's), `wait .` again 4.1 s: 14.3
    assert seen == {6.1: (), 10.2: (("chief", ""),), 14.3: ()}
    assert [e.time_s for e in rollout.events if e.type is EventType.DELIVERY] == [10.2]


@pytest.mark.parametrize(("limit_s", "reward", "turn"), [(8.1, 0.1, (0.0, 8.1, 3, False)), (8.0, 0.0, (0.0, 8.0, 3, True))])
def test_a_reward_at_exactly_the_limit_counts_and_a_later_one_does_not(limit_s: float, reward: float, turn: object) -> None:
    # `dig 4 .`: 1 + .1 + 3 + 4 = 8.1
    rollout, environment, _ = one({"chief": ["dig 4 ."]}, limit_s)
    assert rollout.return_ == pytest.approx(reward)
    assert times(rollout)[0, 0] == turn
    assert environment.dug == (1 if reward else 0)  # the environment is not even asked for a void effect


def test_a_turn_cut_while_speaking_keeps_its_tokens_and_logprobs() -> None:
    # tokens of `dig 4 .` come at 2.1, 3.1 and 4.1: two by 3.5
    rollout, _, _ = one({"chief": ["dig 4 ."]}, 3.5)
    (turn,) = rollout.turns()
    assert (turn.n_tokens, len(turn.logprobs), turn.cut, turn.end_s, turn.kind) == (2, 2, True, 3.5, TurnKind.WORK)
    assert list(turn.action_ids) == TOKENIZER.encode("dig 4")
    assert one({"chief": ["dig 4 ."]}, 1.5)[0].turns() == []  # and without a token there is no turn


def test_a_fired_agent_s_turn_in_flight_is_cut() -> None:
    """chief: hire ends 4.1, `fire ann .` 4.1 + 1.1 + 3 + 1 = 9.2. ann: 6.1 `dig 9 .` tokens at 8.2, 9.2 and 10.2: two."""
    rollout, environment, _ = one({"chief": ["hire .", "fire ann ."], "ann": ["dig 9 ."]}, 40.0)
    (turn,) = rollout.trajectories[1]
    assert (turn.n_tokens, turn.cut, turn.end_s) == (2, True, 9.2)
    assert (rollout.agents[1].fired_s, environment.dug) == (9.2, 0)


def test_a_fired_agent_s_tool_never_ends() -> None:
    # ann: 6.1 `dig 2 .` spoken 10.2, would end 12.2; the chief waits (4.1 .. 8.2, a turn of 4.1) and fires: 8.2 + 5.1 = 13.3
    # ann's second `dig 9 .`: 12.2, spoken 16.3. chief fires at 13.3: no token of it but at 14.3, so no second turn
    rollout, environment, _ = one({"chief": ["hire .", "wait .", "fire ann ."], "ann": ["dig 2 .", "dig 9 ."]}, 40.0)
    assert [(t.end_s, t.cut) for t in rollout.trajectories[1]] == [(12.2, False)]
    rollout, environment, _ = one({"chief": ["hire .", "wait .", "fire ann ."], "ann": ["dig 9 ."]}, 40.0)
    # `dig 9 .` spoken 10.2: 3.1 s of the tool by 13.3
    (turn,) = rollout.trajectories[1]
    assert (turn.n_tokens, turn.cut, turn.end_s, round(turn.tool_s, 9), environment.dug) == (3, True, 13.3, 3.1, 0)


def test_solved_ends_at_once_and_cuts_the_others() -> None:
    """chief hires (4.1) and digs twice, `dig 2 .` 6.1 s each: solved at 16.3. ann: 6.1 `dig 9 .`, spoken 10.2: cut."""
    rollout, _, over_s = one({"chief": ["hire .", "dig 2 .", "dig 2 ."], "ann": ["dig 9 ."]}, 60.0, goal=2)
    assert (rollout.stop_reason, rollout.end_s, over_s) == (StopReason.SOLVED, 16.3, 16.3)
    (turn,) = rollout.trajectories[1]
    assert (turn.cut, turn.end_s, turn.n_tokens) == (True, 16.3, 3)


def test_waiting_for_a_message_costs_its_time_once_and_all_waiting_is_stalled() -> None:
    """ann waits: 6.1 .. spoken 9.2. chief's `post all red .`: 4.1 + 1.1 + 4 = 9.2, sent before she sleeps or after: she
    wakes at 9.2. Then she waits again, from 9.2 with `now red`: spoken 12.4; the chief: 9.2 `wait .` spoken 12.3. Stalled."""
    params = wall_params(collective={"wait_s": None})
    rollout, environment, over_s = one({"chief": ["hire .", "post all red ."]}, 30.0, params)
    assert [(t.start_s, t.end_s, t.cut) for t in rollout.trajectories[1]] == [(6.1, 9.2, False), (9.2, 12.4, True)]
    assert [v.new_messages for v in environment.views if v.agent == 1] == [(), (("chief", "red"),)]
    assert (rollout.stop_reason, rollout.end_s, over_s) == (StopReason.STALLED, 12.4, 12.4)


def test_both_clocks_are_in_every_turn() -> None:
    """An engine twice as slow as the model: `dig 2 .` takes 2.2 + 6 + 2 by the wall, 1.1 + 3 + 2 by the model."""
    params = wall_params()
    slow = LatencyModel(params.latency.model_copy(update={"turn_overhead_s": 2.0, "prefill_tps": 5.0, "decode_tps": 0.5}))
    engine = PacedPlayers(scripted({"chief": ["dig 2 ."]}), TOKENIZER, slow)
    (rollout,), _ = wall([spec(limit_s=11.0)], scripted({}), engine=engine)
    turn = rollout.turns()[0]
    assert (turn.prompt_tokens, turn.start_s, turn.end_s, round(turn.tool_s, 9)) == (1, 0.0, 10.2, 2.0)
    assert turn.derived_s == pytest.approx(6.1)


# -- whatever an engine does --------------------------------------------------------------------------------------------


class Faulty(PacedPlayers):
    """Breaks in rollout 1 only, in the way it was told to."""

    def __init__(self, fault: str, params: Params) -> None:
        super().__init__(scripted({"chief": ["dig 2 ."] * 9}), TOKENIZER, LatencyModel(params.latency))
        self.fault, self.released = fault, []  # type: ignore[var-annotated]

    async def generate(self, request: SampleRequest) -> Sample:
        broken = request.cache_key[0] == 1
        if broken and self.fault == "hangs":
            await asyncio.get_running_loop().create_future()
        if broken and self.fault == "hangs and cannot be cancelled":
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    continue
        if broken and self.fault == "dies":
            raise OSError("no such device")
        sample = await super().generate(request)
        if broken and self.fault == "says nothing":
            return Sample([], [], 0)
        if broken and self.fault == "loses a logprob":
            return Sample(sample.ids, sample.logprobs[1:], 0)
        if broken and self.fault == "stops early":
            return Sample(sample.ids[:1], sample.logprobs[:1], 0)
        return sample

    def abort(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        if any(key[0] == 1 for key in cache_keys) and self.fault == "cannot abort":
            raise RuntimeError("abort is not supported")
        super().abort(cache_keys)

    def release(self, cache_keys: Sequence[tuple[int, int]]) -> None:
        self.released += cache_keys
        if any(key[0] == 1 for key in cache_keys) and self.fault == "cannot release":
            raise RuntimeError("unknown context")


@pytest.mark.parametrize(
    ("fault", "words", "over_s"),
    [
        ("hangs", "gave nothing back within 20 s", 7.0 + GRACE_S),
        ("hangs and cannot be cancelled", "gave nothing back within 20 s", 7.0 + GRACE_S),
        ("dies", "no such device", 0.0),
        ("says nothing", "got 0 ids and 0 logprobs", 4.1),
        ("loses a logprob", "got 3 ids and 2 logprobs", 4.1),
        ("stops early", "ended in mid-call, after 1 tokens", 4.1),
        ("cannot abort", "abort is not supported", 10.2),
        ("cannot release", "unknown context", 7.0),
    ],
)
def test_an_engine_s_fault_fails_its_rollout_in_time_and_no_other(fault: str, words: str, over_s: float) -> None:
    """Limit 7: `dig 2 .` ends at 6.1, the next is in mid-speech at 7. Without an abort it is spoken at 10.2."""
    params = wall_params()
    engine = Faulty(fault, params)
    rollouts, over = wall([spec(n, 7.0) for n in range(3)], scripted({}), params=params, engine=engine)
    assert [r.stop_reason for r in rollouts] == [StopReason.DEADLINE, StopReason.FAILED, StopReason.DEADLINE]
    assert rollouts[1].error.startswith("EngineFault") and words in rollouts[1].error
    assert [r.return_ for r in (rollouts[0], rollouts[2])] == [pytest.approx(0.1)] * 2
    assert over[1] == pytest.approx(over_s, abs=1e-5)
    assert over[0] == over[2] == pytest.approx(7.0, abs=1e-5)
    assert {(0, 0), (1, 0), (2, 0)} <= set(engine.released)


def test_a_failed_rollout_keeps_what_was_sampled() -> None:
    """chief hires (4.1); ann breaks the machine at 6.1 + 1.1 + 2 = 9.2, while the chief's `dig 9 .` is in mid-tool."""
    rollout, _, over_s = one({"chief": ["hire .", "dig 9 ."], "ann": ["break ."]}, 40.0)
    assert rollout.stop_reason is StopReason.FAILED and "the machine broke" in rollout.error
    assert [(t.agent, t.n_tokens, t.cut, t.end_s) for t in rollout.turns()] == [
        (0, 2, False, 4.1), (0, 3, True, 9.2), (1, 2, True, 9.2),
    ]  # fmt: skip
    assert (rollout.end_s, over_s) == (9.2, 9.2)


# -- whatever an environment does ---------------------------------------------------------------------------------------


class Hanging(Toy):
    """Hangs in one of its methods until it is let go, in the thread that calls it."""

    def __init__(self, task: Task, where: str, gate: threading.Event) -> None:
        super().__init__(task)
        self.where, self.gate = where, gate

    def _maybe(self, where: str) -> None:
        if where == self.where:
            self.gate.wait()

    def observe(self, view: AgentView) -> Observation:
        self._maybe("observe")
        return super().observe(view)

    def parse(self, agent: int, text: str) -> Call:
        self._maybe("parse")
        return super().parse(agent, text)

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        self._maybe("begin")
        return super().begin(agent, call, time_s)

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        self._maybe("finish")
        return super().finish(agent, call, time_s)

    def agent_name(self, agent: int) -> str:
        if agent == 1:
            self._maybe("agent_name")
        return super().agent_name(agent)


FAST: dict[str, Any] = {
    "latency": {"turn_overhead_s": 0.01, "prefill_tps": 1000.0, "decode_tps": 1000.0},
    "collective": {"hire_s": 0.01, "onboarding_s": 0.01, "wait_s": 0.01},
    "rollouts": {"grace_s": 1.0},
}


@pytest.mark.parametrize("where", ["make", "observe", "parse", "begin", "finish", "agent_name"])
def test_an_environment_call_that_never_returns_fails_its_rollout_and_no_other(where: str) -> None:
    """On real time: the hung thread is left behind; the other rollouts reach their limit."""
    gate = threading.Event()

    def make(task: Task) -> Toy:
        if task.id == TASK.id:
            return Toy(task)
        if where == "make":
            gate.wait()
        return Hanging(task, where, gate)

    odd = dataclasses.replace(TASK, id="odd")
    specs = [spec(n, 0.3, odd if n == 1 else TASK) for n in range(3)]
    try:
        rollouts, _ = wall(specs, scripted({"chief": ["dig 0 .", "hire ."]}), make, wall_params(**FAST), machinery=Machinery())
        assert [r.stop_reason for r in rollouts] == [StopReason.DEADLINE, StopReason.FAILED, StopReason.DEADLINE]
        assert rollouts[1].error.startswith("EnvironmentFault") and "raise rollouts.grace_s" in rollouts[1].error
        before = repr(rollouts[1])
    finally:
        gate.set()
    for thread in threading.enumerate():
        if thread.name.startswith("rollout"):
            thread.join(10.0)
    assert repr(rollouts[1]) == before  # the call came back, and changed nothing any more


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_an_impossible_tool_time_is_refused(seconds: float) -> None:
    class Odd(Toy):
        def begin(self, agent: int, call: Call, time_s: float) -> float:
            return seconds

    (rollout,), _ = wall([spec()], scripted({"chief": ["dig 2 ."]}), Odd)
    assert rollout.stop_reason is StopReason.FAILED and "expected finite seconds >= 0" in rollout.error


@pytest.mark.parametrize("error", [StopIteration(), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), TimeoutError()])
def test_no_error_of_an_environment_ends_more_than_its_rollout(error: BaseException) -> None:
    class Odd(Toy):
        def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
            raise error

    for machinery in (VIRTUAL, Machinery()):
        specs = [spec(n, 0.3, dataclasses.replace(TASK, id="odd") if n else TASK) for n in range(2)]
        play, params = scripted({"chief": ["dig 0 ."]}), wall_params(**FAST)
        rollouts, _ = wall(specs, play, lambda task: Odd(task) if task.id == "odd" else Toy(task), params, machinery=machinery)
        assert [r.stop_reason for r in rollouts] == [StopReason.DEADLINE, StopReason.FAILED]
        assert type(error).__name__ in rollouts[1].error


def test_an_environment_that_cannot_be_made_fails_alone_with_its_own_words() -> None:
    def make(task: Task) -> Toy:
        raise TimeoutError("the data base does not answer")

    (rollout,), _ = wall([spec()], scripted({}), make)
    assert rollout.stop_reason is StopReason.FAILED and "the data base does not answer" in rollout.error


class Watched(Toy):
    """Writes down which calls run, in which thread, and how many at once."""

    def __init__(self, task: Task, concurrent: bool) -> None:
        super().__init__(task)
        self.concurrent = concurrent
        self.log: list[tuple[str, str, float]] = []
        self.running = self.most = 0
        self.lock = threading.Lock()
        self.both = threading.Barrier(2)

    def _call(self, what: str, time_s: float) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        self.log.append((what, threading.current_thread().name, time_s))
        if self.concurrent and what == "finish":
            self.both.wait(10.0)  # comes back only when two finishes run at once
        with self.lock:
            self.running -= 1

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        self._call("begin", time_s)
        return super().begin(agent, call, time_s)

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        self._call("finish", time_s)
        return super().finish(agent, call, time_s)

    def observe(self, view: AgentView) -> Observation:
        self._call("observe", view.time_s)
        return super().observe(view)


def test_an_environment_is_called_by_one_thread_in_order_of_time() -> None:
    environment = Watched(TASK, concurrent=False)
    play = scripted({"chief": ["hire .", "hire ."], "ann": ["dig 0 ."] * 50, "bob": ["dig 0 ."] * 50})
    (rollout,), _ = wall([spec(limit_s=0.5)], play, lambda task: environment, wall_params(**FAST), machinery=Machinery())
    assert rollout.stop_reason is StopReason.DEADLINE and len(rollout.agents) == 3
    assert {thread for _, thread, _ in environment.log} == {"rollout 0"}
    assert environment.most == 1
    called = [time_s for _, _, time_s in environment.log]
    assert called == sorted(called)
    for turns in rollout.trajectories.values():
        assert all(a.end_s <= b.start_s for a, b in pairwise(turns))


def test_a_concurrent_environment_s_calls_run_side_by_side() -> None:
    """Each finish waits for another one: with one thread the first would never come back. Both rewards land before `solved`,
    although the environment is done as soon as the first of them is looked at."""
    environment = Watched(TASK, concurrent=True)
    play = scripted({"chief": ["hire .", "dig 0 ."], "ann": ["dig 0 ."]})
    params = wall_params(**(FAST | {"rollouts": {"grace_s": 30.0}}))
    (rollout,), _ = wall([spec(limit_s=30.0)], play, lambda t: _goal(environment, 2), params, machinery=Machinery())
    assert rollout.stop_reason is StopReason.SOLVED, rollout.error
    assert rollout.return_ == pytest.approx(0.2)


def _goal(environment: Watched, goal: int) -> Watched:
    environment.goal = goal
    return environment


# -- many ---------------------------------------------------------------------------------------------------------------


def test_no_rollout_is_lost_and_the_ledger_adds_up() -> None:
    """20 rollouts of three kinds: 0 mod 3 sound, 1 mod 3 raise, 2 mod 3 hang in the engine."""
    params = wall_params()

    class Mixed(PacedPlayers):
        async def generate(self, request: SampleRequest) -> Sample:
            if request.cache_key[0] % 3 == 2:
                await asyncio.get_running_loop().create_future()
            return await super().generate(request)

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        return "break ." if key[0] % 3 == 1 else "dig 2 ."

    engine = Mixed(speak, TOKENIZER, LatencyModel(params.latency))
    rollouts, over = wall([spec(n, 12.5) for n in range(20)], speak, params=params, engine=engine)
    excluded = {(r.key.group, r.key.rollout): "failed" for r in rollouts if r.stop_reason is StopReason.FAILED}
    account = ledger(rollouts, excluded)
    assert (account["dispatched"], account["trained"], account["excluded"]) == (20, 7, {"failed": 13})
    assert max(over) <= 12.5 + GRACE_S + 1e-5


def test_lanes_close_with_their_rollouts() -> None:
    made: list[Lane] = []

    def make_lane(name: str) -> Lane:
        made.append(ThreadLane(name))
        return made[-1]

    play = scripted({"chief": ["dig 0 ."] * 9})
    wall([spec(n, 0.2) for n in range(4)], play, params=wall_params(**FAST), machinery=Machinery(make_lane=make_lane))
    assert len(made) == 4
    for lane in made:
        assert isinstance(lane, ThreadLane) and lane._thread is not None
        lane._thread.join(10.0)
        assert not lane._thread.is_alive()


def test_virtual_time_reports_a_lost_wake_up() -> None:
    loop = VirtualLoop()
    try:
        with pytest.raises(RuntimeError, match="no timer will ever wake one"):
            loop.run_until_complete(loop.create_future())
    finally:
        loop.close()
