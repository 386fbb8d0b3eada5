"""Asking a server for one completion: with the key, with patience while it is busy, and with a reason when it fails.

Only a refused connection and the answers 429 and 503 are asked again, after a pause that doubles (or the one that the
server asks for), within engine.request_timeout_s. A stream that broke off is not: its tokens were sampled.
"""

from __future__ import annotations

import asyncio
import errno
import os
from typing import NoReturn

from rlcr_core.config import EngineConfig
from rlcr_core.engines import completions
from rlcr_core.engines.completions import Received
from rlcr_core.engines.http_stream import BadAnswer, Response, completions_url, post
from rlcr_core.errors import ConfigError, EngineFault

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.25, 8.0  # between attempts; doubled each time
BUSY = (429, 503)
REFUSED = (400, 415, 422)  # also what servers answer that take no token ids as a prompt


class RefusedRequest(EngineFault):
    """The server says that the request itself is wrong."""


class _Busy(Exception):
    """The server asks to come again later."""

    def __init__(self, reason: str, pause_s: float = 0.0) -> None:
        super().__init__(reason)
        self.pause_s = pause_s


class CompletionClient:
    """One server's completions. Raises ConfigError for an address or a key that cannot be used; asks nothing yet."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.url = completions_url(config.url)
        self.name = f"the server at {self.url.scheme}://{self.url.netloc}"
        self._key = _api_key(config.api_key_variable)

    async def complete(self, body: bytes, received: Received) -> None:
        """Fill `received` with the answer to this body, within engine.request_timeout_s.

        Raises RefusedRequest where the server calls the request itself wrong, EngineFault for whatever else goes wrong.
        """
        loop, timeout_s = asyncio.get_running_loop(), self.config.request_timeout_s
        ends_s, pause_s = loop.time() + timeout_s, FIRST_PAUSE_S
        try:
            async with asyncio.timeout_at(ends_s):
                while True:
                    try:
                        return await self._once(body, received)
                    except _Busy as busy:
                        wait_s = max(pause_s, busy.pause_s)
                        if loop.time() + wait_s >= ends_s:
                            raise EngineFault(
                                f"{self.name} {busy}, to the end of engine.request_timeout_s = {timeout_s:g} s; start it, or "
                                "lower engine.max_running"
                            ) from None
                        await asyncio.sleep(wait_s)
                        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
        except TimeoutError:
            raise EngineFault(
                f"{self.name} did not finish its answer within engine.request_timeout_s = {timeout_s:g} s "
                f"({received.pieces} pieces of it came); raise it, or lower engine.max_running or harness.max_turn_tokens"
            ) from None

    async def _once(self, body: bytes, received: Received) -> None:
        headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            async with post(self.url, headers, body) as response:
                if response.status != 200:
                    await self._refused(response)
                await completions.read(response, received)
        except ConnectionRefusedError:
            raise _Busy("refuses connections") from None
        except TimeoutError:
            raise
        except OSError as error:
            if f"[Errno {errno.ECONNREFUSED}]" in str(error):  # of a name with several addresses: all of them in one error
                raise _Busy("refuses connections") from None
            raise EngineFault(f"{self.name} cannot be reached or broke off: {error}; check engine.url") from error
        except BadAnswer as error:
            raise EngineFault(f"{self.name} answered garbage: {self._safe(str(error))}; check engine.url") from error

    async def _refused(self, response: Response) -> NoReturn:
        """Raise what an HTTP error means."""
        status, said = response.status, self._safe(completions.error_text(await response.excerpt()))
        if status in BUSY:
            after = response.headers.get("Retry-After", "")
            raise _Busy(f"is busy (HTTP {status}: {said})", float(after) if after.isdecimal() else 0.0)
        advice = {
            401: f"set the environment variable {self.config.api_key_variable} (engine.api_key_variable)",
            403: f"set the environment variable {self.config.api_key_variable} (engine.api_key_variable)",
            404: f"check engine.url, and whether it serves engine.model {self.config.model!r}",
        }.get(status, "look at the server's log")
        kind = RefusedRequest if status in REFUSED else EngineFault
        raise kind(f"{self.name} answered HTTP {status}: {said}; {advice}")

    def _safe(self, text: str) -> str:
        """The server's words without the key, which some servers repeat."""
        return text.replace(self._key, "***") if self._key else text


def _api_key(variable: str) -> str:
    """The key in this environment variable, or none. Raises ConfigError, without its value, for one that is no header."""
    key = os.environ.get(variable, "").strip() if variable else ""
    if not key.isascii() or not key.isprintable():
        raise ConfigError(
            f"The environment variable {variable} (engine.api_key_variable) holds characters that no key has, such as line "
            "ends; set it again."
        )
    return key
