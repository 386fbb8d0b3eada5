"""An event loop on virtual time: whenever nothing is ready, its clock jumps to the next timer.

Programs that wait for nothing but timers run at once and the same on any machine. Threads are not waited for.
"""

from __future__ import annotations

import asyncio
import selectors
from typing import Any


class VirtualLoop(asyncio.SelectorEventLoop):
    """Starts at time 0. Raises RuntimeError where everybody waits and no timer is left: a lost wake-up."""

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self._now_s

    def jump(self, seconds: float) -> None:
        """Let virtual time pass."""
        self._now_s += seconds


class _Jumping(selectors.SelectSelector):
    """What the loop sleeps in: polls, and moves the clock instead of sleeping."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, Any]]:
        events = super().select(0)
        if not events:
            if timeout is None:
                raise RuntimeError("every task waits, and no timer will ever wake one")
            self._loop.jump(timeout)
        return events
