"""Run an iteration's rollouts: each once, failed ones once more with the same seed, then store."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from rlcr_core.config import Params
from rlcr_core.errors import DataError
from rlcr_core.manifests import Manifest, read_manifest, write_manifest
from rlcr_core.rollout import RolloutSpec
from rlcr_core.store import Tables, read_tables, to_tables, write_rollouts
from rlcr_core.types import StopReason
from tasks.workers import WorkerPool

Key = tuple[int, int]  # (group, rollout)


@dataclass(frozen=True, slots=True)
class Collected:
    """Every dispatched rollout exactly once, ordered by (group, rollout), and the workers' own seconds."""

    tables: Tables
    busy_s: float
    retried: int


def collect(specs: Sequence[RolloutSpec], pool: WorkerPool, params: Params) -> Collected:
    """Run all rollouts; those that failed run `rollouts.retries` more times with the same seed and a higher attempt.

    A rollout that stays `failed` is in the tables as such. Raises DataError when a worker returns a rollout that nobody
    asked for, or none for one that was.
    """
    parts: list[Tables] = []
    todo, busy_s, retried = list(specs), 0.0, 0
    for attempt in range(params.rollouts.retries + 1):
        batch = pool.run(todo, params)
        busy_s += batch.busy_s
        got = merge([*batch.tables, to_tables(batch.lost)])
        _check_complete(got, todo)
        failed = failed_keys(got)
        if not failed or attempt == params.rollouts.retries:
            parts.append(got)
            break
        parts.append(without(got, failed))
        todo = [replace(spec, attempt=attempt + 1) for spec in todo if (spec.key.group, spec.key.rollout) in failed]
        retried += len(todo)
    return Collected(merge(parts), busy_s, retried)


def keys_of(table: pa.Table) -> list[Key]:
    """(group, rollout) of each row."""
    return list(zip(table["group"].to_pylist(), table["rollout"].to_pylist(), strict=True))


def failed_keys(tables: Tables) -> set[Key]:
    reasons = tables.rollouts["stop_reason"].to_pylist()
    return {key for key, reason in zip(keys_of(tables.rollouts), reasons, strict=True) if reason == StopReason.FAILED}


def without(tables: Tables, keys: set[Key]) -> Tables:
    """The tables without the rows of these rollouts."""
    return select(tables, set(keys_of(tables.rollouts)) - keys)


def select(tables: Tables, keys: set[Key]) -> Tables:
    """The rows of these rollouts, in their order."""
    if keys == set(keys_of(tables.rollouts)):
        return tables
    wanted = pa.array([_code(g, r) for g, r in sorted(keys)], pa.int64())
    return Tables(*(table.filter(pc.is_in(_codes(table), value_set=wanted)) for table in tables))


def merge(parts: Sequence[Tables]) -> Tables:
    """One set of tables ordered by (group, rollout); the order inside a rollout stays."""
    merged = []
    for tables in zip(*parts, strict=True):
        table = pa.concat_tables(tables).combine_chunks()
        merged.append(table.take(pc.sort_indices(_codes(table))).combine_chunks())
    return Tables(*merged)


def _code(group: int, rollout: int) -> int:
    return (group << 32) + rollout


def _codes(table: pa.Table) -> pa.ChunkedArray:
    return pc.add(pc.shift_left(table["group"], pa.scalar(32, pa.int64())), table["rollout"])


def _check_complete(tables: Tables, specs: Sequence[RolloutSpec]) -> None:
    got, expected = sorted(keys_of(tables.rollouts)), sorted((spec.key.group, spec.key.rollout) for spec in specs)
    if got != expected:
        odd = sorted(set(got) ^ set(expected)) or [key for key in got if got.count(key) > 1]
        raise DataError(
            f"The rollout workers returned {len(got)} rollouts for {len(expected)} dispatched; group and rollout "
            f"{odd[0]} is missing, unknown or doubled. Start the run again; the iteration is sampled anew."
        )


def sample_stage(
    folder: Path, inputs: dict[str, str], specs: Sequence[RolloutSpec], pool: WorkerPool, params: Params, writer: Executor
) -> tuple[Tables, float, Future[None]]:
    """Run the iteration's rollouts, or read the stored ones; returns them, busy seconds, and the writing still under way.

    `writer` stores the tables in `folder`/rollouts and then the stage's manifest, while the caller validates them; the
    future raises StoreError when the disk refuses. Raises DataError for stored tables that are damaged.
    """
    if read_manifest(folder, "rollouts", inputs) is not None:
        stored: Future[None] = Future()
        stored.set_result(None)
        return read_tables(folder / "rollouts"), 0.0, stored
    collected = collect(specs, pool, params)
    return collected.tables, collected.busy_s, writer.submit(_store, folder, inputs, collected)


def _store(folder: Path, inputs: dict[str, str], collected: Collected) -> None:
    files = write_rollouts(folder / "rollouts", collected.tables)
    named = {f"rollouts/{name}": digest for name, digest in files.items()}
    write_manifest(folder, Manifest("rollouts", inputs, named, {"retried": collected.retried}))
