"""The demonstration's client notices every way in which an answer can be less than whole."""

from __future__ import annotations

import json
import time

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.demo.drive import Pace, Target, drive
from gateway.demo.load import conversations

TEXT = {"choices": [{"index": 0, "delta": {"content": "hello "}}]}
ROLE = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}
USAGE = {
    "choices": [],
    "usage": {"prompt_tokens": 50, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 32}},
}
ERROR = {"error": {"message": "worker left", "type": "server_error", "code": "upstream_error"}}
DONE = "[DONE]"
AT_ONCE = Pace(0.0, 0.0)


async def ask(*events, status=200):
    """One agent step against a server that streams `events`; returns the answers and the requests it saw."""
    seen = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append((request.headers["authorization"], await request.json()))
        if status != 200:
            return web.json_response(ERROR, status=status)
        response = web.StreamResponse(headers={"x-homing-backend": "worker-2", "x-homing-reason": "home"})
        await response.prepare(request)
        for event in events:
            data = event if isinstance(event, str) else json.dumps(event)
            await response.write(f"data: {data}\n\n".encode())
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    async with TestServer(app) as server:
        target = Target(str(server.make_url("")).rstrip("/"), "m", {"shop": "sk-1", "lease": "sk-2", "travel": "sk-3"})
        counts: list[int] = []
        answers = await drive(target, conversations(turns=1, per_tenant=0)[-1:], AT_ONCE, counts.append)
    assert counts == list(range(1, len(answers) + 1))
    return answers, seen


async def test_a_whole_answer_is_read_with_its_usage_and_its_worker():
    """Text joined, first token timed by the first text and not by the role, next turn carries the answer."""
    answers, seen = await ask(ROLE, TEXT, TEXT, USAGE, DONE)
    assert len(answers) == len(seen) == 2
    first = answers[0]
    assert (first.text, first.prompt_tokens, first.cached_tokens, first.output_tokens) == ("hello hello ", 50, 32, 2)
    assert (first.worker, first.reason, first.error) == ("worker-2", "home", None)
    assert 0 < first.ttft_seconds <= first.total_seconds
    assert seen[0][0] == "Bearer sk-1"
    assert {"role": "assistant", "content": "hello hello "} in seen[1][1]["messages"]


@pytest.mark.parametrize(
    ("events", "error"),
    [
        ((TEXT, ERROR), "upstream_error"),
        ((TEXT, USAGE), "stream ended without [DONE]"),
        ((TEXT, DONE), "no usage reported"),
    ],
)
async def test_an_answer_that_is_less_than_whole_is_an_error(events, error):
    """An error event, a missing [DONE], a missing usage: none passes for a good answer."""
    answers, _ = await ask(*events)
    assert {answer.error for answer in answers} == {error}


async def test_a_refused_request_is_an_error_with_its_status():
    """503 is counted as such."""
    answers, _ = await ask(status=503)
    assert {answer.error for answer in answers} == {"HTTP 503"}


async def test_an_unreachable_gateway_is_an_error_and_not_a_hang():
    """The name of what happened is kept; nothing is raised."""
    target = Target("http://127.0.0.1:1", "m", {"shop": "sk"})
    answers = await drive(target, conversations(turns=1, per_tenant=0)[-1:], AT_ONCE, lambda _done: None)
    assert {answer.error for answer in answers} == {"ClientConnectorError"}


async def test_people_come_one_after_the_other_and_think_between_turns():
    """Two conversations of two turns: the second comes 0.1 s later and thinks for 0.1 s at least."""
    target = Target("http://127.0.0.1:1", "m", {"shop": "sk", "lease": "sk", "travel": "sk"})
    load = [talk for talk in conversations(turns=2, per_tenant=1) if talk.name in ("shop-0", "lease-0")]
    started = time.perf_counter()
    answers = await drive(target, load, Pace(arrival_seconds=0.1, think_seconds=0.2), lambda _done: None)
    assert time.perf_counter() - started >= 0.2
    assert [answer.conversation for answer in answers][:2] == ["shop-0", "lease-0"]
    assert len(answers) == 4
