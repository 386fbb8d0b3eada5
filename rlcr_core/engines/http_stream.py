"""The little of HTTP/1.1 that a streaming completion needs: one POST on one connection, its answer read line by line.

On asyncio streams, because a request must end the moment its task is cancelled: the connection is closed with it, and a
server that watches its connections stops sampling. Proxies are not used and redirections not followed.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from rlcr_core.errors import ConfigError

MAX_LINE = 1 << 20  # bytes; an answer with longer lines is no stream of tokens
MAX_BODY = 64 << 20  # bytes
MAX_EXCERPT = 4096  # bytes read of a body that is quoted in an error


class BadAnswer(Exception):
    """What came back is not HTTP, or it ended before its end."""


@dataclass(frozen=True, slots=True)
class Response:
    """Status, headers and the body still to be read."""

    status: int
    headers: http.client.HTTPMessage
    reader: asyncio.StreamReader

    async def _pieces(self) -> AsyncIterator[bytes]:
        """The body as it comes. Raises BadAnswer when the connection ends before it."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            while size := _number((await self.reader.readline()).split(b";")[0], 16):
                yield await self.reader.readexactly(size)
                await self.reader.readexactly(2)  # the line end after a chunk
        elif (declared := self.headers.get("Content-Length")) is not None:
            left = _number(declared.encode(), 10)
            while left:
                piece = await self.reader.read(min(left, MAX_LINE))
                if not piece:
                    raise BadAnswer(f"the connection ended {left} bytes before the end of the answer")
                left -= len(piece)
                yield piece
        else:
            while piece := await self.reader.read(MAX_LINE):
                yield piece

    async def lines(self) -> AsyncIterator[str]:
        """The body's lines without their ends. Raises BadAnswer for a broken body, one that is too long or not UTF-8."""
        rest, total = b"", 0
        async for piece in self._pieces():
            total += len(piece)
            *whole, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE or total > MAX_BODY:
                raise BadAnswer(f"the answer has a line of more than {MAX_LINE} or more than {MAX_BODY} bytes in all")
            for line in whole:
                yield _text(line)
        if rest:
            yield _text(rest)

    async def excerpt(self) -> str:
        """The beginning of the body, for an error message; whatever can be read of it."""
        read = bytearray()
        with suppress(BadAnswer, OSError, EOFError, ValueError):
            async for piece in self._pieces():
                read += piece
                if len(read) >= MAX_EXCERPT:
                    break
        return bytes(read[:MAX_EXCERPT]).decode("utf-8", "replace")


def _number(digits: bytes, base: int) -> int:
    try:
        return int(digits, base)
    except ValueError:
        raise BadAnswer(f"{digits[:40]!r} is no length") from None


def _text(line: bytes) -> str:
    try:
        return line.decode("utf-8").rstrip("\r")
    except UnicodeDecodeError as error:
        raise BadAnswer(f"the answer is not UTF-8 ({error.reason})") from None


def completions_url(url: str) -> SplitResult:
    """Where completions are asked for: `url` with /v1/completions, or the part of it that is missing.

    Raises ConfigError for another scheme, a missing host, or credentials in the address.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        raise ConfigError(f"engine.url {url!r} is no address; expected one such as http://127.0.0.1:8000/v1.") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "engine.url holds a user name or a password, which would be written into logs and runs; put the key into the "
            "environment variable that engine.api_key_variable names."
        )
    if not valid:
        raise ConfigError(f"engine.url {url!r} is no address; expected one such as http://127.0.0.1:8000/v1.")
    path = parts.path.rstrip("/")
    if not path.endswith("/completions"):
        path = f"{path if path.endswith('/v1') else path + '/v1'}/completions"
    return parts._replace(path=path, fragment="")


@asynccontextmanager
async def post(url: SplitResult, headers: Mapping[str, str], body: bytes) -> AsyncIterator[Response]:
    """Send one request; the connection is closed when the block ends. Raises OSError and BadAnswer."""
    secure = ssl.create_default_context() if url.scheme == "https" else None
    port = url.port or (443 if secure else 80)
    reader, writer = await asyncio.open_connection(url.hostname, port, ssl=secure, limit=MAX_LINE)
    try:
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        fields = {"Host": url.netloc, "Content-Length": str(len(body)), "Connection": "close", **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        writer.write(f"POST {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body)
        await writer.drain()
        yield await _read_head(reader)
    except asyncio.IncompleteReadError as error:
        raise BadAnswer("the connection ended before the end of the answer") from error
    except (asyncio.LimitOverrunError, ValueError) as error:
        raise BadAnswer(f"the answer is not HTTP ({error})") from error
    finally:
        writer.close()


async def _read_head(reader: asyncio.StreamReader) -> Response:
    """Status line and headers."""
    line, _, rest = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")
    words = line.split(None, 2)
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
        raise BadAnswer(f"the answer does not begin as HTTP does: {line[:40]!r}")
    try:
        return Response(int(words[1]), http.client.parse_headers(io.BytesIO(rest)), reader)
    except http.client.HTTPException as error:
        raise BadAnswer(f"its headers cannot be read ({error})") from error
