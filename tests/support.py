"""What several tests need: small parameters, a small project, hand-made rollouts, workers without Ray."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import yaml

from rlcr_core.config import Params, load_params, parse_params
from rlcr_core.policy import build_policy, save_policy
from rlcr_core.rollout import RolloutSpec
from rlcr_core.schedule import write_schedule_csv
from rlcr_core.types import AgentRecord, Event, EventType, Rollout, RolloutKey, StopReason, Task, Turn, TurnKind
from rlcr_core.weights import Published
from tasks.paths import SPLITS, Project
from tasks.probe import Probe
from tasks.registry import PolicyVersion
from tasks.task_sets import generate_split, write_tasks
from tasks.warm_start import make_tokenizer
from tasks.workers import Batch, RolloutWorker, layout

ROOT = Path(__file__).resolve().parent.parent
TINY = {
    "task_set": {"train": 8, "validation": 2, "test": 3},
    "rollouts": {"tasks_per_iteration": 2, "group_size": 2, "workers": 2, "worker_timeout_s": 60.0, "grace_s": 10.0},
    "train": {"iterations": 5, "evaluate_every": 2, "checkpoint_every": 3},
    "evaluation": {"limit_s": 20.0, "bootstrap_resamples": 50},
}


def changed(params: Params, sections: dict[str, dict[str, object]]) -> Params:
    """The parameters with some values of some sections replaced, validated again."""
    data = params.model_dump(mode="json")
    for section, values in sections.items():
        data[section] |= values
    return parse_params(data)


def tiny_params() -> Params:
    return changed(load_params(ROOT / "params.yaml"), TINY)


def make_project(root: Path, params: Params) -> Path:
    """Write params.yaml, task files, schedule and a base with random weights."""
    project = Project(root)
    (root / "params.yaml").write_text(yaml.safe_dump(params.model_dump(mode="json")))
    tasks: list[Task] = []
    for split in SPLITS:
        tasks = generate_split(params.task_set, split)
        write_tasks(project.tasks(split), tasks)
    write_schedule_csv(params.schedule, params.train.iterations, project.schedule)
    tokenizer = make_tokenizer(tasks[0])
    save_policy(build_policy(params.policy, len(tokenizer), 0), tokenizer, project.base)
    return root


def rollout(group: int = 0, number: int = 0, turns: int = 2, agents: int = 1, **changes: object) -> Rollout:
    """A sound rollout under a limit of 10 s: turns of 2 s each with two tokens, a reward of 0.25 at 3 s."""
    made = Rollout(
        RolloutKey("collective-0", 0, group, number), f"task-{group}", 10.0, 1, stop_reason=StopReason.DEADLINE, end_s=10.0
    )
    for agent in range(agents):
        made.agents.append(AgentRecord(agent, f"name{agent}", 0.0, 0.0))
        made.trajectories[agent] = [
            Turn(agent, i, i, [2, 3, 4], [5, 6], [-0.5, -1.5], 2.0 * i, 2.0 * i + 2.0, TurnKind.WORK, 0) for i in range(turns)
        ]
    made.events = [Event(3.0, EventType.REWARD, 0, -1, 0.25)]
    for name, value in changes.items():
        setattr(made, name, value)
    return made


class LocalPool:
    """A WorkerPool of one worker inside this process."""

    def __init__(self, params: Params, example: Task) -> None:
        self.params = params
        self.published: Published | None = None
        self._workers = [RolloutWorker(params, example) for _ in range(params.rollouts.workers)]

    def sync(self, published: Published, probe: Probe) -> None:
        if self.published != published:
            for worker in self._workers:
                worker._sync(published, probe)
            self.published = published

    start_sync = sync

    def confirm(self) -> None:
        """Nothing loads in the background here."""

    def run(self, specs: Sequence[RolloutSpec], params: Params | None = None) -> Batch:
        started = time.monotonic()
        shares = layout(specs, len(self._workers))
        tables = [w._run(share, params or self.params)[0] for w, share in zip(self._workers, shares, strict=True) if share]
        return Batch(tables, [], time.monotonic() - started)


class NoTracker:
    """A tracker that forgets."""

    run_id = "none"

    def log(self, metrics: dict[str, float], step: int) -> None: ...

    def flush(self) -> None: ...

    def logged(self, key: str) -> set[int]:
        return set()

    def log_folder(self, folder: Path, name: str) -> None: ...

    def log_model(self, folder: Path, name: str, metrics: dict[str, float]) -> None: ...

    def register_model(self, version: PolicyVersion) -> None: ...

    def attempt(self, what: str, job: Callable[[], None]) -> None: ...
