"""Ray rollout workers: a fixed layout, their own deadlines, and whoever does not answer is replaced.

Groups go to workers round-robin, whole, so a batch's composition and with it every bit of the results depends on the
plan and the number of workers alone. A worker cuts its batch at `rollouts.worker_timeout_s` real seconds and returns
what is finished; the driver waits `rollouts.grace_s` more, then kills it, counts its rollouts as failed, and starts
another. Nothing is retried here (max_task_retries=0): a sampled rollout is never silently run again.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import torch

import envs
from rlcr_core.config import Params, RolloutsConfig
from rlcr_core.engines.asynchronous import face
from rlcr_core.engines.base import AsyncEngine
from rlcr_core.errors import ConfigError, EngineFault, RLCRError, WeightError
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.seeds import rollout_seed
from rlcr_core.store import Tables, to_tables
from rlcr_core.tokens import PolicyTokenizer
from rlcr_core.types import Rollout, StopReason, Task
from rlcr_core.wall import run_wall_rollouts
from rlcr_core.weights import Published
from tasks.engines import build_engine, sync_engine, worker_threads
from tasks.probe import Probe
from tasks.runtime import keep_memory, settle

OBJECT_STORE_BYTES = 256 * 2**20
START_TIMEOUT_S = 600.0  # an actor that has not started by then never will; vLLM alone may take minutes


class RolloutWorker:
    """One process with one engine and the weights of one version. Made into a Ray actor by WorkerPool."""

    def __init__(self, params: Params, example: Task) -> None:
        keep_memory()
        self._params = params
        self._example = example
        self._engine: Any = None
        self._face: AsyncEngine | None = None  # of the engine, for the wall clock
        self._tokenizer: PolicyTokenizer | None = None
        self._proved: tuple[Published, Probe] | None = None

    async def started(self) -> None:
        """Returns once this process runs."""

    async def sync(self, published: Published, probe: Probe) -> int:
        """Load weights by digest and prove them; returns the engine's version. Raises WeightError, the old weights stay."""
        return await asyncio.to_thread(self._sync, published, probe)

    def _sync(self, published: Published, probe: Probe) -> int:
        torch.set_num_threads(worker_threads(self._params))
        if self._engine is None:
            self._engine, self._tokenizer = build_engine(published.policy, self._params, self._example, version=-1)
            settle()
        try:
            version = sync_engine(self._engine, published, probe, self._params)
        except WeightError:
            self._restore()
            raise
        self._proved = published, probe
        return version

    def _restore(self) -> None:
        """Go back to the weights that were proved last; without any there is no engine."""
        if self._proved is None:
            self._engine.close()
            self._engine = self._face = None
        else:
            sync_engine(self._engine, *self._proved, self._params)

    async def run(self, specs: list[RolloutSpec], params: Params) -> tuple[Tables, float]:
        """The rollouts' tables and the seconds it took; unfinished ones are `failed` after worker_timeout_s."""
        return await asyncio.to_thread(self._run, specs, params)

    def _run(self, specs: list[RolloutSpec], params: Params) -> tuple[Tables, float]:
        if self._engine is None or self._tokenizer is None:
            raise EngineFault("the worker has no weights yet; sync it before it runs rollouts")
        torch.set_num_threads(worker_threads(self._params))
        started = time.monotonic()
        limit_s = params.rollouts.worker_timeout_s
        if params.rollouts.clock == "wall":
            self._face = self._face or face(self._engine)
            rollouts = run_wall_rollouts(specs, envs.make, self._face, self._tokenizer, params)
        else:
            rollouts = run_rollouts(
                specs, envs.make, self._engine, self._tokenizer, params, lambda: time.monotonic() - started > limit_s
            )
        busy_s = time.monotonic() - started
        return to_tables(rollouts), busy_s


@dataclass(slots=True)
class Batch:
    """What came back: tables of the workers that answered, failed rollouts of those that did not."""

    tables: list[Tables] = field(default_factory=list)
    lost: list[Rollout] = field(default_factory=list)
    busy_s: float = 0.0  # of the slowest worker


def lost_rollout(spec: RolloutSpec, error: str) -> Rollout:
    """A rollout of which nothing came back."""
    return Rollout(
        spec.key,
        spec.task.id,
        spec.limit_s,
        rollout_seed(spec.key),
        stop_reason=StopReason.FAILED,
        attempt=spec.attempt,
        error=error,
    )


def start_ray() -> None:
    """Start a local Ray, or join the one that RAY_ADDRESS names. Idempotent."""
    if ray.is_initialized():
        return
    local: dict[str, Any] = {} if os.environ.get("RAY_ADDRESS") else {"object_store_memory": OBJECT_STORE_BYTES}
    logging.getLogger("ray._private.authentication").setLevel(logging.ERROR)
    ray.init(include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR, **local)


class WorkerPool:
    """`rollouts.workers` actors. Use as a context manager; the actors end with it (Ray itself goes on)."""

    def __init__(self, params: Params, example: Task, worker: type[RolloutWorker] = RolloutWorker) -> None:
        start_ray()
        self.params = params
        self.published: Published | None = None
        self._probe: Probe | None = None
        self._loading: tuple[Published, Probe, list[Any]] | None = None
        self._example = example
        resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
        self._actor_class = ray.remote(worker).options(
            **reserved(params.rollouts, resources),
            max_restarts=0,
            max_task_retries=0,
            runtime_env={"env_vars": {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(_import_path())}},
        )
        self._actors = [self._start() for _ in range(params.rollouts.workers)]

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._actors:
            ray.kill(actor, no_restart=True)
        self._actors = []

    def _start(self) -> Any:
        return self._actor_class.remote(self.params, self._example)

    def wait_started(self) -> None:
        """Wait until every worker's process has imported what it needs, so that no iteration is charged for it.

        Raises EngineFault when one does not start.
        """
        refs = [actor.started.remote() for actor in self._actors]
        ready, missing = ray.wait(refs, num_returns=len(refs), timeout=START_TIMEOUT_S)
        if missing:
            raise EngineFault(
                f"{len(missing)} of {len(refs)} rollout workers did not start within {START_TIMEOUT_S:g} s; "
                "look at the load of the machine, or lower rollouts.workers."
            )
        for ref in ready:
            try:
                ray.get(ref)
            except ray.exceptions.RayError as error:
                raise EngineFault(f"A rollout worker did not start: {_first_line(error)}; start the run again.") from error

    # -- weights -----------------------------------------------------------------------------------------------------

    def sync(self, published: Published, probe: Probe) -> None:
        """Bring every worker to this version; nothing to do when it is there. Raises WeightError: the run must stop."""
        if self.published != published:
            self.start_sync(published, probe)
            self.confirm()

    def start_sync(self, published: Published, probe: Probe) -> None:
        """Let every worker begin to load this version; `confirm`, or the next `run`, waits for it."""
        if self._loading is not None and self._loading[0] == published:
            return
        self._loading = (published, probe, [actor.sync.remote(published, probe) for actor in self._actors])

    def confirm(self) -> None:
        """Wait for what `start_sync` began; only then is the version the pool's. Raises WeightError: the run must stop."""
        if self._loading is None:
            return
        (published, probe, refs), self._loading = self._loading, None
        self._confirm(refs, published)
        self.published, self._probe = published, probe

    def _confirm(self, refs: list[Any], published: Published) -> None:
        wait_s = START_TIMEOUT_S + self.params.rollouts.grace_s
        ready, missing = ray.wait(refs, num_returns=len(refs), timeout=wait_s)
        if missing:
            raise WeightError(
                f"{len(missing)} of {len(refs)} rollout workers did not load version {published.version} within {wait_s:g} s; "
                "look at the load of the machine, or lower rollouts.workers."
            )
        for ref in ready:
            version = _get(ref, f"loading version {published.version}")
            if version != published.version:
                raise WeightError(
                    f"A rollout worker confirms version {version}, expected {published.version}; start the run again."
                )

    # -- rollouts ----------------------------------------------------------------------------------------------------

    def run(self, specs: Sequence[RolloutSpec], params: Params | None = None) -> Batch:
        """Run every rollout once. Returns within worker_timeout_s + grace_s, whatever a worker does."""
        self.confirm()
        if self.published is None:
            raise WeightError("The rollout workers have no weights; sync them before they run rollouts.")
        params = params or self.params
        shares = layout(specs, len(self._actors))
        refs = {
            actor.run.remote(share, params): number
            for number, (actor, share) in enumerate(zip(self._actors, shares, strict=True))
            if share
        }
        config = params.rollouts
        ready, late = ray.wait(list(refs), num_returns=len(refs), timeout=config.worker_timeout_s + config.grace_s)
        batch, broken = Batch(), []
        for ref in sorted(ready, key=refs.__getitem__):
            try:
                tables, seconds = ray.get(ref)
            except Exception as error:  # a died actor, or a fault that run_rollouts could not pin on one rollout
                self._lose(
                    batch, shares[refs[ref]], f"the rollout worker failed: {type(error).__name__}: {_first_line(error)}"
                )
                broken.append(refs[ref])
                continue
            batch.tables.append(tables)
            batch.busy_s = max(batch.busy_s, seconds)
        for ref in late:
            timeout = f"{config.worker_timeout_s:g} + {config.grace_s:g} s"
            self._lose(batch, shares[refs[ref]], f"the rollout worker did not answer within {timeout}; it was killed")
            broken.append(refs[ref])
        self._replace(broken)
        return batch

    @staticmethod
    def _lose(batch: Batch, share: list[RolloutSpec], error: str) -> None:
        batch.lost.extend(lost_rollout(spec, error) for spec in share)

    def _replace(self, numbers: list[int]) -> None:
        """Kill these actors, start new ones and give them the current weights."""
        for number in numbers:
            ray.kill(self._actors[number], no_restart=True)
            self._actors[number] = self._start()
        if numbers and self.published is not None and self._probe is not None:
            refs = [self._actors[number].sync.remote(self.published, self._probe) for number in numbers]
            self._confirm(refs, self.published)


def reserved(config: RolloutsConfig, cluster: Mapping[str, float]) -> dict[str, float]:
    """What Ray sets aside for each worker: `num_cpus`, and `num_gpus` where the parameters ask for GPUs.

    Raises ConfigError when the cluster has fewer GPUs: Ray would wait for them without a word.
    """
    share = min(1.0, cluster.get("CPU", 1.0) / (config.workers + 1))
    if not config.gpus_per_worker:
        return {"num_cpus": share}
    each, present = config.gpus_per_worker, cluster.get("GPU", 0.0)
    wanted = config.workers * each if each >= 1 else math.ceil(config.workers / math.floor(1 / each))  # none spans two GPUs
    if wanted > present:
        raise ConfigError(
            f"{config.workers} rollout workers with {each:g} GPUs each need {wanted:g}, but Ray's cluster has "
            f"{present:g}; lower rollouts.workers or rollouts.gpus_per_worker, or name a larger cluster in RAY_ADDRESS."
        )
    return {"num_cpus": share, "num_gpus": each}


def layout(specs: Sequence[RolloutSpec], workers: int) -> list[list[RolloutSpec]]:
    """Whole groups round-robin, in order of their first appearance."""
    groups = list(dict.fromkeys(spec.key.group for spec in specs))
    place = {group: index % workers for index, group in enumerate(groups)}
    shares: list[list[RolloutSpec]] = [[] for _ in range(workers)]
    for spec in specs:
        shares[place[spec.key.group]].append(spec)
    return shares


def _get(ref: Any, doing: str) -> Any:
    """A ready result. The project's own error comes out as itself, anything else as a WeightError."""
    try:
        return ray.get(ref)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, RLCRError):
            raise error.cause from None
        raise WeightError(f"A rollout worker failed while {doing}: {_first_line(error.cause)}.") from error
    except ray.exceptions.RayError as error:
        raise WeightError(f"A rollout worker died while {doing}: {_first_line(error)}; start the run again.") from error


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [repr(error)])[0]


def _import_path() -> list[str]:
    """Where this process finds the project's packages; workers must find the same ones."""
    roots = [os.path.dirname(os.path.dirname(os.path.abspath(envs.__file__)))]
    present = os.environ.get("PYTHONPATH")
    return [*roots, *(present.split(os.pathsep) if present else [])]
