"""A caller's own deadline: told to workers, kept in every phase, told in the caller's shape."""

from __future__ import annotations

import json

import openai
import pytest

from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import (
    Exchange,
    ordinary,
    reset_at_once,
    scripted_worker,
    silent,
    stream_then,
    until,
)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_worker_that_stays_silent_is_given_up_at_the_deadline(stream: bool) -> None:
    """Row E15: 504 that says not to come back, the worker's request cancelled, everything given back."""
    async with scripted_worker(silent) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=stream, headers={"x-request-timeout": "0.2"})
        assert (answer.status, answer.error["code"]) == (504, "deadline_passed")
        assert answer.fields["x-should-retry"] == "false"
        await until(lambda: worker.live == 0)
        await until(running.settled)
        assert len(worker.exchanges) == 1
        assert running.count("requests_total", tenant="acme", model="m", code="504") == 1


async def test_a_stream_under_way_is_ended_in_band() -> None:
    """An error event and no [DONE]; openai's own client raises."""
    async with scripted_worker(stream_then(3, silent)) as worker, running_gateway(worker) as running:
        answer = await running.ask(stream=True, headers={"x-request-timeout": "0.3"})
        last = answer.body.rstrip().rpartition(b"\n\n")[2].removeprefix(b"data: ")
        assert (answer.status, json.loads(last)["error"]["code"]) == (200, "deadline_passed")
        assert b"[DONE]" not in answer.body
        client = openai.AsyncOpenAI(
            base_url=f"http://127.0.0.1:{running.gateway.api_port}/v1", api_key="acme-key", max_retries=0
        )
        with pytest.raises(openai.APIError, match="answered in"):
            async for _ in await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "x"}], stream=True,
                extra_headers={"x-request-timeout": "0.3"},
            ):  # fmt: skip
                pass
        await until(lambda: worker.live == 0)


async def test_a_plain_answer_under_way_is_cut_and_never_looks_complete() -> None:
    """Half of a body came: the connection is reset."""

    async def half(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
        await exchange.client_gone()

    async with scripted_worker(half) as worker, running_gateway(worker) as running:
        answer = await running.ask(headers={"x-request-timeout": "0.3"})
        assert not answer.whole
        await until(lambda: worker.live == 0)


async def test_workers_hear_what_is_left_at_each_attempt() -> None:
    """Less at the second than at the first, and nothing where the caller said nothing."""
    async with (
        scripted_worker(reset_at_once) as bad,
        scripted_worker(ordinary) as good,
        running_gateway(bad, good) as running,
    ):
        for _ in range(8):
            assert (await running.ask(headers={"x-request-timeout": "5"})).status == 200
        told = [float(exchange.field("x-request-timeout") or 0) for exchange in (*bad.exchanges, *good.exchanges)]
        assert all(4 < seconds <= 5 for seconds in told)
        assert bad.exchanges
        await running.ask()
        assert good.exchanges[-1].field("x-request-timeout") is None


@pytest.mark.parametrize("given", ["", "0", "-1", "1e3", "nan", "inf", "5s", "1,5", "0.0001", "9999999"])
async def test_what_is_no_time_is_refused(given: str) -> None:
    """400 that names the field; nothing goes to a worker."""
    async with scripted_worker(ordinary) as worker, running_gateway(worker) as running:
        answer = await running.ask(headers={"x-request-timeout": given})
        assert (answer.status, answer.error["param"]) == (400, "x-request-timeout")
        assert worker.exchanges == []
