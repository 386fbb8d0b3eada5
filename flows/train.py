"""Train one policy: `python -m flows.train --mode collective --seed 0`. Interrupted and started again, it goes on.

A Prefect flow with one task per stage and iteration (about 3 ms each). The stages are in tasks/training.py; a stage
that fails fails the flow. Only the two that do nothing but write are retried.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ParamSpec, cast, get_args

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import cli
from rlcr_core.config import Mode, load_params
from tasks import training
from tasks.announce import announce_training
from tasks.lifeline import guard_server
from tasks.paths import Project

P = ParamSpec("P")


def stage(function: Callable[P, None], retries: int = 0) -> Callable[P, None]:
    """A stage as a Prefect task: never cached or stored by Prefect, because its own manifest says whether it is done."""
    wait_s = 2 if retries else 0
    made = task(cache_policy=NO_CACHE, persist_result=False, retries=retries, retry_delay_seconds=wait_s)(function)
    return cast(Callable[P, None], made)


plan, sync, sample = stage(training.plan), stage(training.sync), stage(training.sample)
validate, learn, evaluate = stage(training.validate), stage(training.learn), stage(training.evaluate)
finish, track = stage(training.finish, retries=2), stage(training.track, retries=2)


@flow(name="train", flow_run_name="train-{mode}-{seed}", persist_result=False)
def train(mode: Mode, seed: int, params_file: str = "params.yaml") -> str:
    """All iterations of one run; returns the folder of what DVC keeps."""
    guard_server()
    with (
        training.open_training(Project.here(), load_params(params_file), mode, seed) as run,
        training.report(run) as bar,
    ):
        for it in run.remaining():
            plan(it)
            sync(it)
            sample(it)
            validate(it)
            learn(it)
            evaluate(it)
            finish(it)
            track(it)
            training.close(it)
            bar.step(training.words(it))
        target = training.export(run)
        announce_training(run)
    return str(target)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = cli.parser(__doc__)
    arguments.add_argument("--mode", choices=get_args(Mode), default="collective")
    arguments.add_argument("--seed", type=int, default=0)
    return cli.run(lambda o: print(f"trained: {Path(train(o.mode, o.seed, o.params))}"), arguments, argv)


if __name__ == "__main__":
    sys.exit(main())
