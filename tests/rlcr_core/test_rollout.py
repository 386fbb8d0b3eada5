"""The loop: faults stay with their rollout, lookahead changes nothing, contexts grow or start anew, seeds come from keys."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.errors import EngineFault
from rlcr_core.players import PlayerEngine
from rlcr_core.rollout import RolloutSpec, Simulation, run_rollouts
from rlcr_core.types import Call, CallResult, Rollout, RolloutKey, Sample, SampleRequest, StopReason, Task, TurnKind
from tests.rlcr_core.toy import TASK, TOKENIZER, Toy, play, toy_params

VERBS = ["dig 1 .", "dig 3 .", "post key red .", "dm ann key blue .", "dm chief key 7 .", "wait .", "hire .", "fire ann .",
         "read all .", "search key .", "wait wait wait wait wait wait wait wait"]  # fmt: skip


def babble(observation: str, key: tuple[int, int], seed: int) -> str:
    return VERBS[seed % len(VERBS)]


def run(n: int = 4, engine: object = None, run_name: str = "toy", params: object = None) -> list[Rollout]:
    specs = [RolloutSpec(RolloutKey(run_name, 0, 0, i), TASK, 40.0) for i in range(n)]
    return run_rollouts(specs, Toy, engine or PlayerEngine(babble, TOKENIZER), TOKENIZER, params or toy_params())  # type: ignore[arg-type]


def test_the_same_key_gives_the_same_rollout_alone_or_in_company() -> None:
    together = run(4)
    alone = run(1)
    assert together[0] == alone[0]
    assert len({str(r.turns()) for r in together}) == 4  # different keys, different rollouts
    assert run(1, run_name="other")[0].turns() != alone[0].turns()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(5, 60))
def test_lookahead_gives_what_one_turn_at_a_time_gives(iteration: int, limit_s: float) -> None:
    """With a lookahead of zero only turns that start together are sampled together: the plain event-by-event loop."""
    spec = RolloutSpec(RolloutKey("look", iteration, 0, 0), TASK, limit_s)
    results = []
    for shortest_s in (None, 0.0):
        simulation = Simulation(spec, Toy(TASK), TOKENIZER, toy_params(), 0)
        if shortest_s is not None:
            simulation.shortest_s = shortest_s
        engine = PlayerEngine(babble, TOKENIZER)
        while not simulation.finished:
            requests = simulation.advance()
            simulation.accept([(r.cache_key[1], s) for r, s in zip(requests, engine.sample(requests), strict=True)])
        results.append(simulation.result())
    fast, slow = results
    assert fast.trajectories == slow.trajectories
    assert fast.return_ == slow.return_ and fast.stop_reason == slow.stop_reason
    assert sorted(map(str, fast.events)) == sorted(map(str, slow.events))


def test_an_environment_that_raises_fails_its_rollout_and_no_other() -> None:
    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        return "break ." if key[0] == 1 else "dig 2 ."

    good, bad, other = run(3, PlayerEngine(speak, TOKENIZER))
    assert bad.stop_reason is StopReason.FAILED and "the machine broke" in bad.error
    assert [r.stop_reason for r in (good, other)] == [StopReason.DEADLINE] * 2
    assert good.return_ == pytest.approx(0.6)  # 1 + 3 + 2 = 6 s each: 6 of them by 40


def test_a_task_that_cannot_be_made_fails_alone() -> None:
    def make(task: Task) -> Toy:
        if task.id == "bad":
            raise ValueError("no such project")
        return Toy(task)

    specs = [RolloutSpec(RolloutKey("r", 0, 0, i), t, 9.0) for i, t in enumerate([TASK, Task("bad", "toy@1", "test", 0, {})])]
    good, bad = run_rollouts(specs, make, PlayerEngine(babble, TOKENIZER), TOKENIZER, toy_params())
    assert good.stop_reason is not StopReason.FAILED
    assert bad.stop_reason is StopReason.FAILED and "no such project" in bad.error and bad.task_id == "bad"


def test_an_engine_that_dies_fails_what_it_held_and_ends_the_batch() -> None:
    class Dying(PlayerEngine):
        calls = 0

        def sample(self, requests: list[SampleRequest]) -> list[Sample]:  # type: ignore[override]
            self.calls += 1
            if self.calls == 3:
                raise EngineFault("out of memory")
            return super().sample(requests)

    rollouts = run(3, Dying(babble, TOKENIZER))
    assert {r.stop_reason for r in rollouts} == {StopReason.FAILED}
    assert all("out of memory" in r.error and r.turns() for r in rollouts)  # what was sampled stays readable


def test_a_worker_s_own_deadline_returns_partials() -> None:
    asked = iter([False, False, True])
    specs = [RolloutSpec(RolloutKey("r", 0, 0, i), TASK, 40.0) for i in range(2)]
    engine = PlayerEngine(babble, TOKENIZER)
    rollouts = run_rollouts(specs, Toy, engine, TOKENIZER, toy_params(), lambda: next(asked))
    assert {r.stop_reason for r in rollouts} == {StopReason.FAILED}
    assert all(len(r.turns()) >= 1 and "worker_timeout_s" in r.error for r in rollouts)


def test_solved_ends_at_once_and_cuts_the_others() -> None:
    """chief hires (ends 4) and digs 4..10 (`dig 2 .`: 1 + 3 + 2); ann starts `dig 9 .` at 6: tokens at 8, 9, 10.

    The second reward is the goal: done at 16 (chief digs again). ann's dig would end at 6 + 1 + 3 + 9 = 19.
    """
    rollout, _ = play({"chief": ["hire .", "dig 2 .", "dig 2 ."], "ann": ["dig 9 ."]}, 60.0, goal=2)
    assert (rollout.stop_reason, rollout.end_s) == (StopReason.SOLVED, 16.0)
    (turn,) = rollout.trajectories[1]
    assert (turn.cut, turn.end_s, turn.n_tokens) == (True, 16.0, 3)
    assert rollout.return_ == pytest.approx(0.2)


def test_malformed_actions_cost_their_tokens_and_an_error() -> None:
    # 8 tokens without an end: 1 + 8 + 1 (error_s) = 10
    rollout, _ = play({"chief": ["wait " * 8]}, 30.0)
    first = rollout.turns()[0]
    assert (first.kind, first.n_tokens, first.end_s, first.code) == (TurnKind.INVALID, 8, 10.0, "invalid")


def test_a_window_starts_a_context_each_turn_and_a_transcript_grows() -> None:
    window, _ = play({"chief": ["wait ."] * 4}, 16.0)
    assert [t.context for t in window.turns()] == [0, 1, 2, 3]
    # transcript: observation 1 + action 2 tokens a turn, 8 reserved: 4 turns need 3 * 3 + 1 + 8 = 18 tokens
    params = toy_params(context={"mode": "transcript", "max_tokens": 18})
    grown, _ = play({"chief": ["wait ."] * 6}, 30.0, params)
    assert [t.context for t in grown.turns()[:6]] == [0, 0, 0, 0, 1, 1]
    # in a transcript the whole observation is new: 1 + 1 / 10 + 2 + 1 = 4.1
    assert grown.turns()[0].end_s == 4.1


def test_an_observation_that_fits_no_context_is_a_clear_failure() -> None:
    (rollout,) = run(1, params=toy_params(context={"mode": "window", "max_tokens": 8}))
    assert rollout.stop_reason is StopReason.FAILED
    assert "raise context.max_tokens" in rollout.error


def test_history_is_never_retokenised() -> None:
    """The ids of every turn are the sampled ones, whatever their text: here ids whose text is the unknown word."""

    class Odd(PlayerEngine):
        def sample(self, requests: list[SampleRequest]) -> list[Sample]:  # type: ignore[override]
            return [
                Sample([1, 0, 1, TOKENIZER.encode(".")[0]][: r.max_tokens], [-1.0] * min(4, r.max_tokens), 7) for r in requests
            ]

    (rollout,) = run(1, Odd(babble, TOKENIZER))
    assert all(list(t.action_ids) == [1, 0, 1, TOKENIZER.encode(".")[0]] for t in rollout.turns() if not t.cut)
    assert {t.policy_version for t in rollout.turns()} == {7}


def test_adding_a_silent_agent_changes_no_return() -> None:
    alone, _ = play({"chief": ["dig 2 ."] * 9}, 40.0)
    params = toy_params(collective={"wait_s": None})
    both, _ = play({"chief": ["hire .", *["dig 2 ."] * 9]}, 44.0, params)  # the hire costs the chief 4 s
    assert len(both.agents) == 2
    assert both.return_ == alone.return_


def test_one_tenth_of_a_second_steps_do_not_drift() -> None:
    # 40 waits of 1 + 2 + 1 = 4 s: the starts are exact multiples
    rollout, _ = play({}, 160.0)
    assert np.array_equal([t.start_s for t in rollout.turns()], 4.0 * np.arange(40))


def test_an_environment_s_calls_are_serialised_and_in_order_of_time() -> None:
    """One thread, never re-entered, times never fall, every finish after its begin; also with ten busy agents."""
    log: list[tuple[int, float, str]] = []

    class Watched(Toy):
        def begin(self, agent: int, call: Call, time_s: float) -> float:
            log.append((threading.get_ident(), time_s, f"begin {agent}"))
            return super().begin(agent, call, time_s)

        def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
            log.append((threading.get_ident(), time_s, f"finish {agent}"))
            return super().finish(agent, call, time_s)

    def speak(observation: str, key: tuple[int, int], seed: int) -> str:
        return "hire ." if key[1] == 0 and seed % 2 else f"dig {1 + seed % 5} ."

    spec = RolloutSpec(RolloutKey("serial", 0, 0, 0), TASK, 60.0)
    (rollout,) = run_rollouts([spec], Watched, PlayerEngine(speak, TOKENIZER), TOKENIZER, toy_params())
    assert len(rollout.agents) >= 6 and len(log) > 40
    assert len({thread for thread, _, _ in log}) == 1
    assert [time_s for _, time_s, _ in log] == sorted(time_s for _, time_s, _ in log)
    for agent in range(len(rollout.agents)):
        own = [what.split()[0] for _, _, what in log if what.endswith(f" {agent}")]
        assert own[::2] == ["begin"] * len(own[::2]) and own[1::2] == ["finish"] * len(own[1::2])
