"""Answers and requests that are well-formed and still no ordinary ones: nothing of them is read as something else."""

from __future__ import annotations

import asyncio
import json

import pytest

from gateway.wire import Endpoint, forward_body, parse_call
from tests.gateway.dialect_worker import as_vllm
from tests.gateway.endpoint_builders import ANTHROPIC, ASKS, PATHS, ask, workers
from tests.gateway.running_gateway import MESSAGES, build_request
from tests.gateway.scripted_worker import DONE, Exchange, event, raw, until
from tests.gateway.test_proxy import one_worker

OK = b"HTTP/1.1 200 OK\r\n"


@pytest.mark.parametrize("path", ["/v1/models", "/v1/chat/completions", "/v1/messages", "/nothing"])
async def test_an_answer_to_head_has_no_body(path: str) -> None:
    """Its bytes would be read as the beginning of the next answer on the connection."""
    async with one_worker() as (running, _):
        client = await running.connect()
        await client.send(build_request(path, method="HEAD") + build_request(path, method="DELETE"))
        status, fields = await client.head()
        assert (status in (404, 405), int(fields["content-length"]) > 0) == (True, True)
        answer = await client.answer()
        assert (answer.status, answer.whole) == (status, True)
        client.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 0\r\n\r\n",
        OK + b"content-length: 0\r\n\r\n",
        OK + b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_that_says_nothing_is_none(answer: bytes, stream: bool) -> None:
    """A pointer elsewhere or an empty body is no model's; nothing of the kind is a success."""
    async with one_worker(raw(answer, close=False)) as (running, _):
        told = await running.ask(stream=stream)
        assert (told.status, told.error["code"]) == (502, "upstream_error")
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1


async def test_the_name_of_a_content_type_has_no_case() -> None:
    """`Text/Event-Stream` is a stream."""
    wire = OK + b"Content-Type: Text/Event-Stream\r\nconnection: close\r\n\r\n" + event() + DONE
    async with one_worker(raw(wire)) as (running, _):
        answer = await running.ask(stream=True)
        assert (answer.status, answer.body) == (200, event() + DONE)


@pytest.mark.parametrize("path", PATHS)
async def test_whatever_is_refused_is_told_in_the_callers_dialect_and_has_an_id(path: str) -> None:
    """A doubtful head and a wrong method are found before anything is read; whose API it is, is known by the path."""
    async with workers() as (running, _):
        for request in (
            build_request(path, headers={"x_y": "1", "x-request-id": "mine"}),
            build_request(path, method="GET", headers={"x-request-id": "mine"}),
        ):
            answer = await running.send(request)
            assert answer.status in (400, 405)
            assert answer.fields["x-request-id"] == "mine"
            assert answer.json.get("request_id") == ("mine" if path in ANTHROPIC else None)


async def test_every_answer_has_an_id() -> None:
    """Lists of models too."""
    async with one_worker() as (running, _):
        for path, status in (("/v1/models", 200), ("/v1/models/m", 200), ("/nothing", 404)):
            answer = await running.ask(path=path, method="GET")
            assert (answer.status, len(answer.fields["x-request-id"])) == (status, 16)


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ('{"x":1.0e2,"y":"\\u0041"}', '{"x":1.0e2,"y":"\\u0041","include_usage":true}'),
        ('{"include_usage":false,"n":123456789012345678901234567890}',
         '{"include_usage":true,"n":123456789012345678901234567890}'),
        ('{"include_usage":false,"continuous_usage_stats":true}', '{"include_usage":true}'),
        ('{"continuous_usage_stats":true}', '{"continuous_usage_stats":true,"include_usage":true}'),
    ],
)  # fmt: skip
def test_options_of_a_stream_keep_their_bytes(given: str, sent: str) -> None:
    """But for what is asked for by the gateway: a caller that asked for no usage gets none in every chunk either."""
    body = json.dumps({"model": "m", "messages": MESSAGES, "stream": True})[:-1] + f',"stream_options":{given}}}'
    call = parse_call(Endpoint.CHAT, body.encode())
    assert f'"stream_options":{sent}'.encode() in forward_body(call, salt=None, ask_usage=True)


@pytest.mark.parametrize("usage", ['{"prompt_tokens":5,"completion_tokens":null}', '{"prompt_tokens":-5}', '"none"'])
async def test_usage_that_cannot_be_read_is_left_out_too(usage: str) -> None:
    """The caller did not ask for it, whatever it says."""

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event() + b'data: {"choices":[],"usage":' + usage.encode() + b"}\n\n" + DONE)
        await exchange.end_stream()

    async with one_worker(script) as (running, _):
        assert (await running.ask(stream=True)).body == event() + DONE


async def test_usage_beside_no_choices_at_all_is_counted_and_passed_on() -> None:
    """An event of another shape is not ours to leave out."""
    odd = b'data: {"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n'

    async def script(exchange: Exchange) -> None:
        await exchange.begin_stream()
        await exchange.chunk(event() + odd + DONE)
        await exchange.end_stream()

    async with one_worker(script) as (running, _):
        assert (await running.ask(stream=True)).body == event() + odd + DONE
        await until(running.settled)
        assert running.count("completion_tokens_total", tenant="acme", model="m") == 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_a_workers_429_behind_heartbeats_says_that_it_is_one(path: str) -> None:
    """An SDK tells by the type whether to come back later."""

    async def full(exchange: Exchange) -> None:
        await asyncio.sleep(0.2)
        await exchange.send_json(b'{"error":{"message":"come back"}}', status="429 Too Many Requests")

    async with workers(script=full, heartbeat=0.05) as (running, _):
        answer = await ask(running, path, stream=True)
        told = json.loads(answer.body.rpartition(b"data: ")[2])
        assert (told["error"]["type"], told["error"]["message"]) == ("rate_limit_error", "come back")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/v1/messages/count_tokens", "/tokenize"])
async def test_what_never_streams_gets_no_heartbeats_whatever_it_asks_for(path: str) -> None:
    """They would turn its answer into a stream."""

    async def slow(exchange: Exchange) -> None:
        await asyncio.sleep(0.2)
        exchange.body = exchange.body.replace(b'"stream": true', b'"stream": false')
        await as_vllm(exchange)

    async with workers(script=slow, heartbeat=0.05) as (running, _):
        body = json.dumps({"model": "m", **ASKS[path], "stream": True}).encode()
        client = await running.connect()
        await client.send(build_request(path, body=body))
        status, fields = await client.head()
        assert (status, fields["content-type"]) == (200, "application/json")
        client.close()


@pytest.mark.parametrize("path", ["/v1/messages/count_tokens", "/tokenize", "/detokenize"])
async def test_what_touches_no_cache_has_no_home(path: str) -> None:
    """A client that counts tokens before each request would make affinity look half as good."""
    async with workers(2) as (running, _):
        for _ in range(4):
            assert (await ask(running, path)).status == 200
        await until(running.settled)
        labels = {"tenant": "acme", "model": "m"}
        outcomes = [running.count("affinity_placements_total", outcome=each, **labels) for each in ("home", "away")]
        assert outcomes == [0, 0]


async def test_a_path_beside_an_apis_own_is_refused_in_its_dialect() -> None:
    """Anthropic's SDK asks for batches below /v1/messages."""
    async with one_worker() as (running, _):
        answer = await running.ask(path="/v1/messages/batches")
        assert (answer.status, answer.error["type"]) == (404, "not_found_error")
        assert answer.json["request_id"] == answer.fields["request-id"]
        assert "request_id" not in (await running.ask(path="/v1/batches")).json
