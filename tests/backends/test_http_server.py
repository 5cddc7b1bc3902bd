"""Requests that are no HTTP: an answer in the API's shape, and nothing of their bytes anywhere."""

from __future__ import annotations

import asyncio
import json
import logging
from urllib.parse import urlsplit

import pytest

from tests.backends.server_builders import CHAT, running_worker

KEY = "sk-of-somebody"
PROMPT = "words-of-somebody"
START = f"POST {CHAT} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MALFORMED = {
    "a space before a colon": f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization : Bearer {KEY}\r\n\r\n",
    "a control character": f"GET /v1/models HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\x01\r\n\r\n",
    "no method": f"{KEY} {PROMPT}\r\n\r\n",
    "a bad chunk": f"{START}Authorization: Bearer {KEY}\r\nTransfer-Encoding: chunked\r\n\r\n{PROMPT}\r\n",
    "a bad address": f"GET http://[{PROMPT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n",
    "no gzip": f"{START}Content-Encoding: gzip\r\nContent-Length: {len(PROMPT)}\r\nConnection: close\r\n\r\n{PROMPT}",
}


async def send(url: str, request: str) -> tuple[int, bytes]:
    """Status and body of the answer to these bytes, read until the server closes."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(request.encode())
    answer = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


@pytest.mark.parametrize("request_text", MALFORMED.values(), ids=MALFORMED)
async def test_a_malformed_request_is_repeated_nowhere(request_text: str, caplog: pytest.LogCaptureFixture):
    """Neither its key nor its prompt, in the log at any level or in the answer, which is a 400 in vLLM's shape."""
    with caplog.at_level(logging.DEBUG):
        async with running_worker() as running:
            status, body = await send(running.url, request_text)
    assert (status, json.loads(body)["error"]["code"]) == (400, 400)
    told = caplog.text + body.decode()
    assert KEY not in told
    assert PROMPT not in told


async def test_a_client_that_leaves_within_its_body_is_no_fault_of_the_worker(caplog: pytest.LogCaptureFixture):
    """Nothing above debug is logged, and the next request is served."""
    async with running_worker() as running:
        place = urlsplit(running.url)
        _, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(f"{START}Content-Length: 500\r\n\r\n{PROMPT}".encode())
        await writer.drain()
        writer.close()
        await writer.wait_closed()
        await running.chat(max_tokens=1)
    assert not [record for record in caplog.records if record.levelno > logging.INFO]


async def test_good_requests_are_served_and_counted_as_before():
    """The server in place of aiohttp's own keeps its connections, and closes them at the end."""
    async with running_worker() as running:
        for _ in range(3):
            await running.chat(max_tokens=1)
        assert await running.metric("request_success_total") == 3
