"""What may change while the gateway runs: field by field, so that a new setting needs a restart at first."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.config_checks import Secrets
from gateway.config_source import json_path
from gateway.reload_rules import ALL, MODEL_RELOADS, RELOADS, needs_restart, secrets_need_restart
from gateway.settings import Config, Model
from tests.gateway.builders import build_config_data, key_line


def build_config(**sections: Any) -> Config:
    return msgspec.convert(build_config_data(**sections), Config)


def changed(**sections: Any) -> list[str]:
    return [json_path(place) for place in needs_restart(build_config(), build_config(**sections))]


def model(**more: Any) -> dict[str, Any]:
    return {"m": {"backends": {"static": ["http://127.0.0.1:8001"]}, **more}}


def test_every_rule_names_a_setting_that_exists():
    """A word misspelt would need a restart for ever."""
    assert RELOADS.keys() <= set(Config.__struct_fields__)
    sections = build_config()
    for name, fields in RELOADS.items():
        if fields != ALL:
            assert fields <= set(getattr(sections, name).__struct_fields__)
    assert set(Model.__struct_fields__) >= MODEL_RELOADS


@pytest.mark.parametrize(
    "sections",
    [
        {},
        {"tenants": {"other": {"keys": [key_line("k")], "isolation": "shared"}}},
        {"salt_secrets": {"k2": "env:SALT"}},
        {"revoked_keys": "file:/nowhere"},
        {"timeouts": {"idle_seconds": 3, "drain_seconds": 1}},
        {"limits": {"body_bytes": 7}},
        {"log": {"level": "debug", "decision_share": 1}},
        {"models": model(adapters=["a"], policy="ring", max_in_flight=3, prefill_tokens_per_second=7)},
        {"models": {**model(), "n": {"backends": {"static": ["http://h:1"]}, "tokenizer": "/t"}}},
        {"models": {"n": {"backends": {"static": ["http://h:1"]}}}},
    ],
)
def test_what_may_change(sections):
    """Models may come with whatever they need, and go."""
    assert changed(**sections) == []


@pytest.mark.parametrize(
    ("sections", "places"),
    [
        ({"listen": {"port": 1, "admin_port": 0}}, ["$.listen.port"]),
        ({"probes": {"interval_seconds": 9}}, ["$.probes.interval_seconds"]),
        ({"prewarm": {"enabled": False}}, ["$.prewarm.enabled"]),
        ({"log": {"format": "json", "level": "debug"}}, ["$.log.format"]),
        ({"redis": {"url": "redis://h"}}, ["$.redis"]),
        ({"record": {"path": "/r"}}, ["$.record"]),
        ({"models": model(tokenizer="/t", worker_block_tokens=32)},
         ["$.models.m.tokenizer", "$.models.m.worker_block_tokens"]),
        ({"models": model(events="off")}, ["$.models.m.events"]),
    ],
)  # fmt: skip
def test_what_needs_a_restart_is_named_by_its_place(sections, places):
    """Field by field."""
    assert changed(**sections) == places


def test_secrets_behind_references_may_change_but_for_redis():
    """Replicas seal what they tell each other with the salt secret: one that has another is heard by nobody."""
    before = Secrets(salt_key=b"a", digests={"acme": [b"1"]}, worker_keys={"env:K": "1"})
    after = Secrets(salt_key=b"b", digests={"acme": [b"2"]}, worker_keys={"env:K": "2"}, revoked=frozenset({b"1"}))
    assert secrets_need_restart(before, after) == ()
    before.redis_url = after.redis_url = "redis://one"
    assert secrets_need_restart(before, after) == (("salt_secrets",),)
    after.salt_key, after.redis_url, after.admin_token = before.salt_key, "redis://two", "t" * 40
    assert secrets_need_restart(before, after) == (("redis", "url"), ("listen", "admin_token"))
