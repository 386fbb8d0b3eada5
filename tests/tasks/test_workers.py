"""Workers that are late, dead or broken never wedge an iteration, and every dispatched rollout comes back exactly once."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, DataError, WeightError
from rlcr_core.manifests import digest_file
from rlcr_core.policy import load_policy
from rlcr_core.rollout import RolloutSpec
from rlcr_core.store import Tables, from_tables, to_tables
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import RolloutKey, StopReason, Task
from rlcr_core.weights import MODEL_FILE, Published
from tasks.paths import Project
from tasks.probe import Probe, make_probe
from tasks.rollouts import Collected, collect, failed_keys, keys_of, merge, select, without
from tasks.task_sets import read_tasks
from tasks.workers import Batch, RolloutWorker, WorkerPool, layout, lost_rollout, reserved
from tests.support import changed, make_project, rollout

VICTIM = 1  # the group that goes wrong
SLOW_S, DEADLY_S = 11.0, 13.0  # limits that make it go wrong


class UnreliableWorker(RolloutWorker):
    """Group 1 under a limit of 11 s never answers at its first attempt, whatever the worker's own deadline says; under 13 s
    the process ends without a word. For version 1 its engine disagrees with the trainer by 0.01 nats."""

    def _run(self, specs: list[RolloutSpec], params: Params) -> tuple[Tables, float]:
        for spec in specs:
            if spec.key.group == VICTIM and spec.limit_s == DEADLY_S:
                os._exit(1)
            if spec.key.group == VICTIM and spec.limit_s == SLOW_S and spec.attempt == 0:
                time.sleep(600)
        return super()._run(specs, params)

    def _sync(self, published: Published, probe: Probe) -> int:
        wrong = [[value + 0.01 for value in row] for row in probe.expected] if published.version == 1 else probe.expected
        return super()._sync(published, Probe(probe.ids, wrong))


class Setting:
    """A small project's tasks, its published base, and a pool that the tests share: starting a worker takes seconds."""

    def __init__(self, root: Path, params: Params) -> None:
        project = Project(make_project(root, params))
        self.params = params
        self.hurried = changed(params, {"rollouts": {"worker_timeout_s": 1.0, "grace_s": 1.0}})
        self.tasks = read_tasks(project.tasks("train"))
        self.published = Published(project.base, digest_file(project.base / MODEL_FILE), 0)
        self.probe = make_probe(load_policy(project.base), len(WordTokenizer.load(project.base)))
        self.pool = WorkerPool(params, self.tasks[0], UnreliableWorker)

    def specs(self, limit_s: float = 12.0) -> list[RolloutSpec]:
        return [RolloutSpec(RolloutKey("collective-0", 0, g, r), self.tasks[g], limit_s) for g in range(3) for r in range(2)]


@pytest.fixture(scope="module")
def setting(cluster: None, params: Params, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Setting]:
    made = Setting(tmp_path_factory.mktemp("project"), params)
    with made.pool:
        with pytest.raises(WeightError, match="no weights"):
            made.pool.run(made.specs())
        made.pool.sync(made.published, made.probe)
        yield made


def summary(collected: Collected) -> dict[tuple[int, int], tuple[StopReason, int]]:
    return {(r.key.group, r.key.rollout): (r.stop_reason, r.attempt) for r in from_tables(collected.tables)}


def test_the_same_rollouts_come_back_the_same_and_complete(setting: Setting) -> None:
    first = collect(setting.specs(), setting.pool, setting.params)
    second = collect(setting.specs(), setting.pool, setting.params)
    assert all(a.equals(b) for a, b in zip(first.tables, second.tables, strict=True))
    assert keys_of(first.tables.rollouts) == [(g, r) for g in range(3) for r in range(2)]
    assert failed_keys(first.tables) == set()


def test_a_worker_that_never_answers_is_replaced_and_its_rollouts_run_again_once(setting: Setting) -> None:
    collected = collect(setting.specs(SLOW_S), setting.pool, setting.hurried)
    # Groups 0 and 2 went to worker 0, group 1 to worker 1, which was killed after 1 + 1 s.
    assert {key: attempt for key, (_, attempt) in summary(collected).items()} == {
        (0, 0): 0, (0, 1): 0, (1, 0): 1, (1, 1): 1, (2, 0): 0, (2, 1): 0,
    }  # fmt: skip
    assert failed_keys(collected.tables) == set()
    assert collected.retried == 2


def test_a_worker_that_dies_every_time_costs_its_rollouts_only(setting: Setting) -> None:
    found = summary(collect(setting.specs(DEADLY_S), setting.pool, setting.params))
    assert {key for key, (reason, _) in found.items() if reason is StopReason.FAILED} == {(1, 0), (1, 1)}
    assert found[1, 0] == (StopReason.FAILED, 1)
    assert len(found) == 6


def test_a_worker_cuts_its_own_batch_and_returns_the_unfinished_as_failed(setting: Setting) -> None:
    cut = changed(setting.params, {"rollouts": {"worker_timeout_s": 1e-6, "retries": 0, "grace_s": 60.0}})
    collected = collect(setting.specs(), setting.pool, cut)
    assert {reason for reason, _ in summary(collected).values()} == {StopReason.FAILED}
    assert "worker_timeout_s" in from_tables(collected.tables)[0].error


def test_a_wrong_probe_stops_the_run_and_advances_no_version(setting: Setting) -> None:
    with pytest.raises(WeightError, match=r"not the trainer's.*not advanced"):
        setting.pool.sync(setting.published._replace(version=1), setting.probe)
    assert setting.pool.published == setting.published
    rollouts = from_tables(collect(setting.specs()[:2], setting.pool, setting.params).tables)
    assert {turn.policy_version for r in rollouts for turn in r.turns()} == {0}  # workers kept the proved weights


def test_weights_that_are_still_loading_are_waited_for(setting: Setting) -> None:
    setting.pool.start_sync(setting.published._replace(version=0), setting.probe)
    setting.pool.start_sync(setting.published._replace(version=0), setting.probe)  # once is enough
    rollouts = from_tables(collect(setting.specs()[:2], setting.pool, setting.params).tables)
    assert {turn.policy_version for r in rollouts for turn in r.turns()} == {0}
    assert setting.pool.published == setting.published


def test_weights_with_another_digest_are_refused(setting: Setting) -> None:
    with pytest.raises(WeightError, match="expected SHA-256 0000"):
        setting.pool.sync(Published(setting.published.path, "0000", 1), setting.probe)


# -- without Ray ----------------------------------------------------------------------------------------------------------


def test_groups_stay_whole_and_go_round() -> None:
    task = Task("t", "workshop@1", "train", 0, {})
    specs = [RolloutSpec(RolloutKey("x", 0, g, r), task, 1.0) for g in (0, 1, 2, 3, 4) for r in (0, 1)]
    shares = [[(s.key.group, s.key.rollout) for s in share] for share in layout(specs, 2)]
    assert shares == [[(g, r) for g in (0, 2, 4) for r in (0, 1)], [(g, r) for g in (1, 3) for r in (0, 1)]]


def test_merged_tables_equal_those_of_all_rollouts_together() -> None:
    rollouts = [rollout(g, r, turns=g + 1, agents=2) for g in range(3) for r in range(2)]
    parts = [to_tables([r for r in rollouts if r.key.group % 2 == half]) for half in (1, 0)]
    whole = to_tables(rollouts)
    assert all(a.equals(b) for a, b in zip(merge(parts), whole, strict=True))
    some = {(0, 1), (2, 0)}
    assert keys_of(select(whole, some).rollouts) == sorted(some)
    assert set(keys_of(without(whole, some).turns)) == {(0, 0), (1, 0), (1, 1), (2, 1)}


class Pool:
    """Returns what it was told to, attempt by attempt."""

    def __init__(self, *batches: Batch) -> None:
        self.batches = list(batches)

    def run(self, specs: list[RolloutSpec], params: Params) -> Batch:
        return self.batches.pop(0)


def test_a_rollout_that_comes_back_twice_or_not_at_all_is_an_error(params: Params) -> None:
    task = Task("task-0", "workshop@1", "train", 0, {})
    specs = [RolloutSpec(RolloutKey("collective-0", 0, 0, r), task, 10.0) for r in (0, 1)]
    both = to_tables([rollout(0, 0), rollout(0, 1)])
    for tables in (to_tables([rollout(0, 0)]), merge([both, to_tables([rollout(0, 1)])])):
        with pytest.raises(DataError, match="group and rollout"):
            collect(specs, Pool(Batch([tables])), params)  # type: ignore[arg-type]


def test_a_retry_keeps_key_and_limit_and_replaces_the_failed_attempt(params: Params) -> None:
    task = Task("task-0", "workshop@1", "train", 0, {})
    specs = [RolloutSpec(RolloutKey("collective-0", 0, 0, r), task, 10.0) for r in (0, 1)]
    first = Batch([to_tables([rollout(0, 0)])], [lost_rollout(specs[1], "gone")], 2.0)
    second = Batch([to_tables([rollout(0, 1, attempt=1)])], [], 1.0)
    collected = collect(specs, Pool(first, second), params)  # type: ignore[arg-type]
    assert summary(collected) == {(0, 0): (StopReason.DEADLINE, 0), (0, 1): (StopReason.DEADLINE, 1)}
    assert (collected.busy_s, collected.retried) == (3.0, 1)


def test_gpus_are_reserved_where_asked_for_and_refused_where_ray_would_wait(params: Params) -> None:
    """Three workers: 4 CPUs / (3 + 1) = 1 CPU each, 1 / 4 of one CPU each. 3 x 2 GPUs = 6 > 5."""
    config = params.rollouts.model_copy(update={"workers": 3})
    assert reserved(config, {"CPU": 4.0, "GPU": 8.0}) == {"num_cpus": 1.0}
    assert reserved(config, {"CPU": 1.0}) == {"num_cpus": 0.25}
    config = config.model_copy(update={"gpus_per_worker": 2.0})
    assert reserved(config, {"CPU": 4.0, "GPU": 6.0}) == {"num_cpus": 1.0, "num_gpus": 2.0}
    with pytest.raises(ConfigError, match=r"with 2 GPUs each need 6, but Ray's cluster has 5; lower rollouts\.workers"):
        reserved(config, {"CPU": 4.0, "GPU": 5.0})
    with pytest.raises(ConfigError, match="has 0"):
        reserved(config, {"CPU": 4.0})
    shared = config.model_copy(update={"gpus_per_worker": 0.6})  # two do not fit on one GPU: three workers need three
    assert reserved(shared, {"CPU": 4.0, "GPU": 3.0}) == {"num_cpus": 1.0, "num_gpus": 0.6}
    with pytest.raises(ConfigError, match="need 3, but Ray's cluster has 2"):
        reserved(shared, {"CPU": 4.0, "GPU": 2.0})
