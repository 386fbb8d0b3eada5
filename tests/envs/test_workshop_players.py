"""Scripted players: what they do on a small task worked out by hand, and that they keep the rules on any."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import envs
from envs.workshop.bounds import amdahl_speedup, workshop_bounds
from envs.workshop.dispatch import best_choice, tails_s, team_sizes
from envs.workshop.environment import WorkshopEnvironment
from envs.workshop.grammar import random_action
from rlcr_core.config import Params, load_params
from rlcr_core.errors import TaskError
from rlcr_core.metrics import work_result
from rlcr_core.players import PlayerEngine
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.scripted import scripted_rollouts, terms_of
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import EventType, Rollout, RolloutKey, StopReason, Task, Terms
from tests.support import ROOT, changed

WORDS = WordTokenizer(WorkshopEnvironment.language.vocabulary)
PARAMS = load_params(ROOT / "params.yaml")
PLAYERS = envs.players("workshop@1")
COORDINATED = ("reader", "greedy_posting", "greedy")


def arranged(max_hires: int = 8, staff: int = 0, **latency: object) -> Params:
    return changed(PARAMS, {"collective": {"max_hires": max_hires, "staff": staff}, "latency": latency})


def play(player: str, tasks: list[Task], params: Params, limit_s: float = 84.0) -> list[Rollout]:
    specs = [RolloutSpec(RolloutKey("scripted", 0, g, 0), task, limit_s) for g, task in enumerate(tasks)]
    return scripted_rollouts(specs, envs.make, PLAYERS[player], WORDS, params)


def terms(params: Params, task: Task) -> Terms:
    return terms_of(envs.make(task), WORDS, params)


def drawn(count: int, seed: int = 0, **changes: Any) -> list[Task]:
    keywords: dict[str, Any] = {"families": {"star": 1.0}, "packages": 4, "modules": 12, "parallel_share": 1.0, "coupling": 1.0}
    return envs.generate("workshop@1", split="players", count=count, seed=seed, **(keywords | changes))


def texts(rollout: Rollout, agent: int) -> list[str]:
    return [WORDS.decode(turn.action_ids) for turn in rollout.trajectories[agent]]


def test_the_terms_are_those_of_the_parameters(tiny_task: Task) -> None:
    found = terms(arranged(3, 2), tiny_task)
    assert found.spoken_s("work") == 0.5 + 4 * 0.5 and found.spoken_s("hire") == 0.5 + 0.5
    assert (found.hire_s, found.onboarding_s, found.wait_s, found.max_hires, found.staff) == (1.0, 3.0, 1.0, 3, 2)


def test_one_agent_works_without_a_pause(tiny_task: Task) -> None:
    """5 modules of 9 units in all: 5 * 2.5 + 9 * 4 = 48.5 s."""
    (rollout,) = play("solo", [tiny_task], arranged())
    assert rollout.stop_reason is StopReason.SOLVED and rollout.end_s == 48.5 and rollout.n_hires == 0


def test_greedy_speaks_while_the_last_dependency_is_being_built(tiny_task: Task) -> None:
    """Chains of work: p07 i00 8 + max(p07 i01 4 + p21 i01 8, p07 i02 12) = 20; p21 i00 4 + 8 = 12. Two are staff.

    CEO: p07 i00 from 2.5 to 10.5, agent 1: p21 i00 from 2.5 to 6.5; agent 2 waits 2 s at a time until 8, then speaks until
    10.5, when p07 i01 opens, and builds it until 14.5. Agent 1 waits from 6.5 to 8.5 and builds p07 i02 from 11 to 23. The CEO
    at 10.5 would begin at 13, before p21 i01 opens at 14.5: it waits until 12.5, begins at 15 and ends at 23.
    """
    assert tails_s(WorkshopEnvironment(tiny_task).plan) == [20.0, 12.0, 12.0, 12.0, 8.0]
    (rollout,) = play("greedy", [tiny_task], arranged(2, 2))
    assert texts(rollout, 0) == ["work p07 nokey i00", "wait", "work p21 k09 i01"]
    assert texts(rollout, 1)[:3] == ["work p21 nokey i00", "wait", "work p07 nokey i02"]
    assert texts(rollout, 2)[:5] == ["wait"] * 4 + ["work p07 k03 i01"]
    assert rollout.stop_reason is StopReason.SOLVED and rollout.end_s == 23.0


def test_nobody_is_hired_where_it_does_not_pay(tiny_task: Task) -> None:
    """By 10 s one agent finishes p21 i00 (6.5 s). A hire could start at 5 s: another module would take it until 15.5 s."""
    (rollout,) = play("greedy", [tiny_task], arranged(), limit_s=10.0)
    assert rollout.n_hires == 0 and rollout.return_ == pytest.approx(0.2)
    assert best_choice(WorkshopEnvironment(tiny_task).plan, terms(arranged(), tiny_task), 10.0).hires == 0


def test_a_key_is_used_by_who_was_told_it(tiny_task: Task) -> None:
    """The CEO alone with one hire of staff: who finishes a root with keyed modules left posts its key, and only then."""
    (rollout,) = play("greedy_posting", [tiny_task], arranged(1, 1))
    posts = [event for event in rollout.events if event.type is EventType.MESSAGE]
    assert {event.text for event in posts} == {"p07 k03", "p21 k09"} and all(event.value == 1.0 for event in posts)
    assert rollout.stop_reason is StopReason.SOLVED


def test_players_without_messages_send_none_and_study() -> None:
    for player in ("reader", "sighted_reading"):
        for rollout in play(player, drawn(2), arranged()):
            assert not any(event.type is EventType.MESSAGE for event in rollout.events)
            assert any(turn.code == "learned" for turn in rollout.turns())


def test_players_come_in_the_order_of_what_they_know() -> None:
    tasks = drawn(4)
    means = {p: sum(r.return_ for r in play(p, tasks, arranged(), 60.0)) / len(tasks) for p in PLAYERS}
    assert means["random_valid"] < means["solo"] < means["sighted_reading"] < means["sighted_posting"] < means["greedy"]
    assert means["sighted_reading"] < means["reader"] < means["greedy_posting"] < means["greedy"]


def test_the_random_player_is_the_warm_starts() -> None:
    """The same words from the same seeds as the engine that makes the base's observations."""
    specs = [RolloutSpec(RolloutKey("same", 0, g, 0), task, 40.0) for g, task in enumerate(drawn(2))]
    engine = PlayerEngine(lambda text, key, seed: random_action(text, random.Random(seed)), WORDS)
    assert scripted_rollouts(specs, envs.make, PLAYERS["random_valid"], WORDS, PARAMS) == run_rollouts(
        specs, envs.make, engine, WORDS, PARAMS
    )


def test_bounds_of_a_small_task(tiny_task: Task) -> None:
    """Costs 10.5, 6.5, 14.5, 6.5, 10.5 s; earliest ends 10.5, 14.5, 22.5, 6.5, 22.5 s (2.5 s of speaking, once, then work)."""
    found = workshop_bounds(envs.make(tiny_task), terms(arranged(), tiny_task))
    assert found.work_s == 48.5 and found.critical_path_s == 22.5
    assert found.parallel_share == pytest.approx(1 - 20 / 36)
    # Hires work from 5, 7, 9, 11 s and cost the CEO 2 s each: 14.5 + 7.5 + 5.5 + 3.5 + 1.5 = 32.5 agent-seconds.
    assert found.agent_seconds(14.5) == 32.5
    # 6.5 + 6.5 + 10.5 = 23.5 fit, one more does not; three modules can be finished by then.
    assert found.returns(14.5) == (0.6, 0.6, 0.6)
    alone = workshop_bounds(envs.make(tiny_task), terms(arranged(0), tiny_task))
    assert alone.returns(10.0) == (0.2, 0.2, 0.2) and alone.returns(14.5) == (0.4, 0.6, 0.4)
    assert alone.least_time_s(1.0) == pytest.approx(48.5, abs=2e-3)
    # 3 of 5: 6.5, 6.5 and 10.5 s one after another.
    assert alone.least_time_s(0.6) == pytest.approx(23.5, abs=2e-3)
    with pytest.raises(TaskError, match="above 0"):
        alone.least_time_s(0.0)


def test_amdahls_law() -> None:
    assert amdahl_speedup(0.95, 8) == pytest.approx(1 / (0.05 + 0.95 / 8))
    assert amdahl_speedup(0.0, 100) == 1.0 and amdahl_speedup(1.0, 7) == pytest.approx(7.0)


def test_team_sizes_to_try() -> None:
    assert team_sizes(3) == [0, 1, 2, 3] and team_sizes(40)[-4:] == [16, 24, 36, 40]


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_nobody_exceeds_the_bounds_and_the_coordinated_waste_nothing(data: st.DataObject) -> None:
    tasks = drawn(
        1, data.draw(st.integers(0, 10**6)), families={data.draw(st.sampled_from(["star", "real"])): 1.0},
        packages=data.draw(st.integers(1, 4)), modules=data.draw(st.integers(1, 6)),
        parallel_share=data.draw(st.sampled_from([0.0, 0.4, 1.0])), coupling=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
    )  # fmt: skip
    cap = data.draw(st.integers(0, 6))
    params = arranged(
        cap, data.draw(st.integers(0, cap)), turn_overhead_s=data.draw(st.sampled_from([0.0, 0.5, 3.0])),
        decode_tps=data.draw(st.sampled_from([1.0, 2.0, 20.0])), shared_capacity=data.draw(st.sampled_from([0, 2])),
    )  # fmt: skip
    limit_s = data.draw(st.floats(3.0, 120.0))
    found = workshop_bounds(envs.make(tasks[0]), terms(params, tasks[0]))
    for player in PLAYERS:
        (rollout,) = play(player, tasks, params, limit_s)
        assert rollout.stop_reason is not StopReason.FAILED, rollout.error
        bound = found.returns(limit_s)
        assert rollout.return_ <= min(bound) + 1e-9 and bound.amdahl == min(bound)
        if rollout.stop_reason is StopReason.SOLVED:
            assert rollout.end_s >= found.least_time_s(1.0)
        if player in COORDINATED:
            codes = {work_result(event.text)[0] for event in rollout.events if event.type is EventType.WORK}
            assert codes <= {"done", "learned"}
