"""No caller speaks to workers as a router does: of other requests' blocks, other adapters, other requests' numbers."""

from __future__ import annotations

import json

import pytest

from gateway.body_fields import DECIDED, RESERVED
from gateway.errors import InvalidRequest
from gateway.wire import Endpoint, parse_call
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import scripted_worker

PULL = {"do_remote_prefill": True, "remote_engine_id": "e", "remote_block_ids": [1, 2], "remote_host": "10.0.0.9"}
TEXTS = {
    Endpoint.CHAT: {"messages": [{"role": "user", "content": "hi"}]},
    Endpoint.MESSAGES: {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5},
    Endpoint.COUNT_TOKENS: {"messages": [{"role": "user", "content": "hi"}]},
    Endpoint.COMPLETIONS: {"prompt": "hi"},
    Endpoint.TOKENIZE: {"prompt": "hi"},
    Endpoint.DETOKENIZE: {"tokens": [1]},
    Endpoint.RESPONSES: {"input": "hi"},
    Endpoint.EMBEDDINGS: {"input": "hi"},
}


@pytest.mark.parametrize("endpoint", Endpoint)
@pytest.mark.parametrize("name", sorted(RESERVED))
def test_a_routers_field_is_refused_on_every_endpoint(endpoint, name):
    """By its place, however it is spelled, in vLLM's field for whatever else there is, too; null says nothing."""
    body = {"model": "m", **TEXTS[endpoint]}
    for fields, place in (({name: PULL}, name), ({"vllm_xargs": {name: "x"}}, f"vllm_xargs.{name}")):
        with pytest.raises(InvalidRequest, match="not yours to write") as caught:
            parse_call(endpoint, json.dumps({**body, **fields}).encode())
        assert caught.value.param == place
    escaped = json.dumps({**body, "X": 1}).replace('"X"', f'"\\u{ord(name[0]):04x}{name[1:]}"')
    with pytest.raises(InvalidRequest):
        parse_call(endpoint, escaped.encode())
    assert parse_call(endpoint, json.dumps({**body, name: None}).encode()).model == "m"


def test_none_is_hidden_behind_a_second_one_of_its_name():
    """Readers do not agree on which of two counts."""
    assert RESERVED <= DECIDED
    body = b'{"model":"m","prompt":"a","kv_transfer_params":{"do_remote_prefill":true},"kv_transfer_params":null}'
    with pytest.raises(InvalidRequest, match="more than once"):
        parse_call(Endpoint.COMPLETIONS, body)


async def test_no_worker_sees_one():
    """400 with the field's name; the answer quotes nothing of it."""
    async with scripted_worker() as worker, running_gateway(worker) as running:
        answer = await running.ask(kv_transfer_params={**PULL, "remote_engine_id": "CANARY"})
        assert (answer.status, answer.error["param"]) == (400, "kv_transfer_params")
        assert "CANARY" not in json.dumps(answer.json)
        assert worker.exchanges == []
