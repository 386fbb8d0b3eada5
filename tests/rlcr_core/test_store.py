"""The store: exact round trips, equal bytes, and what a reader hears of a damaged file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcr_core.errors import DataError
from rlcr_core.store import (
    TURNS,
    Tables,
    digest_file,
    from_tables,
    read_rollouts,
    read_tables,
    to_tables,
    write_rollouts,
)
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind

IDS = st.lists(st.integers(0, 2**31 - 1), max_size=4)
TIMES = st.floats(0, 1e4)
TEXTS = st.text(max_size=8)


@st.composite
def turns(draw: st.DrawFn, agent: int, index: int) -> Turn:
    actions = draw(IDS)
    logprobs = [draw(st.floats(-50, 0, width=32)) for _ in actions]
    return Turn(
        agent=agent, index=index, context=draw(st.integers(0, index)), observation_ids=draw(IDS), action_ids=actions,
        logprobs=logprobs, start_s=draw(TIMES), end_s=draw(TIMES), kind=draw(st.sampled_from(TurnKind)),
        policy_version=draw(st.integers(0, 9)), tool=draw(TEXTS), code=draw(TEXTS), cut=draw(st.booleans()),
    )  # fmt: skip


def agents(agent: int) -> st.SearchStrategy[AgentRecord]:
    return st.builds(AgentRecord, st.just(agent), TEXTS, TIMES, TIMES, st.none() | TIMES)


@st.composite
def rollouts(draw: st.DrawFn, key: RolloutKey) -> Rollout:
    events = st.builds(Event, TIMES, st.sampled_from(EventType), st.integers(0, 8), st.integers(-1, 8), st.floats(-1, 1), TEXTS)
    n_agents = draw(st.integers(0, 3))
    return Rollout(
        key=key, task_id=draw(TEXTS), limit_s=draw(TIMES), seed=draw(st.integers(0, 2**63 - 1)),
        agents=[draw(agents(a)) for a in range(n_agents)],
        trajectories={a: [draw(turns(a, i)) for i in range(draw(st.integers(0, 3)))] for a in range(n_agents)},
        events=draw(st.lists(events, max_size=4)), stop_reason=draw(st.sampled_from(StopReason)), end_s=draw(TIMES),
        attempt=draw(st.integers(0, 1)), error=draw(TEXTS),
    )  # fmt: skip


@st.composite
def batches(draw: st.DrawFn) -> list[Rollout]:
    keys = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=4, unique=True))
    return [draw(rollouts(RolloutKey("run", 7, g, r))) for g, r in keys]


def one_rollout(group: int = 0, rollout: int = 0) -> Rollout:
    turn = Turn(0, 0, 0, [5, 6], [7, 8], [-0.5, -0.25], 0.0, 2.0, TurnKind.WORK, 3, "work", "done")
    return Rollout(
        RolloutKey("run", 1, group, rollout), "t1", 10.0, 42, [AgentRecord(0, "ada", 0.0, 0.0)], {0: [turn]},
        [Event(2.0, EventType.REWARD, 0, value=0.5)], StopReason.DEADLINE, 10.0,
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(batches())
def test_tables_give_back_the_same_rollouts_by_group_and_rollout(batch: list[Rollout]) -> None:
    assert from_tables(to_tables(batch)) == sorted(batch, key=lambda rollout: rollout.key)


@settings(max_examples=15, deadline=None)
@given(batches())
def test_files_give_back_the_same_rollouts_and_order_changes_no_byte(
    tmp_path_factory: pytest.TempPathFactory, batch: list[Rollout]
) -> None:
    first, second = tmp_path_factory.mktemp("first"), tmp_path_factory.mktemp("second")
    digests = write_rollouts(first, to_tables(batch))
    assert write_rollouts(second, to_tables(batch[::-1])) == digests
    assert sorted(digests) == ["agents.parquet", "events.parquet", "rollouts.parquet", "turns.parquet"]
    assert digests == {name: digest_file(first / name) for name in digests}
    assert read_rollouts(first) == sorted(batch, key=lambda rollout: rollout.key)


def test_arrays_and_lists_of_tokens_are_stored_alike() -> None:
    lists, arrays = one_rollout(), one_rollout()
    turn = arrays.trajectories[0][0]
    turn.action_ids, turn.logprobs = np.array([7, 8], np.int32), np.array([-0.5, -0.25], np.float32)  # type: ignore[assignment]
    assert to_tables([arrays]).turns.equals(to_tables([lists]).turns)


def test_misaligned_and_nan_values_are_stored_as_they_are_for_validation_to_name() -> None:
    rollout = one_rollout()
    rollout.trajectories[0][0].logprobs = [float("nan")]
    row = to_tables([rollout]).turns.to_pylist()[0]
    assert row["action_ids"] == [7, 8]
    assert len(row["logprobs"]) == 1 and np.isnan(row["logprobs"][0])


def test_the_return_column_counts_a_reward_at_the_limit_and_none_after_it() -> None:
    rollout = one_rollout()
    rollout.events += [Event(10.0, EventType.REWARD, 0, value=0.25), Event(10.001, EventType.REWARD, 0, value=8.0)]
    assert to_tables([rollout]).rollouts["return"].to_pylist() == [0.75]  # 0.5 at 2 s + 0.25 at exactly T = 10 s


def test_turns_are_stored_by_index_whatever_their_order_in_memory() -> None:
    rollout = one_rollout()
    later = Turn(0, 1, 1, [], [9], [-1.0], 2.0, 3.0, TurnKind.WAIT, 3)
    rollout.trajectories[0].insert(0, later)
    assert to_tables([rollout]).turns["index"].to_pylist() == [0, 1]


def test_a_rollout_stored_twice_is_refused() -> None:
    with pytest.raises(DataError, match="group 2, rollout 5"):
        to_tables([one_rollout(2, 5), one_rollout(1, 5), one_rollout(2, 5)])


def test_a_turn_in_another_agents_trajectory_is_refused() -> None:
    rollout = one_rollout()
    rollout.trajectories[0][0].agent = 4
    with pytest.raises(DataError, match=r"turn of agent 4 \(index 0\) in the trajectory of agent 0"):
        to_tables([rollout])


def test_tables_that_do_not_belong_together_are_refused() -> None:
    first, other = to_tables([one_rollout(0, 0)]), to_tables([one_rollout(1, 1)])
    with pytest.raises(DataError, match="do not belong together"):
        from_tables(Tables(other.turns, first.events, first.agents, first.rollouts))
    with pytest.raises(DataError, match="Table turns has the schema"):
        from_tables(Tables(first.turns.drop_columns(["code"]), first.events, first.agents, first.rollouts))


@pytest.mark.parametrize("damage", ["half", "flipped", "absent", "empty"])
def test_a_damaged_file_is_named_with_what_to_do(tmp_path: Path, damage: str) -> None:
    write_rollouts(tmp_path, to_tables([one_rollout()]))
    file = tmp_path / "turns.parquet"
    data = bytearray(file.read_bytes())
    if damage == "absent":
        file.unlink()
    elif damage == "flipped":
        data[40] ^= 0xFF  # inside the first page
        file.write_bytes(data)
    else:
        file.write_bytes(data[: len(data) // 2] if damage == "half" else b"")
    with pytest.raises(DataError, match=r"turns\.parquet.*run the same command again") as caught:
        read_rollouts(tmp_path)
    assert "\n\n" not in str(caught.value)


def test_the_schema_survives_the_file(tmp_path: Path) -> None:
    write_rollouts(tmp_path, to_tables([]))
    tables = read_tables(tmp_path)
    assert tables.turns.schema.equals(TURNS) and tables.turns.num_rows == 0
    assert read_rollouts(tmp_path) == []
