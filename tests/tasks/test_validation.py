"""The contract of the trajectory tables: each broken rule names its rollout, agent and turn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.store import Tables, to_tables
from rlcr_core.types import Event, EventType, Rollout
from tasks.trajectory_frames import frames_of
from tasks.validation import DETAIL, RULES, Validator, validator
from tests.support import rollout


@pytest.fixture(scope="module")
def checker() -> Validator:
    return validator()


def places(findings: list[object]) -> set[tuple[str, int, int, int | None, int | None]]:
    return {(f.rule, f.group, f.rollout, f.agent, f.turn) for f in findings}  # type: ignore[attr-defined]


def sound() -> list[Rollout]:
    """Four sound rollouts: groups 0 and 1, rollouts 0 and 1, two agents with three turns each."""
    return [rollout(g, r, turns=3, agents=2) for g in (0, 1) for r in (0, 1)]


def test_sound_rollouts_have_no_finding(checker: Validator) -> None:
    assert checker.check(to_tables(sound()), 0, 10.0) == []


def spoil_turn(**changes: object) -> Callable[[list[Rollout]], None]:
    def spoil(rollouts: list[Rollout]) -> None:
        for name, value in changes.items():
            setattr(rollouts[2].trajectories[1][1], name, value)

    return spoil


@pytest.mark.parametrize(
    ("rule", "spoil"),
    [
        ("a turn has at least one sampled token", spoil_turn(action_ids=[], logprobs=[])),
        ("every sampled token has one logprob", spoil_turn(logprobs=[-0.5])),
        ("logprobs are finite and at most 0", spoil_turn(logprobs=[-0.5, float("nan")])),
        ("logprobs are finite and at most 0", spoil_turn(logprobs=[-0.5, float("-inf")])),
        ("logprobs are finite and at most 0", spoil_turn(logprobs=[-0.5, 0.25])),
        ("tokens come from the synced weights", spoil_turn(policy_version=3)),
        ("a turn ends at or after its start", spoil_turn(end_s=1.0)),
        ("a turn ends at or after its start", spoil_turn(end_s=float("nan"))),
        ("turn numbers of an agent rise", spoil_turn(index=0)),
        ("context numbers of an agent never fall", spoil_turn(context=-1)),
        ("an agent's turns do not overlap", spoil_turn(start_s=1.5)),
    ],
)
def test_a_bad_turn_is_named(checker: Validator, rule: str, spoil: Callable[[list[Rollout]], None]) -> None:
    rollouts = sound()
    spoil(rollouts)
    found = checker.check(to_tables(rollouts), 0, 10.0)
    turn = rollouts[2].trajectories[1][1].index
    assert (rule, 1, 0, 1, turn) in places(list(found))
    assert {(f.group, f.rollout) for f in found} == {(1, 0)}  # nobody else is blamed


def test_a_turn_past_the_limit_is_named_unless_it_was_cut(checker: Validator) -> None:
    rollouts = sound()
    for r in rollouts[:2]:  # last turn from 4 to 11 s under a limit of 10 s
        r.trajectories[0][2].end_s = 11.0
    rollouts[1].trajectories[0][2].cut = True
    assert places(list(checker.check(to_tables(rollouts), 0, 10.0))) == {("a turn ends by the limit or is cut", 0, 0, 0, 2)}


def test_a_turn_that_starts_at_the_limit_is_named(checker: Validator) -> None:
    rollouts = sound()
    turn = rollouts[0].trajectories[0][2]
    turn.start_s, turn.end_s = 10.0, 10.0
    assert places(list(checker.check(to_tables(rollouts), 0, 10.0))) == {("a turn starts before the limit", 0, 0, 0, 2)}


def test_an_unknown_kind_and_an_agent_without_record_are_named(checker: Validator) -> None:
    tables = to_tables(sound())
    kinds = tables.turns["kind"].to_pylist()
    kinds[4] = "nap"  # rows of rollout 0/0: agent 0 turns 0 to 2, then agent 1 turns 0 to 2; row 4 is agent 1, turn 1
    turns = tables.turns.set_column(tables.turns.schema.get_field_index("kind"), tables.turns.schema.field("kind"), [kinds])
    agents = tables.agents.slice(0, 7)  # the last record is agent 1 of rollout 1/1
    found = places(list(checker.check(Tables(turns, tables.events, agents, tables.rollouts), 0, 10.0)))
    assert found == {
        ("the turn's kind is one of the closed set", 0, 0, 1, 1),
        *{("the turn's agent is on record", 1, 1, 1, turn) for turn in range(3)},
    }


@pytest.mark.parametrize(
    ("rule", "event"),
    [
        ("times and values of events are finite", Event(3.0, EventType.MESSAGE, 0, 1, float("nan"))),
        ("times and values of events are finite", Event(float("inf"), EventType.WORK, 0)),
        ("the return is within its bounds", Event(4.0, EventType.REWARD, 0, -1, 0.8)),  # 0.25 + 0.8 = 1.05 > 1
        ("the return is within its bounds", Event(4.0, EventType.REWARD, 0, -1, -0.5)),
    ],
)
def test_bad_events_and_returns_are_named(checker: Validator, rule: str, event: Event) -> None:
    rollouts = sound()
    rollouts[3].events.append(event)
    assert (rule, 1, 1, None, None) in places(list(checker.check(to_tables(rollouts), 0, 10.0)))


def test_another_limit_than_the_plans_is_named_for_every_rollout(checker: Validator) -> None:
    found = places(list(checker.check(to_tables(sound()), 0, 12.0)))
    assert found == {("the limit is the plan's", g, r, None, None) for g in (0, 1) for r in (0, 1)}


def test_a_stored_return_that_is_not_the_sum_of_its_rewards_is_named(checker: Validator) -> None:
    tables = to_tables(sound())
    returns = [0.25, 0.25, 0.5, 0.25]
    column = tables.rollouts.schema.get_field_index("return")
    rollouts = tables.rollouts.set_column(column, tables.rollouts.schema.field("return"), [returns])
    found = checker.check(tables._replace(rollouts=rollouts), 0, 10.0)
    assert places(list(found)) == {("the return is the sum of the rewards by the limit", 1, 0, None, None)}
    assert str(found[0]).startswith("group 1, rollout 0: the return is the sum")


def test_a_rollout_that_occurs_twice_is_named(checker: Validator) -> None:
    tables = to_tables(sound())
    doubled = tables._replace(rollouts=tables.rollouts.take([0, 1, 2, 2, 3]))
    found = checker.check(doubled, 0, 10.0)
    assert ("a rollout occurs once", 1, 0, None, None) in places(list(found))
    assert {(f.group, f.rollout) for f in found} == {(1, 0)}


def test_derived_columns_have_the_values_of_a_hand_made_table() -> None:
    # One agent, turns 0-2 s and 2-4 s under a limit of 10 s, two tokens each; version 0 against a synced version 2.
    turns = frames_of(to_tables([rollout()]), 2, 10.0).turns
    assert turns["n_tokens"].tolist() == turns["n_logprobs"].tolist() == [2, 2]
    assert turns["duration_s"].tolist() == [2.0, 2.0]
    assert turns["left_at_start_s"].tolist() == [10.0, 8.0]
    assert turns["overtime_s"].tolist() == [-8.0, -6.0]
    assert turns["version_gap"].tolist() == [-2, -2]
    assert turns["index_step"].tolist() == [1, 1]
    assert turns["idle_s"].tolist() == [0.0, 0.0]
    rollouts = frames_of(to_tables([rollout()]), 2, 10.0).rollouts
    assert np.allclose(rollouts[["return", "return_gap", "limit_gap_s"]].to_numpy(), [[0.25, 0.0, 0.0]])


NUMBERS = st.sampled_from([-float("inf"), -2.0, -1e-8, 0.0, 1e-8, 1.0, 2.0, float("inf")])


@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_the_quick_answer_and_the_expectations_agree_on_every_row(data: st.DataObject) -> None:
    # Whatever the columns hold, the rows that Rule.broken counts are those that the rule's expectation names.
    checker = validator()
    for name, rules in RULES.items():
        for rule in rules:
            values = [*rule.among, "other"] if rule.among else data.draw(st.lists(NUMBERS, min_size=1, max_size=5))
            frame = pd.DataFrame({"row": range(len(values)), rule.column: values})
            if rule.equals:
                frame[rule.equals] = data.draw(st.lists(NUMBERS, min_size=len(values), max_size=len(values)))
            batch = checker._batches[name].get_batch({"dataframe": frame})
            result = batch.validate(checker._expectations[name][rule.text], result_format=DETAIL)
            named = {int(row["row"]) for row in result.result.get("unexpected_index_list") or []}
            assert named == set(np.flatnonzero(rule.broken(frame))), rule.text
