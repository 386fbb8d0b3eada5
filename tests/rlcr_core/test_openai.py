"""The engine of an OpenAI-compatible server, against a real HTTP server: right answers, garbage, silence, refusals, aborts."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rlcr_core.config import EngineConfig
from rlcr_core.engines.openai import MAX_SEED, Missing, OpenAIEngine, training_refusal
from rlcr_core.errors import ConfigError, EngineFault
from rlcr_core.rollout import RolloutSpec, run_rollouts
from rlcr_core.tokens import WordTokenizer
from rlcr_core.types import RolloutKey, Sample, SampleRequest, StopReason
from tests.rlcr_core.toy import TASK, TOKENIZER, WORDS, Toy, toy_params

KEY = (0, 0)
STOP = 3  # ETX ends an action in these tests
Reply = Callable[[Any], None]  # what the server does with one request


class Characters:
    """A character is a token, its id its code."""

    stop_ids = (STOP,)

    def __len__(self) -> int:
        return 128

    def encode(self, text: str) -> list[int]:
        return [ord(c) for c in text]

    def decode(self, ids: Any) -> str:
        return "".join(map(chr, ids))


class Server:
    """Answers each request with the next of `replies`, the last one again and again; keeps what it was asked."""

    def __init__(self, *replies: Reply, port: int = 0) -> None:
        self.replies, self.asked, self.keys = list(replies), [], []  # type: ignore[var-annotated]
        outer, lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    outer.asked.append(body)
                    outer.keys.append(self.headers.get("Authorization"))
                    reply = outer.replies.pop(0) if len(outer.replies) > 1 else outer.replies[0]
                self.body = body
                reply(self)

            def log_message(self, *_: object) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(*replies: Reply, port: int = 0) -> Server:
        servers.append(Server(*replies, port=port))
        return servers[-1]

    yield start
    for server in servers:
        server.http.shutdown()
        server.http.server_close()


def event(text: str = "", finish: str | None = None, **more: object) -> dict[str, object]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": finish, **more}]}


def logprobs(tokens: list[str], values: list[float]) -> dict[str, object]:
    return {"tokens": tokens, "token_logprobs": values}


def raw(data: bytes, kind: str = "text/event-stream", status: int = 200, **headers: str) -> Reply:
    def reply(handler: Any) -> None:
        handler.send_response(status)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in ({"Content-Type": kind, "Content-Length": str(len(data))} | given).items():
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(data)

    return reply


def stream(*events: object, done: bool = True) -> Reply:
    text = "".join(f"data: {e if isinstance(e, str) else json.dumps(e)}\n\n" for e in events)
    return raw((": a comment\n" + text + ("data: [DONE]\n\n" if done else "")).encode())


def refuse(status: int, message: str = "no", **headers: str) -> Reply:
    return raw(json.dumps({"error": {"message": message}}).encode(), "application/json", status, **headers)


def ab(handler: Any) -> None:
    """The ids of `ab` and the stop, in two events, as vLLM sends them: the stop has an id and a logprob, and no text."""
    stream(
        event("a", token_ids=[97], logprobs=logprobs(["a"], [-0.5])),
        event("b", "stop", token_ids=[98, STOP], logprobs=logprobs(["b", ""], [-1.5, -0.25])),
    )(handler)


def engine(server: Server | str, **changes: object) -> OpenAIEngine:
    url = server if isinstance(server, str) else server.url
    config = EngineConfig(kind="openai", url=url, model="m", **({"request_timeout_s": 5.0} | changes))  # type: ignore[arg-type]
    return OpenAIEngine(config, Characters(), temperature=0.7, top_p=0.9)


def request(text: str = "hi", new: bool = True, key: tuple[int, int] = KEY, most: int = 8) -> SampleRequest:
    return SampleRequest(key, Characters().encode(text), new, 2**40 + 5, most)


def ask(client: OpenAIEngine, wanted: SampleRequest | None = None) -> Sample:
    return asyncio.run(client.generate(wanted or request()))


# -- good answers --------------------------------------------------------------------------------------------------------


def test_ids_go_out_and_come_back_as_they_are_and_the_context_grows(serve: Callable[..., Server]) -> None:
    server = serve(ab)
    client = engine(server)
    assert client.sample([request()]) == [Sample([97, 98, STOP], [-0.5, -1.5, -0.25], 0)]
    client.sample([request("!", new=False)])
    client.sample([request("x")])
    # "hi", then what was sampled, then the new text; a new context forgets both
    assert [body["prompt"] for body in server.asked] == [[104, 105], [104, 105, 97, 98, STOP, 33], [120]]
    assert server.asked[0] | {"prompt": 0} == {
        "model": "m", "prompt": 0, "max_tokens": 8, "temperature": 0.7, "top_p": 0.9, "seed": (2**40 + 5) % MAX_SEED,
        "stream": True, "logprobs": 1, "stop_token_ids": [STOP], "return_token_ids": True,
        "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
    }  # fmt: skip
    assert (client.tokens_sampled, client.prompt_tokens) == (9, 4)


def test_a_chunked_body_is_read_across_its_chunks(serve: Callable[..., Server]) -> None:
    def chunked(handler: Any) -> None:
        data = b"data: " + json.dumps(event("a", "length", token_ids=[97])).encode() + b"\n\ndata: [DONE]\n\n"
        handler.protocol_version = "HTTP/1.1"
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream; charset=utf-8")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        for piece in [data[i : i + 7] for i in range(0, len(data), 7)] + [b""]:
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    sample = ask(engine(serve(chunked)))
    assert sample.ids == [97] and math.isnan(sample.logprobs[0])  # no logprob came: not known, never 0


def test_a_server_without_ids_gets_text_and_its_text_becomes_ids(serve: Callable[..., Server]) -> None:
    same = stream(event("o", logprobs=logprobs(["o"], [-0.5])), event("k", "stop", logprobs=logprobs(["k"], [-0.25])))
    other = stream(event("ok", "length", logprobs=logprobs(["ok"], [-0.75])))  # its own token, two of ours
    server = serve(refuse(400, "prompt must be a string"), same, other)
    client = engine(server)
    first, second = ask(client), ask(client, request("?", new=False))
    assert [body["prompt"] for body in server.asked] == [[104, 105], "hi", "hiok\x03?"]  # ids are tried once
    assert server.asked[1]["stop"] == ["\x03"] and "stop_token_ids" not in server.asked[1]
    assert first.ids == [111, 107, STOP] and first.logprobs[:2] == [-0.5, -0.25] and math.isnan(first.logprobs[2])
    assert second.ids == [111, 107] and all(map(math.isnan, second.logprobs))


def test_a_request_that_is_refused_either_way_says_why_first(serve: Callable[..., Server]) -> None:
    server = serve(refuse(400, "the prompt is longer than 2048"), refuse(400, "something else"), ab)
    client = engine(server)
    with pytest.raises(EngineFault, match="HTTP 400: the prompt is longer than 2048"):
        ask(client)
    assert ask(client).ids == [97, 98, STOP]  # and nothing was concluded about ids
    assert isinstance(server.asked[2]["prompt"], list)


def test_a_busy_server_is_asked_again(serve: Callable[..., Server]) -> None:
    server = serve(refuse(429, "slow down", Retry_After="0"), refuse(503), ab)
    assert ask(engine(server)).ids == [97, 98, STOP]
    assert len(server.asked) == 3


def test_a_server_that_starts_late_is_waited_for(serve: Callable[..., Server]) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        port = held.getsockname()[1]
        with pytest.raises(EngineFault, match=r"refuses connections, to the end of engine.request_timeout_s = 0\.2 s"):
            ask(engine(f"http://localhost:{port}", request_timeout_s=0.2))  # a name: refused at every address that it has
    client = engine(f"http://127.0.0.1:{port}")

    async def later() -> Sample:
        waiting = asyncio.ensure_future(client.generate(request()))
        await asyncio.sleep(0.05)
        serve(ab, port=port)
        return await waiting

    assert asyncio.run(later()).ids == [97, 98, STOP]


# -- faults --------------------------------------------------------------------------------------------------------------

NAN = '{"choices": [{"text": "a", "finish_reason": "stop", "logprobs": {"tokens": ["a"], "token_logprobs": [NaN]}}]}'
GOOD = event("a", "stop", token_ids=[97])


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (stream("{not json"), "an event is not JSON: {not json"),
        (stream("[1]"), "an event is not an object"),
        (stream({"id": 1}), "choices is null"),
        (stream({"choices": [7]}), r"choices is \[7\]"),
        (stream({"choices": [{"text": 5}]}), "text or finish_reason"),
        (stream({"choices": [{"text": "a", "finish_reason": 1}]}), "text or finish_reason"),
        (stream(event("a", "stop", token_ids=["97"])), "token_ids is"),
        (stream(event("a", "stop", token_ids=[True])), "token_ids is"),
        (stream(event("a", "stop", token_ids={"a": 97})), "token_ids is"),
        (stream(event("a", "stop", token_ids=[128])), "token id 128, the tokenizer of policy.model has 128"),
        (stream(event("a", "stop", token_ids=[-1])), "token id -1"),
        (stream(event("a", "stop", token_ids=[97] * 9)), "9 tokens, at most 8"),
        (stream(event("123456789", "length")), "9 tokens, at most 8"),
        (stream(event("a", "stop", token_ids=[97], logprobs=logprobs(["a", "b"], [-1, -1]))), "1 token ids and 2 logprobs"),
        (stream(event("a", "stop", logprobs=logprobs(["a"], [-1, -2]))), "1 tokens have the logprobs"),
        (stream(event("a", "stop", logprobs=logprobs(["a"], [0.5]))), r"1 tokens have the logprobs \[0.5\]"),
        (stream(event("a", "stop", logprobs=[-1.0])), r"logprobs is \[-1.0\]"),
        (stream(event("a", "stop", logprobs={"tokens": ["a"], "token_logprobs": [None]})), "token_logprobs is"),
        (stream(NAN), r"1 tokens have the logprobs \[NaN\]"),
        (stream(event("", "length")), "without a token"),
        (stream(event("a", token_ids=[97])), "without a finish_reason"),
        (stream(event("a", token_ids=[97]), done=False), "without a finish_reason"),
        (stream({"error": {"message": "out of memory"}}), "the server reports out of memory"),
        (raw(json.dumps(GOOD).encode(), "application/json"), "expected a stream of events, got application/json"),
        (raw(b"<html>hello</html>", "text/html"), "got text/html: <html>hello"),
        (raw(b"data: \xff\n\n"), "not UTF-8"),
        (raw(b"data: 7", Content_Length="1000"), "993 bytes before the end"),
        (raw(b"zz\r\n", Content_Length="x"), "is no length"),
        (raw(b"zz\r\n", Transfer_Encoding="chunked"), "is no length"),
        (raw(b"ff\r\nabc", Transfer_Encoding="chunked"), "before the end of the answer"),
        (raw(b"data: " + b"x" * (2 << 20)), "a line of more than"),
        (lambda handler: handler.wfile.write(b"220 mail.example ESMTP\r\n\r\n"), "does not begin as HTTP does"),
        (lambda handler: None, "before the end of the answer"),
        (refuse(500, "CUDA error"), "HTTP 500: CUDA error; look at the server's log"),
        (refuse(404, "no model m"), "HTTP 404: no model m; check engine.url, and whether it serves engine.model 'm'"),
        (refuse(401), "set the environment variable OPENAI_API_KEY"),
        (raw(b"oh\nno", "text/plain", 502), "HTTP 502: oh no"),
    ],
)  # fmt: skip
def test_garbage_is_a_fault_that_says_what_came_and_is_not_asked_for_again(
    serve: Callable[..., Server], reply: Reply, words: str
) -> None:
    server = serve(reply)
    with pytest.raises(EngineFault, match=words) as caught:
        ask(engine(server))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600
    assert len(server.asked) == 1


def test_an_endless_dribble_ends_at_the_timeout(serve: Callable[..., Server]) -> None:
    stopped = threading.Event()

    def dribble(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        while not stopped.wait(0.02):
            try:
                handler.wfile.write(b"data: " + json.dumps(event("a", token_ids=[97])).encode() + b"\n")
                handler.wfile.flush()
            except OSError:  # the engine closed the connection, as it must
                stopped.set()

    with pytest.raises(EngineFault, match=r"within engine.request_timeout_s = 0\.3 s \(\d+ pieces"):
        ask(engine(serve(dribble), request_timeout_s=0.3))
    assert stopped.wait(5)


def test_silence_ends_at_the_timeout(serve: Callable[..., Server]) -> None:
    silent = threading.Event()
    with pytest.raises(EngineFault, match=r"within engine.request_timeout_s = 0\.1 s \(0 pieces"):
        ask(engine(serve(lambda handler: silent.wait(5) and None), request_timeout_s=0.1))
    silent.set()


def test_a_server_that_stays_busy_is_given_up_at_the_timeout(serve: Callable[..., Server]) -> None:
    server = serve(refuse(503, "loading", Retry_After="3600"))
    with pytest.raises(EngineFault, match=r"is busy \(HTTP 503: loading\), to the end of engine.request_timeout_s"):
        ask(engine(server))
    assert len(server.asked) == 1  # it would not be back in time: there is nothing to wait for


def test_a_context_that_was_released_is_a_fault(serve: Callable[..., Server]) -> None:
    client = engine(serve(ab))
    ask(client)
    client.release([KEY])
    with pytest.raises(EngineFault, match="is not kept; start a new context"):
        ask(client, request(new=False))


# -- rollouts ------------------------------------------------------------------------------------------------------------


class Words(WordTokenizer):
    stop_ids = (TOKENIZER.encode(".")[0],)


def test_a_fault_fails_the_rollout_that_asked_with_the_reason_and_no_other(serve: Callable[..., Server]) -> None:
    ids = TOKENIZER.encode("dig 3 .")
    dig = stream(event("", "stop", token_ids=ids, logprobs=logprobs(["", "", ""], [-1.0, -1.0, -1.0])))
    server = serve(refuse(500, "CUDA error"), dig)
    config = EngineConfig(kind="openai", url=server.url, model="m", request_timeout_s=5.0)
    client = OpenAIEngine(config, Words(WORDS))
    specs = [RolloutSpec(RolloutKey("openai", 0, 0, i), TASK, 20.0) for i in range(3)]
    rollouts = run_rollouts(specs, Toy, client, TOKENIZER, toy_params())
    (failed,) = [r for r in rollouts if r.stop_reason is StopReason.FAILED]
    assert "HTTP 500: CUDA error" in failed.error and failed.error.startswith("EngineFault: ")
    # A turn is 1 s, 3 tokens 3 s, digging 3 s: at 7, 14 s; the third is cut at 20 s.
    assert [r.return_ for r in rollouts if r is not failed] == pytest.approx([0.2, 0.2])
    assert client._contexts == {}


def test_reading_a_missing_sample_raises_its_fault() -> None:
    fault = EngineFault("why")
    for read in (lambda s: s.ids, lambda s: s.logprobs):
        with pytest.raises(EngineFault, match="why"):
            read(Missing.because(fault, 3))


# -- aborts --------------------------------------------------------------------------------------------------------------


def begun(release: threading.Event, closed: threading.Event) -> Reply:
    """Two tokens, then silence until the client goes away."""

    def reply(handler: Any) -> None:
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        for text, value in (("a", -0.5), ("b", -1.5)):
            more = {"token_ids": [ord(text)], "logprobs": logprobs([text], [value])}
            handler.wfile.write(f"data: {json.dumps(event(text, **more))}\n\n".encode())
        handler.wfile.flush()
        release.set()
        handler.connection.settimeout(5)
        if handler.connection.recv(1) == b"":
            closed.set()

    return reply


def test_an_abort_keeps_the_tokens_that_came_and_invents_none(serve: Callable[..., Server]) -> None:
    sent, closed = threading.Event(), threading.Event()
    server = serve(begun(sent, closed), ab)
    client = engine(server)

    async def scene() -> Sample:
        running = asyncio.ensure_future(client.generate(request()))
        await asyncio.to_thread(sent.wait, 5)
        await asyncio.sleep(0.05)  # until the engine has read what was sent
        client.abort([KEY, (9, 9)])
        return await running

    assert asyncio.run(scene()) == Sample([97, 98], [-0.5, -1.5], 0)
    assert closed.wait(5)  # the server sees it, and can stop sampling
    ask(client, request("!", new=False))
    assert server.asked[1]["prompt"] == [104, 105, 97, 98, 33]  # the context goes on after the partial turn
    assert client.tokens_sampled == 5


def test_an_abort_before_the_first_token_gives_an_empty_sample(serve: Callable[..., Server]) -> None:
    silent = threading.Event()
    client = engine(serve(lambda handler: silent.wait(5) and None), max_running=1)

    async def scene() -> list[Sample]:
        running = [asyncio.ensure_future(client.generate(request(key=(0, i)))) for i in range(2)]  # the second has to queue
        await asyncio.sleep(0.05)
        client.abort([(0, 0), (0, 1)])
        return await asyncio.gather(*running)

    assert asyncio.run(scene()) == [Sample([], [], 0)] * 2
    silent.set()


def test_closing_ends_what_runs_and_may_be_awaited(serve: Callable[..., Server]) -> None:
    silent = threading.Event()
    client = engine(serve(lambda handler: silent.wait(5) and None))

    async def scene() -> None:
        running = asyncio.ensure_future(client.generate(request()))
        await asyncio.sleep(0.05)
        await client.close()
        with pytest.raises(EngineFault, match="closed before the action was complete"):
            await running

    asyncio.run(scene())
    silent.set()
    with pytest.raises(EngineFault, match="the engine is closed"):
        ask(client)


def test_an_agent_speaks_once_at_a_time(serve: Callable[..., Server]) -> None:
    (sample, second) = engine(serve(ab)).sample([request(), request()])
    assert sample.ids == [97, 98, STOP]
    with pytest.raises(EngineFault, match=r"\(rollout, agent\) \(0, 0\) is speaking already"):
        _ = second.ids


def test_no_more_requests_run_at_once_than_allowed(serve: Callable[..., Server]) -> None:
    lock, now, most = threading.Lock(), [0], [0]

    def counted(handler: Any) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        threading.Event().wait(0.03)
        with lock:
            now[0] -= 1
        ab(handler)

    samples = engine(serve(counted), max_running=2).sample([request(key=(0, i)) for i in range(6)])
    assert [s.ids for s in samples] == [[97, 98, STOP]] * 6
    assert most[0] <= 2


# -- configuration -------------------------------------------------------------------------------------------------------


def test_the_key_is_sent_and_never_shown(
    serve: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setenv("MY_KEY", "sk-secret\n")
    server = serve(refuse(403, "Incorrect API key sk-secret"))
    with pytest.raises(EngineFault, match=r"Incorrect API key \*\*\*; set the environment variable MY_KEY") as caught:
        ask(engine(server, api_key_variable="MY_KEY"))
    assert server.keys == ["Bearer sk-secret"]
    assert "sk-secret" not in f"{caught.value!r} {caught.value.__cause__} {caplog.text}"
    monkeypatch.setenv("MY_KEY", "sk-secret\nagain")
    with pytest.raises(ConfigError, match="MY_KEY") as refused:
        engine(server, api_key_variable="MY_KEY")
    assert "sk-secret" not in str(refused.value)
    monkeypatch.delenv("MY_KEY")
    with pytest.raises(EngineFault):
        ask(engine(server, api_key_variable="MY_KEY"))
    assert server.keys[-1] is None


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("http://h", "/v1/completions"), ("http://h:1/", "/v1/completions"), ("https://h/v1", "/v1/completions"),
        ("http://h/api/v1/", "/api/v1/completions"), ("http://h/v1/completions", "/v1/completions"),
        ("http://[::1]:8/v1", "/v1/completions"),
    ],
)  # fmt: skip
def test_the_address_may_end_anywhere(url: str, path: str) -> None:
    assert engine(url).client.url.path == path


@pytest.mark.parametrize("url", ["h:8000", "ftp://h/v1", "http://", "http://h:x/v1", "http://[", "http://u:secret@h/v1"])
def test_what_is_no_address_is_refused_without_repeating_a_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"engine\.url") as caught:
        engine(url)
    assert "secret" not in str(caught.value)


def test_training_is_refused_with_the_reason() -> None:
    client = engine("http://h")
    assert "evaluation only" in training_refusal() and "logprobs" in training_refusal()
    for call in (lambda: client.sync({}, 1), lambda: client.probe([[1, 2]])):
        with pytest.raises(ConfigError, match=r"engine\.kind torch or vllm"):
            call()
    assert client.version == 0
