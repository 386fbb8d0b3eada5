"""The stages of one training iteration, in their order: plan, sync, sample, validate, learn, evaluate, finish.

Each stage takes the iteration, does its part once (its manifest says whether it is done) and leaves what the next stages
need in memory. Whatever is killed is repeated from the last manifest with the same bytes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from rlcr_core.config import Mode, Params
from rlcr_core.engines.openai import training_refusal
from rlcr_core.errors import ConfigError
from rlcr_core.manifests import atomic_write, canonical_json, digest_bytes
from rlcr_core.metrics import iteration_metrics
from rlcr_core.seeds import derive
from rlcr_core.store import Tables
from rlcr_core.types import Rollout
from rlcr_core.weights import MODEL_FILE
from tasks.evaluation import evaluation_stage
from tasks.history import History
from tasks.identity import Identity, identify, read_schedule
from tasks.learner import Learner, keep_recent
from tasks.paths import Project
from tasks.plan import Plan, make_plan
from tasks.progress import Reporter, describe
from tasks.registry import PolicyVersion, model_name, weights_digest
from tasks.rejection import validate_stage
from tasks.rollouts import sample_stage
from tasks.runtime import settle
from tasks.task_sets import read_tasks
from tasks.timings import Timings
from tasks.traces import log_traces
from tasks.tracking import Tracker, open_run
from tasks.update import update_stage
from tasks.validation import validator
from tasks.weight_sync import publish, sync_weights
from tasks.workers import RolloutWorker, WorkerPool

FINAL_WINDOW = 10  # iterations that the final metrics are averaged over
FINAL = (  # what DVC compares; curves.csv has every metric
    "reward/return_mean", "roster/hires", "talk/true_share", "talk/intensity_tps", "work/received_key_mean",
    "work/useful_tokens_per_s", "time/limit_s", "optim/entropy", "excluded/share", "evaluation/reward/return_mean",
    "evaluation/roster/hires", "evaluation/talk/true_share",
)  # fmt: skip


class Inputs:
    """What earlier stages made. Reading it raises TaskError, DataError or StoreError naming the file that is damaged."""

    def __init__(self, project: Project, params: Params, mode: Mode, seed: int) -> None:
        self.identity: Identity = identify(project, params, mode, seed)
        self.tasks = read_tasks(project.tasks("train"))
        self.validation_tasks = read_tasks(project.tasks("validation"))
        self.limits = read_schedule(project.schedule, params.train.iterations)


class TrainingRun:
    """What lives as long as a run: policy, workers, history, tracker, and the thread that writes while others work.

    Plain object: an orchestrator must not look inside.
    """

    def __init__(
        self, project: Project, params: Params, inputs: Inputs, pool: WorkerPool, tracker: Tracker, writer: Executor
    ) -> None:
        self.project, self.params, self.pool, self.tracker, self.writer = project, params, pool, tracker, writer
        self.identity = inputs.identity
        self.folder = self.identity.folder(project)
        self.tasks, self.validation_tasks, self.limits = inputs.tasks, inputs.validation_tasks, inputs.limits
        self.learner = Learner(params, project.base)
        self.history = History.read(self.folder)
        self.history.resume(self.learner)
        if self.history.metrics:
            self.history.write()

    @property
    def done(self) -> int:
        return len(self.history.metrics)

    def remaining(self) -> Iterator[Iteration]:
        """The iterations that are not finished, in order."""
        while self.done < self.params.train.iterations:
            yield Iteration(self, self.done)


class Iteration:
    """One iteration on its way through the stages."""

    def __init__(self, run: TrainingRun, number: int) -> None:
        self.run, self.number = run, number
        self.folder = run.folder.iteration(number)
        self.timings = Timings()
        self.plan: Plan
        self.tables: Tables
        self.stored: Future[None]
        self.rollouts: list[Rollout]
        self.trained: list[Rollout]
        self.metrics: dict[str, float] = {}
        self.checkpoint = ""


def plan(it: Iteration) -> None:
    """Fix tasks, seeds, limit and weights."""
    run = it.run
    with it.timings("plan"):
        digest, seed, config = run.learner.published.digest, run.identity.seed, run.params.rollouts
        it.plan = make_plan(
            it.folder, run.identity.name, seed, it.number, run.tasks, run.limits[it.number], digest, config
        )


def sync(it: Iteration) -> None:
    """The learner's weights on every worker."""
    with it.timings("sync"):
        sync_weights(it.run.learner, it.run.pool)


def sample(it: Iteration) -> None:
    """Run and store the iteration's rollouts."""
    run = it.run
    with it.timings("rollouts"):
        specs = it.plan.specs(run.tasks)
        it.tables, busy_s, it.stored = sample_stage(
            it.folder, it.plan.digests, specs, run.pool, run.params, run.writer
        )
        it.timings.sampling_s += busy_s


def validate(it: Iteration) -> None:
    """Check the tables, set bad rollouts aside, keep the ledger; meanwhile the tables are being stored."""
    with it.timings("validation"):
        try:
            _judge(it)
        finally:
            it.stored.result()


def _judge(it: Iteration) -> None:
    share = it.run.params.validation.max_excluded_share
    it.rollouts, it.trained = validate_stage(
        it.folder, it.plan.digests, it.tables, validator(), it.number, it.plan.limit_s, share, it.stored
    )
    it.metrics |= iteration_metrics(it.trained)
    every = it.metrics if len(it.trained) == len(it.rollouts) else iteration_metrics(it.rollouts)
    it.metrics |= {f"all/{key}": value for key, value in every.items() if key.split("/")[0] in ("reward", "stop")}
    it.metrics["excluded/share"] = 1.0 - len(it.trained) / len(it.rollouts)


def learn(it: Iteration) -> None:
    """One update of the policy, and the checkpoint of the next version."""
    run, version = it.run, it.number + 1
    with it.timings("update"):
        seed = derive("update", run.identity.name, it.number)
        metrics, it.checkpoint, gradient_s = update_stage(
            it.folder,
            it.plan.digests,
            it.trained,
            run.learner,
            run.params.update,
            run.folder.checkpoint(version),
            version,
            seed,
            it.number / max(1, run.params.train.iterations - 1),
        )
        it.metrics |= metrics
        it.timings.gradient_s += gradient_s
        publish(run.learner, run.pool)


def is_checked(it: Iteration) -> bool:
    """Whether the iteration is a `train.evaluate_every`-th or the last one: what costs more than it is worth each time."""
    version, config = it.number + 1, it.run.params.train
    return version % config.evaluate_every == 0 or version == config.iterations


def evaluate(it: Iteration) -> None:
    """Every `train.evaluate_every` iterations, and after the last: the new policy on the validation tasks."""
    run = it.run
    if not is_checked(it):
        return
    sync(it)
    with it.timings("evaluation"):
        inputs = {"weights": it.checkpoint}
        metrics, busy_s = evaluation_stage(
            it.folder, inputs, run.identity.seed, run.validation_tasks, run.pool, run.params
        )
        it.metrics |= metrics
        it.timings.sampling_s += busy_s


def finish(it: Iteration) -> None:
    """Mark the iteration as done, bring the files up to date, remove old checkpoints."""
    run = it.run
    with it.timings("store"):
        run.history.add(it.number, it.metrics, it.checkpoint)
        keep_recent(run.folder, it.number + 1, run.params.train.checkpoint_every)


def close(it: Iteration) -> None:
    """Write where the iteration's seconds went; nothing depends on it."""
    it.timings.write(it.folder / "timings.json")


def track(it: Iteration) -> None:
    """One call to MLflow, written while the next iteration runs; `time/tracking_s` is what had to be waited for."""
    with it.timings("tracking"):
        it.run.tracker.flush()
    it.run.tracker.log(it.run.history.metrics[it.number] | it.timings.metrics(), it.number)
    if is_checked(it):
        log_traces(it.run.tracker, it.trained, it.run.learner.tokenizer)


def catch_up(run: TrainingRun) -> None:
    """Log finished iterations that MLflow does not have: a run may be killed between the two."""
    known = run.tracker.logged("reward/return_mean") if run.done else set()
    for iteration, metrics in enumerate(run.history.metrics):
        if iteration not in known:
            run.tracker.log(metrics, iteration)


def export(run: TrainingRun) -> Path:
    """Copy the final checkpoint, its metrics and the curves to artifacts/, and to MLflow and its registry. Raises StoreError."""
    target = run.project.trained(run.identity.mode, run.identity.seed)
    shutil.rmtree(target, ignore_errors=True)
    run.learner.export(target / "checkpoint")
    final = {key: value for key, value in run.history.final(FINAL_WINDOW).items() if key in FINAL}
    atomic_write(target / "metrics.json", canonical_json(final, f"The metrics of {run.identity.name}"))
    run.history.write_curves(target / "curves.csv")
    # MLflow shows a model's metrics among its run's: another name keeps them out of the curves.
    final = {f"final/{key}": value for key, value in final.items()}
    run.tracker.log_model(target / "checkpoint", run.identity.name, final)
    run.tracker.register_model(_version(run, target / "checkpoint", final["final/evaluation/reward/return_mean"]))
    return target


def _version(run: TrainingRun, checkpoint: Path, return_: float) -> PolicyVersion:
    """What the model registry keeps of the trained policy; returns are comparable where the measure is the same."""
    measured = {key: run.identity.params[key] for key in ("latency", "collective", "evaluation")}
    measure = digest_bytes(canonical_json(measured | {"tasks": run.identity.inputs["validation"]}, "The measure"))[:8]
    name = model_name(run.params.tracking.experiment, run.identity.mode)
    return PolicyVersion(name, weights_digest(checkpoint), run.identity.seed, return_, measure)


def check_supported(params: Params) -> None:
    """Refuse a combination that would train on other probabilities than were sampled from. Raises ConfigError."""
    if params.engine.kind == "openai":
        raise ConfigError(training_refusal())
    slowest_s, config = max(params.schedule.end_s, params.schedule.start_s, params.evaluation.limit_s), params.rollouts
    if config.clock == "wall" and config.worker_timeout_s < slowest_s + 2 * config.grace_s:
        raise ConfigError(
            f"On the wall clock a worker needs the limit and twice the grace, {slowest_s + 2 * config.grace_s:g} s, got "
            f"{config.worker_timeout_s:g} s; raise rollouts.worker_timeout_s."
        )
    if params.rollouts.top_p < 1.0:
        raise ConfigError(
            f"Training needs the probabilities of the whole vocabulary: rollouts.top_p is {params.rollouts.top_p:g}, expected 1; "
            "set rollouts.top_p to 1."
        )


@contextmanager
def open_training(
    project: Project, params: Params, mode: Mode, seed: int, worker: type[RolloutWorker] = RolloutWorker
) -> Iterator[TrainingRun]:
    """Everything a run needs, opened before anything is sampled and closed whatever happens.

    Raises ConfigError, TaskError, WeightError or StoreError when an input or a store cannot be used.
    """
    began = time.monotonic()
    check_supported(params)
    inputs = Inputs(project, params, mode, seed)
    identity, own = inputs.identity, params.for_mode(mode)
    folder = identity.folder(project)
    files = {name: project.tasks(name) for name in ("train", "validation")}
    files |= {"schedule": project.schedule, "base": project.base / MODEL_FILE}
    tags = {"mode": mode, "seed": str(seed), "digest": identity.digest, "folder": folder.name}
    with (  # the workers start while MLflow is being imported
        WorkerPool(own, inputs.tasks[0], worker) as pool,
        open_run(project, own, identity.name, folder.tracking, files, tags) as tracker,
        ThreadPoolExecutor(1, "tables") as writer,
    ):
        run = TrainingRun(project, own, inputs, pool, tracker, writer)
        catch_up(run)
        validator()
        settle()
        pool.wait_started()
        tracker.log({"time/start_s": time.monotonic() - began}, run.done)
        yield run


def report(run: TrainingRun) -> Reporter:
    """The progress of a run; it starts at what is already done."""
    return Reporter(f"train {run.identity.name}", run.params.train.iterations, run.done)


def words(it: Iteration) -> str:
    return describe(it.run.history.metrics[it.number], it.plan.limit_s, it.timings.sampling_s)
