"""When rollouts on the wall clock are really over: `python -m benchmarks.wall_clock`.

64 rollouts of the workshop at once, its tools ten times as fast, scripted agents that hire up to eight, every turn random
and valid. Prints how long after its limit each rollout was over (median, 99th percentile, worst), in milliseconds, for

    paced      players that speak at the latency model's pace, no thread
    threaded   a stepwise engine in its own thread, a step of 20 ms gives every running action one token
    hung       the same engine; in every eighth rollout the first work call never returns: over by limit + grace

and checks that none is lost and the ledger adds up. Exit code 1 when sampling is more than 50 ms late at the 99th
percentile, or a hung rollout later than the grace.
"""

from __future__ import annotations

import argparse
import random
import sys
import threading
import time
from collections.abc import Sequence

import numpy as np

import envs
from envs.workshop.environment import WorkshopEnvironment
from rlcr_core.clock import LatencyModel
from rlcr_core.config import Params, load_params, parse_params
from rlcr_core.engines.asynchronous import PacedPlayers, ThreadedEngine
from rlcr_core.engines.base import AsyncEngine, CacheKey
from rlcr_core.ledger import ledger
from rlcr_core.players import Play
from rlcr_core.rollout import RolloutSpec
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import Call, CallResult, Rollout, RolloutKey, Sample, SampleRequest, StopReason, Task, TurnKind
from rlcr_core.wall import run_wall_rollouts
from tasks.runtime import settle
from tasks.task_sets import generate_split

ROLLOUTS, EVERY, STEP_S, ALLOWED_MS = 64, 8, 0.02, 50.0


class StepPlayers:
    """Scripted players as a stepwise engine: a step takes as long as a forward pass and gives each action one token."""

    def __init__(self, play: Play, tokenizer: WordTokenizer) -> None:
        self.play, self.tokenizer, self.version = play, tokenizer, 0
        self.running: dict[CacheKey, tuple[list[int], int]] = {}  # the action, how much of it was sampled
        self.lock = threading.Lock()

    def begin(self, request: SampleRequest) -> None:
        text = self.play(self.tokenizer.decode(request.new_ids), request.cache_key, request.seed)
        with self.lock:
            self.running[request.cache_key] = (self.tokenizer.encode(text)[: request.max_tokens], 0)

    def step(self) -> list[tuple[CacheKey, Sample]]:
        time.sleep(STEP_S)
        with self.lock:
            self.running = {key: (ids, n + 1) for key, (ids, n) in self.running.items()}
            return self._take([key for key, (ids, n) in self.running.items() if n == len(ids)])

    def abort(self, cache_keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Sample]]:
        with self.lock:
            return self._take([key for key in cache_keys if key in self.running])

    def _take(self, keys: Sequence[CacheKey]) -> list[tuple[CacheKey, Sample]]:
        taken = [(key, *self.running.pop(key)) for key in keys]
        return [(key, Sample(ids[:n], [0.0] * n, 0)) for key, ids, n in taken]

    def release(self, cache_keys: Sequence[CacheKey]) -> None: ...

    def close(self) -> None: ...


class QuickWorkshop(WorkshopEnvironment):
    """Builds and studies in a tenth of the time, so that a limit of seconds holds many turns."""

    def begin(self, agent: int, call: Call, time_s: float) -> float:
        return super().begin(agent, call, time_s) / 10


class HungWorkshop(QuickWorkshop):
    """A workshop whose first piece of work never ends."""

    def finish(self, agent: int, call: Call, time_s: float) -> CallResult:
        if call.kind is TurnKind.WORK:
            threading.Event().wait()
        return super().finish(agent, call, time_s)


def params_for(grace_s: float) -> Params:
    """The checked-in parameters with hires that begin at once and turns of half a second, so that limits can be short."""
    data = load_params().model_dump(mode="json")
    data["latency"] |= {"turn_overhead_s": 0.1, "prefill_tps": 1000.0, "decode_tps": 10.0}
    data["collective"] |= {"hire_s": 0.1, "onboarding_s": 0.1, "wait_s": 0.2, "error_s": 0.1}
    data["rollouts"] |= {"grace_s": grace_s}
    return parse_params(data)


def measure(name: str, limit_s: float, params: Params, tasks: Sequence[Task], play: Play, tokenizer: WordTokenizer) -> bool:
    """Run one scenario and print its row; whether it holds."""
    hung = {task.id for task in tasks[::EVERY]} if name == "hung" else set()
    engine: AsyncEngine = ThreadedEngine(StepPlayers(play, tokenizer))
    if name == "paced":
        engine = PacedPlayers(play, tokenizer, LatencyModel(params.latency))
    late_ms: dict[RolloutKey, float] = {}
    specs = [RolloutSpec(RolloutKey("wall", 0, n // 8, n), task, limit_s) for n, task in enumerate(tasks)]
    rollouts = run_wall_rollouts(
        specs, lambda task: HungWorkshop(task) if task.id in hung else QuickWorkshop(task), engine, tokenizer, params,
        lambda rollout, over_s: late_ms.update({rollout.key: 1e3 * (over_s - limit_s)}),
    )  # fmt: skip
    excluded = {(r.key.group, r.key.rollout): "failed" for r in rollouts if r.stop_reason is StopReason.FAILED}
    account = ledger(rollouts, excluded)
    adds_up = [r.key for r in rollouts] == [s.key for s in specs] and account["dispatched"] == ROLLOUTS == (
        account["trained"] + sum(account["excluded"].values())
    )
    sound = np.array([late_ms[r.key] for r in rollouts if r.stop_reason is not StopReason.FAILED])
    broken = np.array([late_ms[r.key] for r in rollouts if r.stop_reason is StopReason.FAILED])
    p50, p99 = np.percentile(sound, [50, 99])
    describe(name, rollouts, f"{p50:8.1f}{p99:8.1f}{sound.max():8.1f}{broken.max(initial=0.0):10.1f}", adds_up)
    grace_ms = 1e3 * params.rollouts.grace_s
    return bool(adds_up and len(broken) == len(hung) and p99 <= ALLOWED_MS and broken.max(initial=0.0) <= grace_ms)


def describe(name: str, rollouts: Sequence[Rollout], figures: str, adds_up: bool) -> None:
    agents = sum(len(r.agents) for r in rollouts)
    turns = [turn for r in rollouts for turn in r.turns()]
    cut = sum(turn.cut for turn in turns)
    print(f"{name:10}{agents:8}{len(turns):8}{cut:6}{figures}   {'adds up' if adds_up else 'LOST'}", flush=True)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--limit", type=float, default=4.0, help="seconds of each rollout (default: %(default)s)")
    arguments.add_argument("--grace", type=float, default=1.0, help="rollouts.grace_s (default: %(default)s)")
    arguments.add_argument("--repeat", type=int, default=3, help="times each scenario runs (default: %(default)s)")
    options = arguments.parse_args()
    params = params_for(options.grace)
    tasks = generate_split(params.task_set, "train")[:ROLLOUTS]
    vocabulary = envs.make(tasks[0]).vocabulary()
    assert vocabulary is not None
    grammar = envs.grammar(tasks[0].environment)

    def play(observation: str, key: CacheKey, seed: int) -> str:
        action: str = grammar.random_action(observation, random.Random(seed))
        return action

    settle()
    print(f"{'':10}{'agents':>8}{'turns':>8}{'cut':>6}{'p50 ms':>8}{'p99 ms':>8}{'max ms':>8}{'hung ms':>10}   ledger")
    holds = True
    for name in ("paced", "threaded", "hung"):
        for _ in range(options.repeat):
            holds &= measure(name, options.limit, params, tasks, play, WordTokenizer(vocabulary))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
