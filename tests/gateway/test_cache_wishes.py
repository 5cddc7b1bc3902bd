"""How long a tenant's blocks are kept is told to workers that understand it, unless the caller says so itself."""

from __future__ import annotations

import json

import pytest

from gateway.cache_wishes import CacheWishes, with_wishes
from gateway.config import ConfigError, load_config
from tests.gateway.running_gateway import running_gateway
from tests.gateway.scripted_worker import CACHE_FIELDS, ordinary, scripted_worker

PIN = CacheWishes(policy="pin", ttl_seconds=600.0)
BODY = b'{"messages": [ 1.0 ], "model":"m"}'


def told(body: bytes, wishes: CacheWishes = PIN, understood: tuple[str, ...] = CACHE_FIELDS) -> dict:
    return json.loads(with_wishes(body, wishes, understood))


def test_a_policy_and_its_time_are_told_where_vllm_takes_flat_values():
    """Beside what the caller has there, whose bytes stay."""
    sent = with_wishes(b'{"messages": [ 1.0 ], "vllm_xargs": {"a": 1.50}}', PIN, CACHE_FIELDS)
    assert b'"messages":[ 1.0 ]' in sent
    assert b'"a":1.50' in sent
    assert json.loads(sent)["vllm_xargs"] == {"a": 1.5, "cache_policy": "pin", "cache_ttl_seconds": 600.0}


@pytest.mark.parametrize("own", [{"cache_policy": "normal"}, {"vllm_xargs": {"cache_policy": "evict-first"}}])
def test_a_callers_own_policy_goes_before_its_tenants(own):
    """At either place."""
    body = json.dumps({"messages": [], **own}).encode()
    assert with_wishes(body, PIN, CACHE_FIELDS) is body
    assert told(body, CacheWishes("support", "pin"))["vllm_xargs"]["cache_partition"] == "support"


def test_a_worker_that_does_not_understand_gets_the_very_same_bytes():
    """Nothing is said to an engine that has no use for it, and only what it has a use for."""
    assert with_wishes(BODY, PIN, ()) is BODY
    assert told(BODY, PIN, ("cache_policy",))["vllm_xargs"] == {"cache_policy": "pin"}


@pytest.mark.parametrize(("understood", "expected"), [(CACHE_FIELDS, "support"), ((), None)])
async def test_what_a_workers_model_card_lists_decides(understood, expected):
    """Through the whole gateway: the tenant's share goes to workers that list the field, to others nothing."""
    async with scripted_worker(ordinary) as worker:
        worker.cache_fields = understood
        async with running_gateway(worker) as running:
            await running.ask(key="support-key")
        assert worker.exchanges[0].asked.get("vllm_xargs", {}).get("cache_partition") == expected


@pytest.mark.parametrize(
    ("tenant", "place"),
    [
        ("cache_ttl_seconds: 5", "cache_ttl_seconds"),
        ("cache_policy: normal, cache_ttl_seconds: 5", "cache_ttl_seconds"),
        ("cache_policy: pin, cache_ttl_seconds: 90000", "cache_ttl_seconds"),
        ("cache_policy: keep", "cache_policy"),
        ("rewrite: [line_end]", "rewrite"),
        ("pinned: [{name: a, file: /nowhere/a.json}]", "pinned[0].file"),
    ],
)
def test_a_setting_that_cannot_be_is_named(tmp_path, tenant, place):
    """With its place in the file."""
    path = tmp_path / "homing.yaml"
    path.write_text(f"""
models: {{m: {{backends: {{static: ["http://127.0.0.1:8000"]}}}}}}
tenants: {{acme: {{open: true, isolation: shared, {tenant}}}}}
""")
    with pytest.raises(ConfigError) as caught:
        load_config(path, {})
    assert f"$.tenants.acme.{place}" in str(caught.value)
