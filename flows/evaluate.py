"""Compare organisations on the test tasks: `python -m flows.evaluate`; `python -m flows.table` prints the last table again.

Every organisation gets the same tasks and seeds; a cell of the grid that is done is not run again.
Results: artifacts/evaluation/.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from prefect import flow, task
from prefect.cache_policies import NO_CACHE

from flows import cli
from rlcr_core.config import Params, load_params
from rlcr_core.tokens import load_tokenizer
from rlcr_core.types import Rollout
from tasks.announce import announce_evaluation
from tasks.comparison import headline, write_comparison
from tasks.evaluation_runs import nested_run
from tasks.grid import MAIN, Cell, CellKey, Grid, cells, run_cell
from tasks.lifeline import guard_server
from tasks.organisations import BY_NAME, organisations
from tasks.paths import Project
from tasks.progress import Reporter
from tasks.table import print_table
from tasks.task_sets import read_tasks
from tasks.traces import log_traces
from tasks.tracking import evaluation_run_file, flatten, open_run
from tasks.workers import WorkerPool


class Job:
    """Project, parameters, workers and what came back so far; a plain object that the orchestrator does not look into."""

    def __init__(self, project: Project, params: Params, pool: WorkerPool) -> None:
        self.project, self.params, self.pool = project, params, pool
        self.results: dict[CellKey, list[Rollout]] = {}


@task(cache_policy=NO_CACHE, persist_result=False, task_run_name="{name}")
def run_one(job: Job, cell: Cell, name: str) -> None:
    job.results[cell.key] = run_cell(job.project, job.params, cell, job.pool)


@flow(name="evaluate", persist_result=False)
def evaluate(params_file: str = "params.yaml") -> dict[str, Any]:
    """Run every cell of the grid, write the comparison, log it; returns the summary."""
    guard_server()
    project, params = Project.here(), load_params(params_file)
    test, config = project.tasks("test"), params.evaluation
    state = evaluation_run_file(project, params)
    chosen = organisations(params.train.modes, config.organisations, params.engine.kind == "openai")
    wanted = cells(config, chosen, list(params.task_set.variants), params.train.seeds)
    with (
        WorkerPool(params, read_tasks(test)[0]) as pool,
        open_run(project, params, "evaluation", state, {"test": test}) as tracker,
        Reporter("evaluate", len(wanted)) as bar,
    ):
        job = Job(project, params, pool)
        for cell in wanted:
            run_one(job, cell, cell.name)
            bar.step(cell.name)
        summary = write_comparison(project.evaluation, job.results, params)
        tracker.log(
            {f"evaluation/{key.replace('.', '/')}": value for key, value in flatten(headline(summary)).items()}, 0
        )
        for name in ("summary.json", "curves.csv"):
            tracker.log_folder(project.evaluation / name, "evaluation")
        if params.engine.kind != "openai":
            log_policies(project, params, job.results, summary)
        announce_evaluation(summary)
    return summary


def log_policies(project: Project, params: Params, results: Grid, summary: Mapping[str, Any]) -> None:
    """Each trained policy's figures and traces of its rollouts, in an MLflow run nested under the run that trained it."""
    tokenizer, limit_s = load_tokenizer(project.base), params.evaluation.limit_s
    for mode in params.train.modes:
        for seed in params.train.seeds:
            entries = [e for e in summary["organisations"] if e["seed"] == seed and BY_NAME[e["name"]].policy == mode]
            with nested_run(project, params, mode, seed, {"test": project.tasks("test")}) as tracker:
                tracker.log({f"evaluation/{e['name']}/{key}": e[key] for e in entries for key in ("mean", "hires", "tokens")}, 0)
                rollouts = results.get((mode, limit_s, MAIN, seed))
                if rollouts:
                    log_traces(tracker, rollouts, tokenizer, tags={"organisation": mode})


def main(argv: Sequence[str] | None = None) -> int:
    return cli.run(lambda options: print_table(evaluate(options.params)), cli.parser(__doc__), argv)


if __name__ == "__main__":
    sys.exit(main())
