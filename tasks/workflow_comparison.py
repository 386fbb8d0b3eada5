"""One agent, independent attempts and the communicating collective on the same tasks: what an acceptable result takes.

Two task sets of the environment's own generator: separable (coupling 0) and coupled (coupling 1), otherwise as task_set in
params.yaml, with the test split's seeds. The collective is run again with its messages muted and scrambled, with the same
keys: what that changes is what the messages were good for.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import envs
from rlcr_core.attempts import by_task
from rlcr_core.clock import LatencyModel
from rlcr_core.config import Params
from rlcr_core.errors import ConfigError, TaskError
from rlcr_core.manifests import atomic_write
from rlcr_core.precision import expanded_confidence
from rlcr_core.scripted import terms_of
from rlcr_core.statistics import Interval, paired_difference
from rlcr_core.tokens import Tokenizer
from rlcr_core.types import Float64Array, Rollout, Task
from rlcr_core.workflows import Effort, censored_median, claimed_effort, effort, oracle_effort, time_to
from tasks.evaluation import evaluate, evaluation_specs
from tasks.task_sets import generate_split
from tasks.workers import WorkerPool

TASK_SETS: Mapping[str, float] = {"separable": 0.0, "coupled": 1.0}  # name -> coupling
CONTROLS = ("mute", "scrambled")


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared: an acceptable return, and the sizes. `agents` may be employed beside the one who starts.

    Raises ConfigError for values that compare nothing.
    """

    environment: str
    acceptable: float
    tasks: int
    agents: int
    limit_s: float
    attempts: int

    def __post_init__(self) -> None:
        for name, is_sound, expected in (
            ("acceptable", self.acceptable > 0, "a return above 0"),
            ("tasks", self.tasks >= 2, "2 or more"),
            ("agents", self.agents >= 1, "1 or more"),
            ("limit", 0 < self.limit_s < math.inf, "positive seconds"),
            ("attempts", self.attempts >= 1, "1 or more"),
        ):
            if not is_sound:
                got = self.limit_s if name == "limit" else getattr(self, name)
                raise ConfigError(f"--{name} of a comparison: got {got}, expected {expected}; change --{name}.")


@dataclass(frozen=True, slots=True)
class Played:
    """The rollouts of one task set: `attempts` of one agent alone each, and the collective under each kind of messages."""

    attempts: list[Rollout]
    collective: dict[str, list[Rollout]]  # normal, mute, scrambled
    bounds_s: list[float]  # of each task, the least time to an acceptable result; empty where none is declared


def task_set(params: Params, question: Question, coupling: float) -> list[Task]:
    """The tasks of one set. Raises TaskError."""
    changes = {"environment": question.environment, "coupling": coupling, "test": question.tasks}
    return generate_split(params.task_set.model_copy(update=changes), "test")


def _arranged(params: Params, max_hires: int, messages: str) -> Params:
    changes = {"max_hires": max_hires, "staff": min(params.collective.staff, max_hires), "messages": messages}
    return params.model_copy(update={"collective": params.collective.model_copy(update=changes)})


def least_times(params: Params, question: Question, tasks: Sequence[Task], tokenizer: Tokenizer) -> list[float]:
    """Analytic bounds on the time to an acceptable result; empty for an environment that declares none."""
    arranged = _arranged(params, question.agents, "normal")
    found = []
    for task in tasks:
        environment = envs.make(task)
        try:
            bounds = envs.bounds(environment, terms_of(environment, tokenizer, arranged))
        except TaskError:
            return []
        found.append(float(bounds.least_time_s(question.acceptable)))
    return found


def play_attempts(params: Params, question: Question, tasks: Sequence[Task], pool: WorkerPool) -> list[Rollout]:
    """The attempts of one agent alone at each task, with the weights that the pool has. Raises GateError."""
    specs = evaluation_specs("compare", tasks, question.attempts, question.limit_s)
    return evaluate(specs, pool, _arranged(params, 0, "normal"))[1]


def play_collective(params: Params, question: Question, tasks: Sequence[Task], pool: WorkerPool) -> dict[str, list[Rollout]]:
    """The collective with its messages, without and with scrambled ones, all with the same keys. Raises GateError."""
    specs = evaluation_specs("compare", tasks, 1, question.limit_s)
    return {
        messages: evaluate(specs, pool, _arranged(params, question.agents, messages))[1] for messages in ("normal", *CONTROLS)
    }


def organisations(played: Played, question: Question, latency: LatencyModel) -> dict[str, list[list[Effort]]]:
    """Efforts of each way to work, by task id and rollout [K, N]; every attempt is one agent's rollout."""
    acceptable = question.acceptable
    attempts = list(by_task(played.attempts).values())

    def single(rollouts: Sequence[Rollout]) -> list[list[Effort]]:
        return [[effort(r, acceptable, latency) for r in members] for members in by_task(rollouts).values()]

    return {
        "one_agent": single(played.attempts),
        "attempts_oracle": [[oracle_effort(members, acceptable, latency)] for members in attempts],
        "attempts_claim": [[claimed_effort(members, acceptable, latency)] for members in attempts],
        "collective": single(played.collective["normal"]),
        **{name: single(played.collective[name]) for name in CONTROLS},
    }


def _values(efforts: list[list[Effort]], name: str) -> Float64Array:
    """[K, N] of one field, infinite where the result is not acceptable."""
    return np.array([[float(getattr(e, name)) if e.is_acceptable else math.inf for e in row] for row in efforts])


def _summary(efforts: list[list[Effort]], options: Mapping[str, Any]) -> dict[str, Any]:
    """Share that is acceptable, medians with intervals (null: not by the limit) and means of what was spent."""
    flat = [e for row in efforts for e in row]
    return {
        "acceptable_share": float(np.mean([e.is_acceptable for e in flat])),
        "return": float(np.mean([e.return_ for e in flat])),
        **{name: asdict(censored_median(_values(efforts, name), **options)) for name in ("time_s", "calls", "tokens")},
        "spent_in_vain": {  # medians of those without an acceptable result
            name: float(np.median(values)) if (values := [getattr(e, name) for e in flat if not e.is_acceptable]) else None
            for name in ("calls", "tokens")
        },
    }


def _effect(played: Played, control: str, question: Question, options: Mapping[str, Any]) -> dict[str, Any]:
    """Paired by task: return at the limit, and seconds to an acceptable result, at most the limit; and what they say."""

    def outcomes(messages: str) -> tuple[list[float], list[float]]:
        rollouts = sorted(played.collective[messages], key=lambda r: r.task_id)
        times = [min(time_to(r, question.acceptable), question.limit_s) for r in rollouts]
        return [r.return_ for r in rollouts], times

    return_, time_s = (paired_difference(a, b, **options) for a, b in zip(outcomes("normal"), outcomes(control), strict=True))
    return {"return": asdict(return_), "time_s": asdict(time_s), "verdict": _verdict(return_, time_s)}


def _verdict(return_: Interval, time_s: Interval) -> str:
    """`helped` with more return or sooner, `harmed` with less or later; `both`, or `unclear` where both hold zero."""
    helped, harmed = return_.low > 0 or time_s.high < 0, return_.high < 0 or time_s.low > 0
    return "both" if helped and harmed else "helped" if helped else "harmed" if harmed else "unclear"


def summarise_set(played: Played, question: Question, params: Params) -> dict[str, Any]:
    """Everything the table shows of one task set, as plain JSON. Raises DataError for fewer than two tasks."""
    config = params.evaluation
    options = {
        "resamples": config.bootstrap_resamples,
        "confidence": expanded_confidence(config.confidence, question.tasks),
    }
    efforts = organisations(played, question, LatencyModel(params.latency))
    return {
        "organisations": {name: _summary(rows, options) for name, rows in efforts.items()},
        "messages": {name: _effect(played, name, question, options) for name in CONTROLS},
        "bound_s": float(np.median(played.bounds_s)) if played.bounds_s else None,
        "hires": float(np.mean([rollout.n_hires for rollout in played.collective["normal"]])),
    }


def _rows(name: str, played: Played, question: Question, latency: LatencyModel) -> Iterator[list[Any]]:
    """A row a rollout, for the CSV file."""
    every = {"one_agent": played.attempts, "collective": played.collective["normal"]}
    every |= {control: played.collective[control] for control in CONTROLS}
    for organisation, rollouts in every.items():
        for r in sorted(rollouts, key=lambda r: (r.task_id, r.key.rollout)):
            e = effort(r, question.acceptable, latency)
            time_s = repr(e.time_s) if e.is_acceptable else ""
            yield [
                name, organisation, r.task_id, r.key.rollout, repr(r.return_), time_s, e.calls, e.tokens, repr(r.end_s),
                r.stop_reason.value, r.n_hires,
            ]  # fmt: skip


COLUMNS = (
    "task_set", "organisation", "task_id", "rollout", "return", "time_to_acceptable_s", "calls", "tokens", "end_s",
    "stop_reason", "hires",
)  # fmt: skip


def write_comparison(folder: Path, results: Mapping[str, Played], question: Question, params: Params) -> dict[str, Any]:
    """Write rollouts.csv and last summary.json; returns the summary. Raises StoreError, DataError."""
    summary = {
        "question": asdict(question),
        "confidence": params.evaluation.confidence,
        "task_sets": {name: summarise_set(played, question, params) for name, played in results.items()},
    }
    latency = LatencyModel(params.latency)
    buffer = io.StringIO()
    rows = [row for name, played in results.items() for row in _rows(name, played, question, latency)]
    csv.writer(buffer, lineterminator="\n").writerows([COLUMNS, *rows])
    atomic_write(folder / "rollouts.csv", buffer.getvalue().encode())
    atomic_write(folder / "summary.json", (json.dumps(summary, indent=1, sort_keys=True) + "\n").encode())
    return summary
