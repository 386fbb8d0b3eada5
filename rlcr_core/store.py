"""Rollouts as four Arrow tables and Parquet files; equal rollouts give equal bytes.

The tables are a faithful record: misaligned or non-finite values are stored as they are, so that validation can name
them by rollout, agent and turn. Rows are ordered by (group, rollout), then turns by (agent, index), agents and events
in their own order. (group, rollout) identifies a rollout within a table set. Digests, atomic writes and manifests are
in rlcr_core.manifests and can be imported from here as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rlcr_core.errors import DataError
from rlcr_core.manifests import (
    Manifest,
    atomic_write,
    digest_bytes,
    digest_file,
    digest_files,
    digest_tree,
    read_manifest,
    reason,
    write_manifest,
)
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Turn, TurnKind

__all__ = [
    "AGENTS", "EVENTS", "ROLLOUTS", "TURNS", "Manifest", "Tables", "atomic_write", "digest_bytes", "digest_file",
    "digest_files", "digest_tree", "from_tables", "read_manifest", "read_rollouts", "read_tables", "to_tables",
    "write_manifest", "write_rollouts",
]  # fmt: skip

_TYPES = {
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bool": pa.bool_(),
    "ids": pa.list_(pa.field("element", pa.int32(), nullable=False)),
    "logprobs": pa.list_(pa.field("element", pa.float32(), nullable=False)),
}


def _schema(columns: str) -> pa.Schema:
    """A schema from `name:type` words; a type that ends in `?` may be null."""
    pairs = [word.split(":") for word in columns.split()]
    return pa.schema([pa.field(name, _TYPES[kind.rstrip("?")], nullable=kind.endswith("?")) for name, kind in pairs])


TURNS = _schema(
    "group:int rollout:int agent:int index:int context:int kind:str tool:str code:str cut:bool start_s:float "
    "end_s:float prompt_tokens:int tool_s:float derived_s:float policy_version:int observation_ids:ids "
    "action_ids:ids logprobs:logprobs"
)
EVENTS = _schema("group:int rollout:int time_s:float type:str agent:int other:int value:float text:str")
AGENTS = _schema("group:int rollout:int agent:int name:str hired_s:float started_s:float fired_s:float?")
ROLLOUTS = _schema(
    "run:str iteration:int group:int rollout:int task_id:str seed:int limit_s:float end_s:float stop_reason:str "
    "attempt:int error:str return:float"
)


class Tables(NamedTuple):
    """One row per turn, event, agent and rollout; the schemas are TURNS, EVENTS, AGENTS and ROLLOUTS."""

    turns: pa.Table
    events: pa.Table
    agents: pa.Table
    rollouts: pa.Table


_SCHEMAS = Tables(TURNS, EVENTS, AGENTS, ROLLOUTS)


def _list_column(rows: Sequence[Sequence[Any]], type_: pa.DataType, dtype: type[np.generic]) -> pa.Array:
    offsets = np.zeros(len(rows) + 1, dtype=np.int32)
    np.cumsum(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)), out=offsets[1:])
    values: Any = np.fromiter(chain.from_iterable(rows), dtype=dtype, count=int(offsets[-1]))
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values, type=type_.value_type), type=type_)


def _table(schema: pa.Schema, rows: Iterable[tuple[Any, ...]]) -> pa.Table:
    """A table from rows in the schema's order, built column by column."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    arrays = []
    for field, values in zip(schema, columns, strict=True):
        if pa.types.is_list(field.type):
            dtype = np.int32 if pa.types.is_integer(field.type.value_type) else np.float32
            arrays.append(_list_column(values, field.type, dtype))
        else:
            arrays.append(pa.array(values, type=field.type))
    return pa.Table.from_arrays(arrays, schema=schema)


def _turn_rows(rollout: Rollout) -> Iterable[tuple[Any, ...]]:
    _, _, g, r = rollout.key
    for agent, trajectory in sorted(rollout.trajectories.items()):
        for t in sorted(trajectory, key=lambda turn: turn.index):
            if t.agent != agent:
                raise DataError(
                    f"Rollout {g}/{r} has a turn of agent {t.agent} (index {t.index}) in the trajectory of agent "
                    f"{agent}; each turn belongs into its own agent's trajectory."
                )
            yield (
                g, r, t.agent, t.index, t.context, t.kind.value, t.tool, t.code, t.cut, t.start_s, t.end_s,
                t.prompt_tokens, t.tool_s, t.derived_s, t.policy_version, t.observation_ids, t.action_ids, t.logprobs,
            )  # fmt: skip


def _event_rows(rollout: Rollout) -> Iterable[tuple[Any, ...]]:
    _, _, g, r = rollout.key
    for e in rollout.events:
        yield g, r, e.time_s, e.type.value, e.agent, e.other, e.value, e.text


def _agent_rows(rollout: Rollout) -> Iterable[tuple[Any, ...]]:
    _, _, g, r = rollout.key
    for a in rollout.agents:
        yield g, r, a.id, a.name, a.hired_s, a.started_s, a.fired_s


def _rollout_rows(rollout: Rollout) -> Iterable[tuple[Any, ...]]:
    yield (
        *rollout.key, rollout.task_id, rollout.seed, rollout.limit_s, rollout.end_s, rollout.stop_reason.value,
        rollout.attempt, rollout.error, rollout.return_,
    )  # fmt: skip


def to_tables(rollouts: Sequence[Rollout]) -> Tables:
    """The tables of some rollouts, in any order given.

    Raises DataError when two rollouts share (group, rollout) or a turn lies in another agent's trajectory.
    """
    ordered = sorted(rollouts, key=lambda rollout: (rollout.key.group, rollout.key.rollout))
    for first, second in pairwise(ordered):
        if first.key[2:] == second.key[2:]:
            raise DataError(
                f"Two rollouts share group {first.key.group}, rollout {first.key.rollout}: {first.key} and "
                f"{second.key}. Store each rollout once; keep different iterations and runs in different folders."
            )

    def build(schema: pa.Schema, rows: Callable[[Rollout], Iterable[tuple[Any, ...]]]) -> pa.Table:
        return _table(schema, chain.from_iterable(map(rows, ordered)))

    return Tables(
        build(TURNS, _turn_rows), build(EVENTS, _event_rows), build(AGENTS, _agent_rows), build(ROLLOUTS, _rollout_rows)
    )


def _columns(table: pa.Table) -> Iterable[tuple[Any, ...]]:
    """The table's rows; lists come as Python lists, float32 values as the floats they are."""
    columns = []
    for column in table.itercolumns():
        array = column.combine_chunks()
        if pa.types.is_list(array.type):
            flat = array.values.to_numpy(zero_copy_only=False).tolist()
            ends = array.offsets.to_numpy().tolist()
            columns.append([flat[a:b] for a, b in pairwise(ends)])
        else:
            columns.append(array.to_pylist())
    return zip(*columns, strict=True)


def from_tables(tables: Tables) -> list[Rollout]:
    """The rollouts of the tables, by (group, rollout); an agent on record without turns has an empty trajectory.

    Raises DataError for another schema, a row of an unknown rollout or agent, or a word outside the closed sets.
    """
    for name, table, schema in zip(Tables._fields, tables, _SCHEMAS, strict=True):
        if not table.schema.equals(schema):
            raise DataError(f"Table {name} has the schema {table.schema}, expected {schema}. Write it with to_tables.")
    try:
        return _assemble(tables)
    except (KeyError, ValueError) as error:
        raise DataError(
            f"The tables do not belong together: {error!r} (a row of an unknown rollout or agent, or an unknown word). "
            "Write all four with one call of to_tables."
        ) from error


# Calling an enumeration costs four times as much as a dictionary, and there are tens of thousands of rows.
_KINDS = {kind.value: kind for kind in TurnKind}
_EVENT_TYPES = {type_.value: type_ for type_ in EventType}


def _assemble(tables: Tables) -> list[Rollout]:
    found: dict[tuple[int, int], Rollout] = {}
    for run, iteration, g, r, task_id, seed, limit_s, end_s, stop, attempt, error, _ in _columns(tables.rollouts):
        key = RolloutKey(run, iteration, g, r)
        found[g, r] = Rollout(
            key, task_id, limit_s, seed, stop_reason=StopReason(stop), end_s=end_s, attempt=attempt, error=error
        )
    for g, r, agent, name, hired_s, started_s, fired_s in _columns(tables.agents):
        found[g, r].agents.append(AgentRecord(agent, name, hired_s, started_s, fired_s))
        found[g, r].trajectories[agent] = []
    for g, r, time_s, type_, agent, other, value, text in _columns(tables.events):
        found[g, r].events.append(Event(time_s, _EVENT_TYPES[type_], agent, other, value, text))
    for (
        g, r, agent, index, context, kind, tool, code, cut, start_s, end_s, prompt_tokens, tool_s, derived_s, version,
        observation, action, logprobs,
    ) in _columns(tables.turns):  # fmt: skip
        turn = Turn(
            agent, index, context, observation, action, logprobs, start_s, end_s, _KINDS[kind], version, tool, code,
            cut, prompt_tokens, tool_s, derived_s,
        )  # fmt: skip
        found[g, r].trajectories[agent].append(turn)
    return [found[key] for key in sorted(found)]


def write_rollouts(directory: str | Path, tables: Tables) -> dict[str, str]:
    """Write turns, events, agents and rollouts.parquet atomically; returns file name -> SHA-256.

    Raises StoreError when the disk refuses; files written before stay and are overwritten by the next attempt.
    """
    digests = {}
    for name, table in zip(Tables._fields, tables, strict=True):
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd")
        data = sink.getvalue().to_pybytes()
        atomic_write(Path(directory) / f"{name}.parquet", data)
        digests[f"{name}.parquet"] = digest_bytes(data)
    return digests


def _read_table(path: Path) -> pa.Table:
    advice = (
        "Delete the folder that holds it and run the same command again: the rollouts are sampled anew from their "
        "seeds, with the same result."
    )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"Cannot read {path}: {reason(error)}. {advice}") from error
    try:
        return pq.ParquetFile(pa.BufferReader(data)).read()
    except (pa.ArrowException, OSError) as error:
        words = " ".join(str(error).split())
        raise DataError(f"{path} ({len(data)} bytes) is cut short or damaged: {words}. {advice}") from error


def read_tables(directory: str | Path) -> Tables:
    """The four tables of a folder. Raises DataError naming the file that is missing, cut short or damaged."""
    return Tables(*(_read_table(Path(directory) / f"{name}.parquet") for name in Tables._fields))


def read_rollouts(directory: str | Path) -> list[Rollout]:
    """The rollouts of a folder, by (group, rollout). Raises DataError naming the file and what to do."""
    try:
        return from_tables(read_tables(directory))
    except DataError as error:
        raise DataError(f"{directory}: {error}") from error
