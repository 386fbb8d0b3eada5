"""An event loop in a thread of its own: asynchronous work for callers that wait, and for those on another loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from rlcr_core.errors import EngineFault

T = TypeVar("T")


class EventLoopThread:
    """One daemon thread that runs one event loop until `close`."""

    def __init__(self, name: str) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name=name, daemon=True)
        self._closed = False
        self._thread.start()

    @property
    def is_closed(self) -> bool:
        return self._closed

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Start the work there; `asyncio.wrap_future` makes the result awaitable on any other loop."""
        if self._closed:
            work.close()
            raise EngineFault("the engine is closed; build a new one")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Wait for the work. Raises TimeoutError after `timeout_s` real seconds; the work is then cancelled."""
        future = self.submit(work)
        try:
            return future.result(timeout_s)
        except BaseException:
            future.cancel()
            raise

    def close(self, wait_s: float = 10.0) -> None:
        """Stop and join the thread; whatever still runs there is cancelled. Idempotent.

        A thread that is stuck in a blocking call is left behind after `wait_s` real seconds and ends by itself.
        """
        if self._closed:
            return
        self._closed = True
        asyncio.run_coroutine_threadsafe(self._cancel_all(), self.loop)
        self._thread.join(wait_s)
        if not self._thread.is_alive():
            self.loop.close()

    async def _cancel_all(self) -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.loop.call_soon(self.loop.stop)
