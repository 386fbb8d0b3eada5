"""Progress of a stage: a live bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

LINE_EVERY_S = 10.0  # between plain lines


class Reporter:
    """Counts `total` steps; each may bring a few words on how things stand."""

    def __init__(self, title: str, total: int, done: int = 0, console: Console | None = None) -> None:
        self._title, self._total, self._done, self._first = title, total, done, done
        self._console = console or Console(file=sys.stdout, highlight=False)
        self._started = time.monotonic()
        self._last_line_s = -LINE_EVERY_S
        self._bar: Progress | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._bar = Progress(
                TextColumn("{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                TextColumn("{task.fields[words]}"),
                console=self._console,
            )
            self._bar.start()
            self._task = self._bar.add_task(self._title, total=self._total, completed=self._done, words="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, words: str, done: int | None = None) -> None:
        """One more step is done (or `done` of them in all)."""
        self._done = self._done + 1 if done is None else done
        if self._bar is not None:
            self._bar.update(self._task, completed=self._done, words=words)
            return
        now_s = time.monotonic() - self._started
        if now_s - self._last_line_s >= LINE_EVERY_S or self._done == self._total:
            self._last_line_s = now_s
            self._console.print(f"{self._title} {self._done}/{self._total} {words} {self._left(now_s)}", soft_wrap=True)

    def _left(self, now_s: float) -> str:
        fresh = self._done - self._first
        if not fresh or self._done >= self._total:
            return f"after {now_s:.0f} s"
        return f"after {now_s:.0f} s, about {now_s / fresh * (self._total - self._done):.0f} s left"


def describe(metrics: dict[str, float], limit_s: float, seconds: float) -> str:
    """The words of one training iteration: limit, return, hires, sampled tokens per second."""
    rate = metrics.get("tokens/total", 0.0) / seconds if seconds > 0 else 0.0
    return (
        f"limit {limit_s:5.1f} s  return {metrics.get('reward/return_mean', 0.0):.3f}  "
        f"hires {metrics.get('roster/hires', 0.0):.1f}  {rate:,.0f} tokens/s"
    )
