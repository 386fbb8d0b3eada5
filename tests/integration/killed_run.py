"""A training run in a process of its own that kills itself with SIGKILL: `killed_run.py <project> [<moment>]`.

The moment is the name of a file or folder of iteration 3: the process dies right before that is moved into its place, when
the work is done and the record of it is not. Workers live in this process, and nothing is tracked or judged, so that a
life costs seconds. Without a moment the run goes on to its end.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rlcr_core import manifests
from rlcr_core.config import load_params
from tasks import training
from tasks.paths import Project
from tests.support import LocalPool, NoTracker

ITERATION = 3


class Believer:
    """Finds nothing to object to; the real validator takes seconds to import."""

    def check(self, *_: Any) -> list[Any]:
        return []


def die_before(moment: str, run: training.TrainingRun) -> None:
    """Replace os.replace of the store by one that kills the process when `moment` of iteration 3 is about to be placed."""
    replace = os.replace
    places = (run.folder.iteration(ITERATION), run.folder.checkpoint(ITERATION + 1).parent, run.folder.path)

    def deadly(source: Any, target: Any) -> None:
        path = Path(target)
        within = any(path.parent == place or path.parent.parent == place for place in places)
        if within and path.name == moment and run.done >= ITERATION:
            os.kill(os.getpid(), signal.SIGKILL)
        replace(source, target)

    manifests.os.replace = deadly  # type: ignore[attr-defined]


def main(root: Path, moment: str | None) -> None:
    project, params = Project(root), load_params(root / "params.yaml")
    training.validator = lambda: Believer()  # type: ignore[assignment,return-value]
    inputs = training.Inputs(project, params, "collective", 0)
    pool, tracker = LocalPool(params, inputs.tasks[0]), NoTracker()
    writer = ThreadPoolExecutor(1)
    run = training.TrainingRun(project, params, inputs, pool, tracker, writer)  # type: ignore[arg-type]
    if moment:
        die_before(moment, run)
    for it in run.remaining():
        for stage in (training.plan, training.sync, training.sample, training.validate, training.learn, training.evaluate):
            stage(it)
        training.finish(it)
        training.close(it)
    training.export(run)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None)
