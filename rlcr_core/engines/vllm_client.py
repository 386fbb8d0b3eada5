"""One running vLLM: its asyncio side in a thread here, its processes below, and what happens when it dies or hangs.

Every call ends: with vLLM's answer, with an EngineFault as soon as vLLM is dead, or with one when it stops making progress.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from rlcr_core.config import EngineConfig
from rlcr_core.engines.event_loop import EventLoopThread
from rlcr_core.engines.vllm_process import Counts, Serving, start_vllm
from rlcr_core.errors import EngineFault, RLCRError

T = TypeVar("T")
SHUTDOWN_S = 3.0  # vLLM's processes are given this long to end by themselves


class VllmClient:
    """Starts vLLM on a folder and talks to it. `dead` is the reason once it is gone; `llm` is vLLM's AsyncLLM."""

    def __init__(self, folder: Path, config: EngineConfig, serving: Serving) -> None:
        self.counts = Counts()
        self.dead = ""
        self._stall_s, self._control_s = config.request_timeout_s, serving.start_timeout_s
        self._waiting = 0  # requests in flight
        self._thread = EventLoopThread("vllm")
        try:
            self.llm = self._thread.run(self._start(folder, config, serving), serving.start_timeout_s)
        except BaseException as error:
            self.dead = "it was not waited for"
            self._thread.close(SHUTDOWN_S)
            if isinstance(error, TimeoutError):
                raise EngineFault(
                    f"vLLM did not start within {serving.start_timeout_s:g} s; is the machine busy with something else? A start "
                    "takes 20 to 70 s on two free cores."
                ) from None
            raise

    async def _start(self, folder: Path, config: EngineConfig, serving: Serving) -> Any:
        self._death: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        llm = start_vllm(folder, config, serving, self.counts)
        if self.dead:
            llm.shutdown(SHUTDOWN_S)  # too late: nobody would ever close it
            raise EngineFault(self.dead)
        self._watch = asyncio.create_task(self._watch_progress(llm))
        return llm

    # -- for any thread ----------------------------------------------------------------------------------------------

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work on vLLM's loop and wait for it."""
        return self._thread.run(work)

    def submit(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run the work on vLLM's loop; await the result on the caller's."""
        return asyncio.wrap_future(self._thread.submit(work))

    def control_and_wait(self, work: Coroutine[Any, Any, T]) -> T:
        """`control` from another thread."""
        return self.wait(self.control(work))

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the work on vLLM's loop; nobody waits."""
        self._thread.submit(work)

    def die(self, reason: str) -> None:
        """From here on every request, running or new, is an EngineFault."""
        self.dead = self.dead or reason
        self._thread.loop.call_soon_threadsafe(lambda: None if self._death.done() else self._death.set_result(self.dead))

    def close(self) -> None:
        """End vLLM and its processes; what runs ends with EngineFault. Idempotent."""
        if self._thread.is_closed:
            return
        self.die("it was closed")
        try:
            self._thread.run(self._shutdown(), 10 * SHUTDOWN_S)
        finally:
            self._thread.close()

    async def _shutdown(self) -> None:
        self._watch.cancel()
        while self._waiting:  # they end by the death that was declared
            await asyncio.sleep(0.01)
        await asyncio.to_thread(self.llm.shutdown, SHUTDOWN_S)

    # -- on vLLM's loop ----------------------------------------------------------------------------------------------

    async def request(self, ids: list[int], parameters: Any, name: str, adapter: Any = None) -> Any:
        """The final RequestOutput of one request. Raises EngineFault."""
        self._waiting += 1
        try:
            return await self._until_death(self._last_output(ids, parameters, name, adapter))
        finally:
            self._waiting -= 1

    async def control(self, work: Coroutine[Any, Any, T]) -> T:
        """A call that is no request, such as pause or reload. Raises EngineFault, also when it takes start_timeout_s."""
        return await self._until_death(asyncio.wait_for(work, self._control_s))

    async def _last_output(self, ids: list[int], parameters: Any, name: str, adapter: Any) -> Any:
        from vllm.inputs import tokens_input

        last = None
        async for output in self.llm.generate(tokens_input(ids), parameters, name, lora_request=adapter):
            last = output
        return last

    async def _until_death(self, work: Coroutine[Any, Any, T]) -> T:
        """The work's result; it is cancelled when vLLM dies first."""
        task = asyncio.ensure_future(work)
        either: set[asyncio.Future[Any]] = {task, self._death}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise EngineFault(f"the engine died: {self._death.result()}")
        except (RLCRError, asyncio.CancelledError):
            raise
        except Exception as error:
            if self.llm.errored:
                self.die(f"{type(error).__name__}: {error}")
                raise EngineFault(f"the engine died: {self.dead}") from error
            raise EngineFault(f"vLLM failed: {type(error).__name__}: {error}") from error
        finally:
            if not task.done():
                task.cancel()

    async def _watch_progress(self, llm: Any) -> None:
        """Silence of vLLM for engine.request_timeout_s while requests run is a hang.

        A tick counts for twice its length at most: when this process itself was stopped, vLLM's answers wait to be read.
        """
        tick_s = min(1.0, self._stall_s / 10)
        silent_s, last_step, last_tick = 0.0, self.counts.last_step, time.monotonic()
        while True:
            await asyncio.sleep(tick_s)
            now = time.monotonic()
            silent_s += min(now - last_tick, 2 * tick_s)
            if not self._waiting or self.counts.last_step != last_step:
                silent_s = 0.0
            last_tick, last_step = now, self.counts.last_step
            if llm.errored:
                self.die("its process ended")
            elif silent_s > self._stall_s:
                self.die(f"no token for {silent_s:.0f} s, engine.request_timeout_s allows {self._stall_s:g}")
