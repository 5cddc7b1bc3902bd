"""One prompt to one worker's cache: what counts as brought, and what a worker's answers teach."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager

import pytest

from gateway.prewarm.sender import ANSWER_BYTES, Sender, SendError
from gateway.upstream import Timeouts, Upstream
from tests.gateway.builders import build_worker
from tests.gateway.prewarm.prewarm_builders import build_kept
from tests.gateway.scripted_worker import plain_json, raw, reset_at_once, scripted_worker


def answers(status: str = "200 OK", **fields: object):
    """A script that answers every request with this JSON."""

    async def script(exchange):
        await exchange.send_json(json.dumps(fields).encode(), status=status)

    return script


@asynccontextmanager
async def sending_to(script):
    """A sender, and the worker behind it."""
    async with scripted_worker(script) as behind:
        upstream = Upstream(Timeouts(1.0, 2.0, 2.0, 2.0))
        try:
            yield Sender(upstream), build_worker(name="new", port=behind.port, api_key="worker-key"), behind
        finally:
            upstream.close()


SOURCE = build_worker(name="old", port=8000)


@pytest.mark.parametrize(
    ("script", "enough"),
    [
        (answers(prompt_tokens=100, cached_tokens=96, reason="nothing_missing"), True),
        (answers(prompt_tokens=100, cached_tokens=16, reason="slower_than_computing"), False),
        (answers(prompt_tokens=0, cached_tokens=0), False),
        (answers(), False),
        (plain_json, False),
        (answers(cached_tokens="many"), False),
        (answers("500 Internal Server Error"), False),
    ],
)
async def test_a_pull_counts_when_the_worker_then_has_most_of_the_prompt(script, enough):
    """By its own word."""
    async with sending_to(script) as (sender, worker, behind):
        assert await sender.pull(build_kept(), worker, SOURCE) is enough
        assert behind.exchanges[0].asked["from"] == SOURCE.backend.address.url
        assert behind.exchanges[0].field("authorization") == "Bearer worker-key"


async def test_a_worker_without_the_route_is_asked_once():
    """404: any engine but the bundled worker. When it is another process, it is asked again."""
    async with sending_to(answers("404 Not Found")) as (sender, worker, _):
        assert sender.may_pull(worker, SOURCE)
        await sender.pull(build_kept(), worker, SOURCE)
        assert not sender.may_pull(worker, SOURCE)
        assert not sender.may_pull(worker, build_worker(name="other", port=8001))
        sender.forget("new")
        assert sender.may_pull(worker, SOURCE)
        assert not sender.may_pull(worker, None)


async def test_a_peer_that_the_worker_was_not_told_of_is_asked_for_once():
    """400: others may still be its peers."""
    async with sending_to(answers("400 Bad Request")) as (sender, worker, _):
        await sender.pull(build_kept(), worker, SOURCE)
        assert not sender.may_pull(worker, SOURCE)
        assert sender.may_pull(worker, build_worker(name="other", port=8001))


@pytest.mark.parametrize(
    ("script", "refused"),
    [
        (answers("400 Bad Request"), True),
        (answers("429 Too Many Requests"), False),
        (answers("503 Service Unavailable"), False),
        (reset_at_once, False),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{}"), False),
        (raw(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (2 * ANSWER_BYTES) + b" " * 2 * ANSWER_BYTES), False),
    ],
)
async def test_a_prompt_that_was_not_taken_is_told_apart(script, refused):
    """What is refused now is refused later; a fault may pass."""
    async with sending_to(script) as (sender, worker, _):
        with pytest.raises(SendError) as failed:
            await sender.compute(build_kept(), worker)
        assert failed.value.refused is refused
        assert "CANARY" not in str(failed.value)


async def test_a_prompt_that_was_taken_is_one_request_on_a_kept_connection():
    """And the connection is there for the next."""
    async with sending_to(plain_json) as (sender, worker, behind):
        for _ in range(2):
            await sender.compute(build_kept(), worker)
        assert [exchange.asked["max_tokens"] for exchange in behind.exchanges] == [1, 1]
        assert behind.connections == 1


async def test_a_fault_says_nothing_about_what_a_worker_can():
    """It may pull the next one."""
    async with sending_to(answers("503 Service Unavailable")) as (sender, worker, _):
        await sender.pull(build_kept(), worker, SOURCE)
        assert sender.may_pull(worker, SOURCE)
