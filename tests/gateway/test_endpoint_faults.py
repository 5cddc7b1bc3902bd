"""What goes wrong at each endpoint, and how its caller is told: statuses, dialects, streams that break."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.gateway.dialect_worker import as_vllm, named_event, send_events, without_endpoint
from tests.gateway.endpoint_builders import ANTHROPIC, PATHS, STREAMS, ask, workers
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import DONE, Exchange, event, refused_port, until


@pytest.mark.parametrize("path", PATHS)
async def test_errors_of_the_gateway_come_in_the_callers_dialect(path: str) -> None:
    """No key, an unknown model, a bad body, the wrong method."""
    async with workers() as (running, _):
        answers = [
            await ask(running, path, key="nobody"),
            await ask(running, path, model="other"),
            await running.ask(path=path, body=b"{"),
            await running.ask(path=path, method="GET"),
        ]
        assert [answer.status for answer in answers] == [401, 404, 400, 405]
        for answer in answers:
            assert ("request_id" in answer.json) is (path in ANTHROPIC)
            assert answer.error["message"]
        kinds = [answer.error["type"] for answer in answers]
        if path in ANTHROPIC:
            bad = "invalid_request_error"
            assert kinds == ["authentication_error", "not_found_error", bad, bad]
            assert answers[1].json["request_id"] == answers[1].fields["request-id"]
        else:
            assert set(kinds) == {"invalid_request_error"}


@pytest.mark.parametrize("path", PATHS)
async def test_no_worker_at_all_is_503_or_anthropics_529(path: str) -> None:
    """With the hint to come back."""
    async with running_gateway(refused_port(), probe_seconds=0.1) as running:
        answer = await ask(running, path)
        assert answer.status == (529 if path in ANTHROPIC else 503)
        assert answer.fields["retry-after"] == "1"


@pytest.mark.parametrize("path", PATHS)
async def test_a_worker_without_the_endpoint_is_told_of_clearly_and_stays(path: str) -> None:
    """404 in the caller's dialect; the worker goes on answering what it can."""
    async with workers(script=without_endpoint) as (running, (worker,)):
        answer = await ask(running, path)
        assert answer.status == 404
        assert "do not serve this endpoint" in answer.error["message"]
        assert answer.json.get("type") == ("error" if path in ANTHROPIC else None)
        assert answer.error.get("code") == (None if path in ANTHROPIC else "endpoint_not_served")
        worker.script = as_vllm
        assert (await ask(running, path)).status == 200
        assert running.count("backend_ejections_total", reason="broke") == 0
        assert running.count("requests_total", tenant="acme", model="m", code="404") == 1


async def test_a_workers_refusal_passes_as_it_is_or_in_anthropics_shape() -> None:
    """Case C-09, on the other endpoints: the status, a JSON type, and the worker's words."""
    said = b'{"error":{"message":"too long","type":"BadRequestError","param":null,"code":400}}'

    async def refuses(exchange: Exchange) -> None:
        await exchange.send_json(said, status="400 Bad Request")

    async with workers(script=refuses) as (running, _):
        answer = await ask(running, "/v1/responses", stream=True)
        assert (answer.status, answer.body) == (400, said)
        answer = await ask(running, "/v1/messages", stream=True)
        assert (answer.status, answer.fields["content-type"]) == (400, "application/json")
        assert answer.error == {"type": "invalid_request_error", "message": "too long"}
        assert answer.json["request_id"] == answer.fields["request-id"]


@pytest.mark.parametrize("path", list(STREAMS))
async def test_a_cut_stream_ends_in_an_error_event_and_no_completion(path: str) -> None:
    """Case C-06 in both dialects: what came passes, then one error event, and nothing that looks like an end."""
    whole = STREAMS[path]

    async def cut(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for each in whole[:3]:
            await exchange.chunk(each)
        await exchange.chunk(whole[3][:20])
        exchange.reset()

    async with workers(script=cut) as (running, _):
        answer = await ask(running, path, stream=True)
        came, _, last = answer.body.rpartition(b"event: ")
        assert came == b"".join(whole[:3])
        assert last.startswith(b"error\ndata: ")
        told = json.loads(last.partition(b"data: ")[2])
        assert told["error"]["type"] == ("api_error" if path in ANTHROPIC else "server_error")
        assert b"completed" not in answer.body
        assert b"message_stop" not in answer.body
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1


@pytest.mark.parametrize("path", ["/v1/chat/completions", *STREAMS])
async def test_a_worker_that_forgets_to_end_a_body_holds_nobody_up(path: str) -> None:
    """Case C-27: thirty streams whose last event came and whose socket stays open; all are whole and let go of."""
    events = STREAMS.get(path, [event("one"), DONE])

    async def forgetful(exchange: Exchange) -> None:
        await exchange.begin_stream()
        for each in events:
            await exchange.chunk(each)
        await exchange.client_gone()

    async with workers(script=forgetful, idle=30.0) as (running, (worker,)):
        answers = await asyncio.gather(*[ask(running, path, stream=True) for _ in range(30)])
        assert {(answer.status, answer.body, answer.whole) for answer in answers} == {(200, b"".join(events), True)}
        await until(running.settled)
        await until(lambda: worker.live == 0)
        assert running.count("requests_total", tenant="acme", model="m", code="200") == 30
        assert running.count("backend_ejections_total", reason="silent") == 0


@pytest.mark.parametrize(
    ("path", "error_event"),
    [
        ("/v1/responses", named_event("error", code="x", message="m", param=None, sequence_number=0)),
        ("/v1/messages", named_event("error", error={"type": "overloaded_error", "message": "m"})),
    ],
)
async def test_an_error_event_of_the_worker_passes_and_counts_as_one(path: str, error_event: bytes) -> None:
    """Case C-08 in both dialects: not tried again, and the worker is not at fault."""

    async def failing(exchange: Exchange) -> None:
        await send_events(exchange, b": ping\n\n", error_event)

    async with workers(2, script=failing) as (running, fleet):
        answer = await ask(running, path, stream=True)
        assert (answer.status, answer.body) == (200, b": ping\n\n" + error_event)
        assert sum(len(worker.exchanges) for worker in fleet) == 1
        await until(running.settled)
        assert running.count("requests_total", tenant="acme", model="m", code="502") == 1
        assert running.count("backend_ejections_total", reason="broke") == 0
