"""Lanes: calls that may block, off the event loop and in the order in which they were made.

A `ThreadLane` has one daemon thread, so a call that never returns holds up neither the loop, nor another lane, nor the end
of the process. `InlineLane` calls at once, for tests on virtual time, where waiting for a thread would cost no time.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Protocol


class Lane(Protocol):
    """Runs calls one after the other; `run` gives the future of a call's result or error."""

    def run(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...

    def close(self) -> None:
        """No more calls come; does not wait for the one that runs."""


def settle(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    """Give a future its outcome, on its own loop; nothing for one that its waiter has given up."""
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


def portable(error: BaseException) -> Exception:
    """The error as one that a task can await: a call's SystemExit or CancelledError must not end or cancel its waiter."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    return RuntimeError(f"raised {error!r}")


def post(loop: asyncio.AbstractEventLoop, call: Callable[..., Any], *args: Any) -> None:
    """Run a call on a loop from another thread; nothing on a loop that is closed, where nobody waits any more."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise


class ThreadLane:
    """One thread, started by the first call."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...], asyncio.Future[Any]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name=self.name, daemon=True)
            self._thread.start()
        self._calls.put((call, args, future))
        return future

    def close(self) -> None:
        self._calls.put(None)

    def _serve(self) -> None:
        while (job := self._calls.get()) is not None:
            call, args, future = job
            result, error = None, None
            try:
                result = call(*args)
            except BaseException as raised:
                error = portable(raised)
            post(future.get_loop(), settle, future, result, error)
            del job, call, args, future, result, error  # nothing of a finished call is kept while the lane waits


class InlineLane:
    """Calls in the loop's own thread."""

    def __init__(self, name: str) -> None:
        self.name = name

    def run(self, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(call(*args))
        except BaseException as error:
            future.set_exception(portable(error))
        return future

    def close(self) -> None:
        """Nothing is held."""
