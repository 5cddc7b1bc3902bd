"""One request, start to finish, through real sockets: what arrives, what comes back, what is counted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.gateway.running_gateway import MESSAGES, Running, build_request, running_gateway
from tests.gateway.scripted_worker import (
    DONE,
    USAGE,
    Exchange,
    Script,
    ScriptedWorker,
    answer_json,
    event,
    ordinary,
    raw,
    scripted_worker,
    until,
    usage_event,
)

TOKENS = event("one") + event("two") + event("three")


@asynccontextmanager
async def one_worker(script: Script = ordinary, **options: Any) -> AsyncIterator[tuple[Running, ScriptedWorker]]:
    """A gateway before one worker."""
    async with scripted_worker(script) as worker, running_gateway(worker, **options) as running:
        yield running, worker


async def test_an_answer_comes_back_as_the_worker_gave_it() -> None:
    """And its usage is counted for the tenant."""
    async with one_worker() as (running, _):
        answer = await running.ask()
        assert (answer.status, answer.body) == (200, answer_json())
        assert answer.fields["content-type"] == "application/json"
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="200") == 1
        assert running.count("prompt_tokens_total", tenant="acme", model="m") == USAGE["prompt_tokens"]
        assert running.count("cached_tokens_total", tenant="acme", model="m") == 64
        assert running.count("completion_tokens_total", tenant="acme", model="m") == 3


async def test_a_stream_comes_back_without_the_usage_nobody_asked_for() -> None:
    """Case C-11: asked upstream, counted, left out; `include_usage: false` likewise."""
    for options in ({}, {"stream_options": None}, {"stream_options": {"include_usage": False}}):
        async with one_worker() as (running, worker):
            answer = await running.ask(stream=True, **options)
            assert (answer.status, answer.body, answer.whole) == (200, TOKENS + DONE, True)
            assert worker.exchanges[0].asked["stream_options"]["include_usage"] is True
            await until(running.settled)
            assert running.count("completion_tokens_total", tenant="acme", model="m") == 3


async def test_a_stream_comes_back_with_the_usage_that_was_asked_for() -> None:
    """Byte for byte."""
    async with one_worker() as (running, _):
        answer = await running.ask(stream=True, stream_options={"include_usage": True})
        assert answer.body == TOKENS + usage_event() + DONE


async def test_a_stream_tells_proxies_not_to_hold_it_back() -> None:
    """Case C-13."""
    async with one_worker() as (running, _):
        fields = (await running.ask(stream=True)).fields
        assert fields["content-type"] == "text/event-stream; charset=utf-8"
        assert (fields["cache-control"], fields["x-accel-buffering"]) == ("no-cache", "no")


async def test_each_event_reaches_the_client_as_soon_as_it_is_whole() -> None:
    """Case C-13: nothing waits for more."""
    steps = [asyncio.Event() for _ in range(3)]

    async def step_by_step(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for number, step in enumerate(steps):
            await exchange.chunk(event(str(number)))
            await step.wait()
        await exchange.chunk(DONE)
        await exchange.end_stream()

    async with one_worker(step_by_step) as (running, _):
        client = await running.connect()
        await client.send(build_request(stream=True))
        await client.head()
        for number, step in enumerate(steps):
            assert await asyncio.wait_for(client.chunk(), 1) == event(str(number))
            step.set()
        client.close()


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
async def test_a_stream_of_single_bytes_comes_back_byte_exact(line_end: bytes) -> None:
    """Cases C-03 and C-04: cut within characters, line ends and chunk sizes."""
    stream = (event("北京🙂") + event("é") + DONE).replace(b"\n", line_end)

    async def dribble(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for byte in stream:
            await exchange.chunk(bytes([byte]))
        await exchange.end_stream()

    async with one_worker(dribble) as (running, _):
        answer = await running.ask(stream=True)
        assert (answer.body, answer.whole) == (stream, True)
        await until(running.settled)
        assert running.count("time_to_first_token_seconds_count", tenant="acme", model="m", placement="home") == 1


async def test_unknown_fields_and_odd_spellings_reach_the_worker() -> None:
    """Case D-01."""
    odd = '"return_token_ids":true, "chat_template_kwargs":{"x":false}, "min_p":0.10, "x_new":{"a":[1, 1e3]}'
    message = '{"role":"user","content":"\\u00e9 a  b "}'
    body = f'{{"model":"m","messages":[{message}],{odd},"seed":18446744073709551615}}'
    async with one_worker() as (running, worker):
        await running.ask(body=body.encode(), key="shared-key")
        assert worker.exchanges[0].body == body.encode()
        await running.ask(body=body.encode())
        forwarded = worker.exchanges[1].asked
        assert len(forwarded.pop("cache_salt")) > 20
        assert forwarded == json.loads(body)
        assert b'{"a":[1, 1e3]}' in worker.exchanges[1].body


async def test_every_shape_of_prompt_reaches_the_worker() -> None:
    """Case D-10."""
    prompts: list[Any] = [["a", "b"], [1, 2, 3], [[1, 2], [3]], "", "text"]
    async with one_worker() as (running, worker):
        for prompt in prompts:
            body = json.dumps({"model": "m", "prompt": prompt}).encode()
            assert (await running.ask(path="/v1/completions", body=body)).status == 200
        assert [exchange.asked["prompt"] for exchange in worker.exchanges] == prompts
        assert worker.exchanges[0].head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
        missing = await running.ask(path="/v1/completions", body=b'{"model":"m"}')
        assert (missing.status, missing.error["param"]) == (400, "prompt")
        await until(running.settled)


@pytest.mark.parametrize(
    "body",
    [
        b"[]",
        b"null",
        b'"x"',
        b"{",
        b"",
        b'{"messages":null}',
        b'{"messages":[1]}',
        b"\xff\xfe",
        b"[" * 5000 + b"]" * 5000,
    ],
)
async def test_what_is_no_request_gets_a_400_and_no_worker(body: bytes) -> None:
    """Case D-15."""
    async with one_worker() as (running, worker):
        answer = await running.ask(body=body)
        assert (answer.status, answer.error["type"]) == (400, "invalid_request_error")
        assert answer.fields["x-should-retry"] == "false"
        assert worker.exchanges == []
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="other", code="400") == 1


async def test_two_images_of_a_megabyte_reach_the_worker() -> None:
    """Case C-21: no library's default limit applies."""
    url = "data:image/png;base64," + "A" * 2_000_000
    content = [{"type": "text", "text": "what?"}, {"type": "image_url", "image_url": {"url": url}}]
    async with one_worker() as (running, worker):
        assert (await running.ask(messages=[{"role": "user", "content": content}])).status == 200
        assert worker.exchanges[0].asked["messages"][0]["content"] == content


async def test_a_workers_refusal_reaches_the_client_as_it_is() -> None:
    """Case C-09: a stream was asked for, JSON with the worker's status comes; case B-21: the worker stays."""
    refusal = b'{"error":{"message":"too long","type":"BadRequestError","code":422}}'

    async def refuse(exchange: Exchange) -> None:
        await exchange.send_json(refusal, status="422 Unprocessable Entity")

    async with one_worker(refuse) as (running, worker):
        for _ in range(5):
            answer = await running.ask(stream=True)
            assert (answer.status, answer.body) == (422, refusal)
            assert answer.fields["content-type"] == "application/json"
        assert running.gateway.fleet.worker("w1").up
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="422") == 5
        assert len(worker.exchanges) == 5


async def test_an_error_event_of_the_worker_passes_and_is_counted() -> None:
    """Case C-08: heartbeats before it pass too; the worker is not at fault, and nothing is tried again."""
    events = b": ping\n\n", b'data: {"error":{"message":"no","code":400}}\n\n'

    async def fail_in_band(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for piece in events:
            await exchange.chunk(piece)
        await exchange.end_stream()

    async with one_worker(fail_in_band) as (running, worker):
        assert (await running.ask(stream=True)).body == b"".join(events)
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1
        assert (running.gateway.fleet.worker("w1").up, len(worker.exchanges)) == (True, 1)


async def test_nothing_of_the_clients_own_head_reaches_the_worker() -> None:
    """Rows F3, F4 and case F-11: one host, one framing, no key, no cookie, nothing that could be mistaken for ours."""
    headers = {
        "cookie": "a=b",
        "x-api-key": "acme-key",
        "connection": "x-internal",
        "x-internal": "1",
        "x-tenant-id": "globex",
        "x-forwarded-for": "1.2.3.4",
        "x-data-parallel-rank": "3",
        "expect": "",
        "accept-encoding": "gzip",
        "user-agent": "evil",
        "traceparent": f"00-{'a' * 32}-{'b' * 16}-01",
        "tracestate": "vendor=1",
    }
    async with one_worker() as (running, worker):
        await running.ask(headers=headers)
        lines = worker.exchanges[0].head.decode().strip().split("\r\n")[1:]
        names = sorted(line.partition(":")[0] for line in lines)
        expected = [
            "accept", "accept-encoding", "content-length", "content-type", "host", "traceparent", "tracestate",
            "x-request-id",
        ]  # fmt: skip
        assert names == expected
        assert worker.exchanges[0].field("host") == f"127.0.0.1:{worker.port}"
        assert worker.exchanges[0].field("accept-encoding") == "identity"


async def test_nothing_of_the_workers_own_head_reaches_the_client() -> None:
    """Row F7."""
    fields = "server: uvicorn\r\nset-cookie: a=b\r\nx-worker: w1\r\nx-request-id: theirs\r\nretry-after: 7\r\n"

    async def talkative(exchange: Exchange) -> None:
        await exchange.send_json(fields=fields)

    async with one_worker(talkative) as (running, _):
        got = (await running.ask()).fields
        ours = ["openai-processing-ms", "server-timing", "x-request-id"]
        assert sorted(got) == sorted(["content-length", "content-type", "retry-after", *ours])
        assert got["x-request-id"] != "theirs"


async def test_a_sane_request_id_is_echoed_and_another_is_replaced() -> None:
    """The worker hears another one, which is ours."""
    async with one_worker() as (running, worker):
        assert (await running.ask(headers={"x-request-id": "req_1-a.b"})).fields["x-request-id"] == "req_1-a.b"
        assert worker.exchanges[0].field("x-request-id") not in (None, "req_1-a.b")
        minted = (await running.ask(headers={"x-request-id": 'a"<b>'})).fields["x-request-id"]
        assert minted == worker.exchanges[1].field("x-request-id")
        assert "<" not in minted


async def test_the_same_request_id_twice_at_once_is_two_requests() -> None:
    """A caller's id names nothing of ours."""
    async with one_worker() as (running, worker):
        asks = [running.ask(headers={"x-request-id": "same"}, stream=True) for _ in range(8)]
        assert {answer.status for answer in await asyncio.gather(*asks)} == {200}
        await until(running.settled)
        assert len(worker.exchanges) == 8


async def test_only_a_tenant_that_may_sees_which_worker_answered() -> None:
    """Rules of isolation, 6: no oracle by default."""
    async with one_worker() as (running, _):
        debug = {"x-homing-debug": "1"}
        shown = (await running.ask(key="curious-key", headers=debug)).fields
        assert (shown["x-homing-backend"], shown["x-homing-reason"]) == ("w1", "home")
        for hidden in (await running.ask(headers=debug), await running.ask(key="curious-key")):
            assert not any(name.startswith("x-homing") for name in hidden.fields)


async def test_an_unknown_model_and_a_foreign_one_look_the_same() -> None:
    """Row G8."""
    async with one_worker() as (running, worker):
        unknown = await running.ask(model="nobody-has-this")
        foreign = await running.ask(key="foreign-key")
        assert (unknown.status, unknown.body) == (foreign.status, foreign.body) == (404, unknown.body)
        assert unknown.error["code"] == "model_not_found"
        assert worker.exchanges == []


async def test_a_wrong_key_gets_a_401_and_is_quoted_nowhere() -> None:
    """Case F-08."""
    async with one_worker() as (running, worker):
        for key in (None, "sk-CANARY-91"):
            answer = await running.ask(key=key)
            assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
            assert b"CANARY" not in answer.body
        assert worker.exchanges == []


async def test_the_salt_is_the_tenants_and_the_client_can_only_narrow_it() -> None:
    """Row G7 and case D-03, on both endpoints."""
    async with one_worker() as (running, worker):
        for path, body in (
            ("/v1/chat/completions", {"messages": MESSAGES}),
            ("/v1/completions", {"prompt": "x"}),
            ("/v1/chat/completions", {"messages": MESSAGES, "cache_salt": "mine"}),
        ):
            await running.ask(path=path, body=json.dumps({"model": "m", **body}).encode())
        chat, completion, narrowed = [exchange.asked["cache_salt"] for exchange in worker.exchanges]
        assert chat == completion != narrowed != "mine"
        await running.ask(key="shared-key", cache_salt="mine")
        assert worker.exchanges[3].asked["cache_salt"] == "mine"


async def test_a_session_header_must_be_printable() -> None:
    """Case D-14."""
    async with one_worker() as (running, _):
        assert (await running.ask(headers={"x-session-id": "s1"})).status == 200
        assert (await running.ask(headers={"x-session-id": "s\xe9"})).error["param"] == "x-session-id"


async def test_an_answer_larger_than_a_buffer_passes() -> None:
    """Case C-28: no limit on what is passed on."""
    big = json.dumps({"usage": USAGE, "text": "x" * 6_000_000}).encode()

    async def huge(exchange: Exchange) -> None:
        await exchange.send_json(big)

    async with one_worker(huge) as (running, _):
        answer = await running.ask()
        assert (answer.body, answer.whole) == (big, True)


async def test_a_reader_that_stops_makes_the_worker_wait_and_then_gets_it_all() -> None:
    """Case C-25's plain half: backpressure from the client's socket to the worker's."""
    sent_bytes = 0

    async def flood(exchange: Exchange) -> None:
        nonlocal sent_bytes
        await exchange.begin_stream()
        for _ in range(400):
            await exchange.chunk(event("x" * 65536))
            sent_bytes += 65536
        await exchange.chunk(DONE)
        await exchange.end_stream()

    async with one_worker(flood) as (running, _):
        client = await running.connect()
        await client.send(build_request(stream=True))
        await client.head()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        before = -1
        while before != sent_bytes:
            before = sent_bytes
            await asyncio.sleep(0.2)
        assert sent_bytes < 300 * 65536
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        received = b""
        while payload := await client.chunk():
            received = received[-100:] + payload
        assert received.endswith(DONE)
        client.close()


async def test_garbage_from_the_only_worker_is_a_502() -> None:
    """Row A13: nothing of it reaches the client."""
    async with one_worker(raw(b"HTTP/1.1 200 OK\r\nx: CANARY\r\n folded: CANARY\r\n\r\nCANARY", close=False)) as (
        running,
        _,
    ):
        answer = await running.ask()
        assert (answer.status, answer.error["code"], answer.error["type"]) == (502, "upstream_error", "server_error")
        assert b"CANARY" not in answer.body


async def test_an_answer_that_ends_by_the_close_passes_if_it_is_whole() -> None:
    """HTTP/1.0 workers."""
    head = b"HTTP/1.0 200 OK\r\ncontent-type: application/json\r\n\r\n"
    async with one_worker(raw(head + answer_json())) as (running, _):
        answer = await running.ask()
        assert (answer.body, answer.whole) == (answer_json(), True)


async def test_a_prompt_over_the_tenants_bound_is_refused_by_name() -> None:
    """Before any worker is asked, with both numbers."""
    async with one_worker() as (running, worker):
        assert (await running.ask(key="brief-key", messages=[{"role": "user", "content": "hi"}])).status == 200
        answer = await running.ask(key="brief-key", messages=[{"role": "user", "content": "hi " * 500}])
        assert (answer.status, answer.error["code"], answer.error["param"]) == (
            400,
            "context_length_exceeded",
            "messages",
        )
        assert "20" in answer.error["message"]
        assert len(worker.exchanges) == 1
