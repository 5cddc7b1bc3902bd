"""Whose share of a worker's cache a request uses: the tenant's, whatever the caller says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gateway.cache_wishes import CacheWishes, with_wishes
from gateway.errors import InvalidRequest
from gateway.explain_requests import Explainer
from gateway.settings import TenantSettings
from gateway.tenants import Tenant, build_tenant
from gateway.wire import Call, Endpoint, forward_body, parse_call
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import CACHE_FIELDS, ordinary, scripted_worker

CHAT = Endpoint.CHAT
MESSAGES = [{"role": "user", "content": "hi"}]
FIELD = "vllm_xargs.cache_partition"


def build_body(**fields: Any) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, **fields}).encode()


def chat(**fields: Any) -> Call:
    return parse_call(CHAT, build_body(**fields))


def build_named(partition: str | None) -> Tenant:
    return build_tenant("acme", TenantSettings(isolation="shared", cache_partition=partition), None)


def sent_to(call: Call, partition: str | None, understood: tuple[str, ...] = CACHE_FIELDS) -> bytes:
    """What a worker that understands these fields gets."""
    body = forward_body(call, salt=None, ask_usage=False)
    return body if partition is None else with_wishes(body, CacheWishes(partition), understood)


def forwarded(call: Call, partition: str | None) -> dict[str, Any]:
    return json.loads(sent_to(call, partition))


def test_the_tenants_partition_is_put_into_the_body() -> None:
    """Where vLLM keeps what is not its own."""
    assert forwarded(chat(), "support")["vllm_xargs"] == {"cache_partition": "support"}
    assert forwarded(chat(vllm_xargs=None), "support")["vllm_xargs"] == {"cache_partition": "support"}


def test_other_extra_arguments_keep_their_bytes() -> None:
    """Only one key is the gateway's."""
    body = build_body()[:-1] + b', "vllm_xargs": {"a": [1,  1.50, "\\u00e9"], "b": 18446744073709551615}}'
    sent = sent_to(parse_call(CHAT, body), "support")
    assert b'"a":[1,  1.50, "\\u00e9"]' in sent
    assert b'"b":18446744073709551615' in sent
    assert json.loads(sent)["vllm_xargs"]["cache_partition"] == "support"


@pytest.mark.parametrize("fields", [{}, {"vllm_xargs": {"a": 1}}, {"vllm_xargs": None}])
def test_without_a_partition_the_very_same_bytes_are_forwarded(fields: dict[str, Any]) -> None:
    """Nothing is looked into, nothing is made anew."""
    call = chat(**fields)
    assert sent_to(call, None) is call.body
    assert sent_to(call, "support", ()) is call.body


def test_a_caller_may_name_the_right_one() -> None:
    """It is what is sent anyway; of two spellings of it only the gateway's is left."""
    body = build_body()[:-1] + b', "vllm_xargs": {"cache_partition": "sales", "cache_partition": "support"}}'
    call = parse_call(CHAT, body)
    build_named("support").check_partition(call.partition)
    sent = sent_to(call, "support")
    assert sent.count(b"cache_partition") == 1
    assert json.loads(sent)["vllm_xargs"] == {"cache_partition": "support"}


@pytest.mark.parametrize(("own", "asked"), [(None, "support"), ("support", "sales"), (None, ""), ("support", "")])
def test_a_caller_cannot_choose(own: str | None, asked: str) -> None:
    """400 that names the field: silence would leave it in the belief that it was heeded."""
    with pytest.raises(InvalidRequest) as caught:
        build_named(own).check_partition(chat(vllm_xargs={"cache_partition": asked}).partition)
    assert caught.value.param == FIELD


@pytest.mark.parametrize("extra", [[], "x", {"cache_partition": 7}, {"cache_partition": ["support"]}])
def test_what_is_no_name_is_refused(extra: Any) -> None:
    """Before anything is decided by it."""
    with pytest.raises(InvalidRequest):
        chat(vllm_xargs=extra)


@pytest.mark.parametrize("key", [b'"vllm_xargs"', b'"vllm\\u005fxargs"'])
def test_a_second_place_for_it_is_refused_in_every_spelling(key: bytes) -> None:
    """No parser downstream may read another value than we did."""
    body = build_body(vllm_xargs={})[:-1] + b", " + key + b': {"cache_partition": "sales"}}'
    with pytest.raises(InvalidRequest) as caught:
        parse_call(CHAT, body)
    assert caught.value.param == "vllm_xargs"


def test_of_two_names_inside_none_survives_beside_the_tenants() -> None:
    """The object is put together anew, with one key of each name."""
    body = build_body()[:-1] + b', "vllm_xargs": {"cache_partition": "sales", "cache_partition": null}}'
    sent = sent_to(parse_call(CHAT, body), "support")
    assert b"sales" not in sent
    assert sent.count(b"cache_partition") == 1


async def test_a_worker_gets_the_tenants_partition_on_both_endpoints() -> None:
    """Through the whole gateway; a tenant without one sends none."""
    async with scripted_worker(ordinary) as worker, running_gateway(worker) as running:
        for path, body in (
            ("/v1/chat/completions", {"messages": MESSAGES, "vllm_xargs": {"a": 1}}),
            ("/v1/completions", {"prompt": "x"}),
        ):
            answer = await running.ask(path=path, key="support-key", body=json.dumps({"model": "m", **body}).encode())
            assert answer.status == 200
        assert [exchange.asked["vllm_xargs"]["cache_partition"] for exchange in worker.exchanges] == ["support"] * 2
        assert worker.exchanges[0].asked["vllm_xargs"]["a"] == 1
        await running.ask(key="shared-key")
        assert "vllm_xargs" not in worker.exchanges[2].asked


async def test_a_callers_own_partition_never_reaches_a_worker() -> None:
    """Neither another tenant's nor anything for a tenant without one."""
    async with scripted_worker(ordinary) as worker, running_gateway(worker) as running:
        for key in ("support-key", "acme-key"):
            answer = await running.ask(key=key, vllm_xargs={"cache_partition": "sales"})
            assert (answer.status, answer.error["param"]) == (400, FIELD)
        assert worker.exchanges == []


def test_explaining_a_request_refuses_what_serving_refuses() -> None:
    """`homing explain` says the same."""
    said = Explainer().explain(build_body(vllm_xargs={"cache_partition": "sales"}))
    assert "cache_partition" in said["error"]
