"""Commands side by side, a few at a time, each with its own output file; the first that fails stops what has not begun."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from rlcr_core.errors import StageError

LAST_LINES = 12  # of a failed command's output, in the error


@dataclass(frozen=True, slots=True)
class Command:
    """A Python module to run in a folder; its output goes to `log`."""

    name: str
    folder: Path
    module: str
    arguments: tuple[str, ...]
    log: Path


def run_command(command: Command, lane: int) -> float:
    """Run it and return its seconds. Raises StageError with the end of its output when it fails."""
    began = time.monotonic()
    command.log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "PYTHONPATH": str(command.folder.resolve()),
        "OMP_NUM_THREADS": "1",
        # Two embedded Prefect servers must not share a database.
        "PREFECT_HOME": str((command.folder / ".prefect" / f"lane-{lane}").resolve()),
    }
    with open(command.log, "ab") as log:
        code = subprocess.run(
            [sys.executable, "-m", command.module, *command.arguments],
            cwd=command.folder, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        ).returncode  # fmt: skip
    if code:
        text = command.log.read_text(encoding="utf-8", errors="replace")
        raise StageError(
            f"{command.name} ended with exit code {code}. The end of {command.log}:\n"
            + "\n".join(text.splitlines()[-LAST_LINES:])
            + "\nCorrect what it names and run the same command again: what is finished is kept."
        )
    return time.monotonic() - began


def run_lanes(commands: Sequence[Command], lanes: int, done: Callable[[Command, float], None]) -> None:
    """Run all, in order of the sequence, `lanes` at a time; `done` is called after each. Raises the first StageError.

    After a failure running commands are waited for and those that have not begun never do.
    """
    free, lock = list(range(lanes)), threading.Lock()

    def run(command: Command) -> float:
        with lock:
            lane = free.pop()
        try:
            return run_command(command, lane)
        finally:
            with lock:
                free.append(lane)

    waiting = iter(commands)
    with ThreadPoolExecutor(lanes, "lane") as pool:
        running = {pool.submit(run, command): command for command in islice(waiting, lanes)}
        while running:
            finished, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in finished:
                done(running.pop(future), future.result())  # raises what failed; those that run are waited for
                running |= {pool.submit(run, command): command for command in islice(waiting, 1)}
