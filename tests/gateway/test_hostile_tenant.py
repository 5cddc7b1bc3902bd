"""A tenant with a valid key who would go before others, in the place of others, or at what only others may see."""

from __future__ import annotations

import json

import pytest

from gateway.body_fields import DECIDED
from gateway.errors import InvalidRequest
from gateway.logs import RequestLine
from gateway.wire import Endpoint, parse_call
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker, until
from tests.gateway.test_reserved_fields import TEXTS

IMAGE = {"type": "image_url", "image_url": None, "uuid": "sku-1234"}


async def test_a_worker_never_hears_a_callers_request_id():
    """vLLM knows a request by that header: who guesses a stranger's has it refused, or mixed up with his own. The
    caller gets its own back, and the log line has both."""
    lines: list[RequestLine] = []
    async with scripted_worker() as worker, running_gateway(worker) as running:
        running.gateway.server._proxy._accounts.write_line = lines.append
        answers = [await running.ask(headers={"x-request-id": "same"}) for _ in range(2)]
        assert [answer.fields["x-request-id"] for answer in answers] == ["same", "same"]
        sent = [exchange.field("x-request-id") for exchange in worker.exchanges]
        assert len({*sent, "same"}) == 3
        await until(lambda: len(lines) == 2)
        assert [(line.request_id, line.worker_request_id) for line in lines] == [("same", each) for each in sent]


async def test_without_an_id_of_the_callers_own_there_is_only_one():
    """What the caller is told is what the worker heard, and the log does not say it twice."""
    lines: list[RequestLine] = []
    async with scripted_worker() as worker, running_gateway(worker) as running:
        running.gateway.server._proxy._accounts.write_line = lines.append
        told = (await running.ask()).fields["x-request-id"]
        assert told == worker.exchanges[0].field("x-request-id")
        await until(lambda: lines)
        assert (lines[0].request_id, lines[0].worker_request_id) == (told, None)


@pytest.mark.parametrize("priority", [-1, 1, "-5", True, 0.5, [0], {}])
async def test_nobody_passes_others_by_a_priority_of_his_own(priority):
    """Workers with priority scheduling put it before everybody else's; engines do not agree which way is first."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        answer = await running.ask(priority=priority)
        assert (answer.status, answer.error["param"]) == (400, "priority")
        assert worker.exchanges == []


async def test_the_usual_priority_passes_and_so_does_that_of_a_tenant_who_may():
    """0 and null say nothing; `allow_priority` is the operator's word."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        for priority in (0, None):
            assert (await running.ask(priority=priority)).status == 200
        assert (await running.ask(priority=-3, key="hasty-key")).status == 200
        assert [exchange.asked["priority"] for exchange in worker.exchanges] == [0, None, -3]


def test_a_priority_is_not_hidden_behind_a_second_one():
    """Readers do not agree on which of two counts."""
    assert "priority" in DECIDED
    with pytest.raises(InvalidRequest, match="more than once"):
        parse_call(Endpoint.COMPLETIONS, b'{"model":"m","prompt":"a","priority":-9,"prior\\u0069ty":0}')


@pytest.mark.parametrize("endpoint", [each for each in Endpoint if "messages" in TEXTS[each]])
async def test_media_by_name_alone_is_refused_where_caches_are_kept_apart(endpoint):
    """vLLM keeps media under a `uuid` that the caller chooses, for all tenants: with it one would be told what is in
    another's picture, or put one's own in its place. However it is spelled; `salts_messages` has no part in it."""
    body = {"model": "m", **TEXTS[endpoint], "messages": [{"role": "user", "content": [IMAGE]}]}
    spelled = json.dumps(body).replace('"uuid"', '"u\\u0075id"')
    async with scripted_worker() as worker, running_gateway(worker) as running:
        for text in (json.dumps(body), spelled):
            answer = await running.ask(path=endpoint.value, key="acme-key", body=text.encode())
            assert (answer.status, "sku-1234" in answer.body.decode()) == (400, False)
            assert "uuid" in answer.error["message"]
        assert worker.exchanges == []


async def test_media_by_name_pass_where_they_may():
    """A shared tenant has said that others may see; null names nothing; a call's arguments and text may say uuid."""
    text = {"type": "text", "text": '{"uuid": "x"}', "uuid": None}
    async with scripted_worker() as worker, running_gateway(worker) as running:
        assert (await running.ask(key="shared-key", messages=[{"role": "user", "content": [IMAGE]}])).status == 200
        assert (await running.ask(messages=[{"role": "user", "content": [text], "uuid": "x"}])).status == 200
        item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "uuid"}]}
        assert (await running.ask(path="/v1/responses", body=b'{"model":"m","input":"uuid"}')).status == 200
        answer = await running.ask(path="/v1/responses", body=json.dumps({"model": "m", "input": [item]}).encode())
        assert answer.status == 200
        assert len(worker.exchanges) == 4


async def test_media_by_name_hide_nowhere_in_the_items_of_a_response():
    """Content of a message, and what a tool gave."""
    for item in (
        {"role": "user", "content": [IMAGE]},
        {"type": "function_call_output", "call_id": "c", "output": [IMAGE]},
    ):
        async with scripted_worker() as worker, running_gateway(worker) as running:
            body = json.dumps({"model": "m", "input": [item]}).encode()
            answer = await running.ask(path="/v1/responses", body=body)
            assert (answer.status, worker.exchanges) == (400, [])
