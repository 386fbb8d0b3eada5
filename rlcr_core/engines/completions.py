"""Reading a streamed completion: strict about what a server may send, and clear about what it did send.

    data: {"choices": [{"text": "...", "token_ids": [...], "logprobs": {"tokens": [...], "token_logprobs": [...]}}]}

`Received` holds what came so far, so that a stream that is cut keeps its tokens; `sampled` turns it into ids and logprobs.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rlcr_core.engines.http_stream import BadAnswer, Response
from rlcr_core.errors import EngineFault

MAX_QUOTE = 160  # characters of a server's words in an error
UNKNOWN = math.nan  # a logprob that the server did not give
SLACK_NATS = 1e-3  # rounding above a logprob of 0


class TextTokenizer(Protocol):
    stop_ids: tuple[int, ...]

    def encode(self, text: str) -> list[int]: ...
    def __len__(self) -> int: ...


@dataclass(slots=True)
class Received:
    """What came of an answer so far. `ids` stays empty on servers that do not return them."""

    text: str = ""
    ids: list[int] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: str = ""
    pieces: int = 0


def quote(text: str) -> str:
    """A server's words on one line, cut."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_QUOTE else line[:MAX_QUOTE] + "…"


def error_text(body: str) -> str:
    """The message in an OpenAI-style error body, else the body itself."""
    try:
        content = json.loads(body)
    except ValueError:
        return quote(body) or "no words"
    if isinstance(content, dict):
        error = content.get("error", content)
        content = error.get("message", error) if isinstance(error, dict) else error
    return quote(content if isinstance(content, str) else json.dumps(content))


async def read(response: Response, received: Received) -> None:
    """Read a stream of server-sent events into `received`. Raises BadAnswer for whatever is not a completion."""
    kind = response.headers.get_content_type()
    if kind != "text/event-stream":
        raise BadAnswer(f"expected a stream of events, got {kind}: {error_text(await response.excerpt())}")
    async for line in response.lines():
        if not line.startswith("data:"):
            continue  # comments, empty lines and other fields of an event
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            break
        _take(_parse(data), received)
    if not received.finish:
        raise BadAnswer(f"the answer ended after {received.pieces} pieces without a finish_reason")


def _parse(data: str) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        raise BadAnswer(f"an event is not JSON: {quote(data)}") from None
    if not isinstance(event, dict):
        raise BadAnswer(f"an event is not an object: {quote(data)}")
    if "error" in event:
        raise BadAnswer(f"the server reports {error_text(data)}")
    return event


def _list(value: Any, kind: type | tuple[type, ...], what: str) -> list[Any]:
    """A list of this kind; booleans are no numbers. Raises BadAnswer."""
    if not isinstance(value, list) or not all(isinstance(v, kind) and not isinstance(v, bool) for v in value):
        raise BadAnswer(f"{what} is {quote(json.dumps(value))}")
    return value


def _take(event: dict[str, Any], received: Received) -> None:
    """Add one event's choice."""
    choices = _list(event.get("choices"), dict, "choices")
    if not choices:
        return  # an event of usage alone
    choice = choices[0]
    text, finish = choice.get("text"), choice.get("finish_reason")
    if not isinstance(text, str) or not isinstance(finish, str | None):
        raise BadAnswer(f"text or finish_reason of a choice is {quote(json.dumps([text, finish]))}")
    ids = _list(choice.get("token_ids") or [], int, "token_ids")
    tokens, logprobs = _logprobs(choice.get("logprobs"))
    received.pieces += 1
    received.text += text
    received.ids += ids
    received.tokens += tokens
    received.logprobs += logprobs
    received.finish = finish or received.finish


def _logprobs(value: Any) -> tuple[list[str], list[float]]:
    """Token strings and logprobs (nats) of a choice's `logprobs`; both empty where it is null."""
    if value is None:
        return [], []
    if not isinstance(value, dict):
        raise BadAnswer(f"logprobs is {quote(json.dumps(value))}")
    tokens = _list(value.get("tokens"), str, "logprobs.tokens")
    numbers = [float(v) for v in _list(value.get("token_logprobs"), (int, float), "logprobs.token_logprobs")]
    if len(tokens) != len(numbers) or not all(math.isfinite(v) and v <= SLACK_NATS for v in numbers):
        raise BadAnswer(f"{len(tokens)} tokens have the logprobs {quote(json.dumps(numbers))}")
    return tokens, numbers


def sampled(received: Received, tokenizer: TextTokenizer, max_tokens: int) -> tuple[list[int], list[float]]:
    """Ids and logprobs of what came. Raises EngineFault for ids or numbers of them that cannot be."""
    if received.ids:
        ids, logprobs = received.ids, received.logprobs
        if logprobs and len(logprobs) != len(ids):
            raise EngineFault(f"the server gave {len(ids)} token ids and {len(logprobs)} logprobs; look at its log")
    else:
        ids, logprobs = _from_text(received, tokenizer)
    outside = [i for i in ids if not 0 <= i < len(tokenizer)]
    if outside:
        raise EngineFault(
            f"the server gave the token id {outside[0]}, the tokenizer of policy.model has {len(tokenizer)}; serve the same "
            "model as policy.model"
        )
    if len(ids) > max_tokens:
        raise EngineFault(
            f"the server gave {len(ids)} tokens, at most {max_tokens} were asked for; serve the same model as policy.model"
        )
    return list(ids), logprobs or [UNKNOWN] * len(ids)


def _from_text(received: Received, tokenizer: TextTokenizer) -> tuple[list[int], list[float]]:
    """Ids of the text, with the server's logprobs where its tokens are just these; the stop that ended it at the end."""
    ids = tokenizer.encode(received.text) if received.text else []
    pieces: Sequence[Sequence[int]] = [tokenizer.encode(token) for token in received.tokens]
    same = [list(piece) for piece in pieces] == [[i] for i in ids]
    logprobs = received.logprobs if same else [UNKNOWN] * len(ids)
    if received.finish == "stop" and tokenizer.stop_ids and (not ids or ids[-1] not in tokenizer.stop_ids):
        ids, logprobs = [*ids, tokenizer.stop_ids[0]], [*logprobs, UNKNOWN]
    return ids, logprobs
