"""Wishes for the cache: the same from every spelling, and a word for each that cannot be understood."""

from __future__ import annotations

from typing import Any

import pytest

from backends.api_errors import BadRequestError
from backends.cache_fields import LONGEST_SECONDS, PIN_SECONDS, CacheWish, read_cache_wish
from backends.request_fields import Fields
from backends.retention import ORDINARY, CachePolicy, Retention

MARKED = [{"role": "user", "content": "x", "cache_control": {"type": "ephemeral", "ttl": "1h"}}]


def read(**fields: Any) -> CacheWish:
    return read_cache_wish(Fields(fields), ("", "support"))


def refusal_of(**fields: Any) -> BadRequestError:
    with pytest.raises(BadRequestError) as caught:
        read(**fields)
    return caught.value


def test_no_wish_is_ordinary():
    """And in the common partition."""
    assert read() == CacheWish()
    assert read(vllm_xargs={"other": 1}) == CacheWish()


@pytest.mark.parametrize(
    "fields",
    [
        {"cache_policy": {"retention": "pin", "ttl_seconds": 60}},
        {"vllm_xargs": {"cache_policy": {"retention": "pin", "ttl_seconds": 60}}},
        {"vllm_xargs": {"cache_policy": "pin", "cache_ttl_seconds": 60}},
    ],
)
def test_one_wish_has_three_spellings(fields: dict[str, Any]):
    """At the top, in vllm_xargs, and flat, as vLLM takes no objects there."""
    assert read(**fields).policy == CachePolicy(Retention.PIN, 60.0)


@pytest.mark.parametrize("retention", list(Retention))
def test_a_word_is_enough(retention: Retention):
    """A pin lasts five minutes then, the others as long as they last."""
    ttl = PIN_SECONDS if retention is Retention.PIN else None
    assert read(cache_policy=retention.value).policy == CachePolicy(retention, ttl)


def test_a_wish_may_end_at_a_token():
    """The rest of the prompt is ordinary."""
    assert read(cache_policy={"retention": "priority", "until_token": 64}).policy.until_token == 64


def test_anthropics_mark_is_a_pin_up_to_its_message():
    """With its own time."""
    assert read(messages=MARKED) == CacheWish(CachePolicy(Retention.PIN, 3600.0), 1)


def test_openais_retention_is_a_priority_for_a_day():
    """ "in_memory" is what happens anyway."""
    assert read(prompt_cache_retention="24h").policy == CachePolicy(Retention.PRIORITY, LONGEST_SECONDS)
    for word in ("in_memory", "in-memory"):
        assert read(prompt_cache_retention=word).policy == ORDINARY


def test_the_more_exact_wish_wins():
    """A policy before a mark, a mark before OpenAI's retention."""
    wish = read(cache_policy="no-store", messages=MARKED, prompt_cache_retention="24h")
    assert wish == CacheWish(CachePolicy(Retention.NO_STORE))
    assert read(messages=MARKED, prompt_cache_retention="24h").policy.retention is Retention.PIN


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"cache_policy": "forever"}, "cache_policy.retention"),
        ({"cache_policy": 7}, "cache_policy"),
        ({"cache_policy": {}}, "cache_policy.retention"),
        ({"cache_policy": {"retention": ["pin"]}}, "cache_policy.retention"),
        ({"cache_policy": {"retention": "pin", "days": 1}}, "cache_policy"),
        ({"cache_policy": {"retention": "pin", "ttl_seconds": 0}}, "cache_policy.ttl_seconds"),
        ({"cache_policy": {"retention": "pin", "ttl_seconds": 86_401}}, "cache_policy.ttl_seconds"),
        ({"cache_policy": {"retention": "pin", "ttl_seconds": True}}, "cache_policy.ttl_seconds"),
        ({"cache_policy": {"retention": "no-store", "ttl_seconds": 5}}, "cache_policy.ttl_seconds"),
        ({"cache_policy": {"retention": "pin", "until_token": 0}}, "cache_policy.until_token"),
        ({"vllm_xargs": {"cache_policy": "x"}}, "vllm_xargs.cache_policy.retention"),
        ({"vllm_xargs": {"cache_ttl_seconds": 5}}, "vllm_xargs.cache_ttl_seconds"),
        ({"cache_policy": "pin", "vllm_xargs": {"cache_policy": "pin"}}, "cache_policy"),
        ({"cache_policy": "pin", "vllm_xargs": {"cache_ttl_seconds": 5}}, "cache_policy"),
        ({"vllm_xargs": {"cache_partition": "other"}}, "vllm_xargs.cache_partition"),
        ({"vllm_xargs": {"cache_partition": 7}}, "vllm_xargs.cache_partition"),
        ({"prompt_cache_retention": "forever"}, "prompt_cache_retention"),
        ({"prompt_cache_retention": ["24h"]}, "prompt_cache_retention"),
    ],
)
def test_what_cannot_be_understood_is_named(fields: dict[str, Any], param: str):
    """A wish that is silently dropped would be found out by its costs only."""
    assert refusal_of(**fields).param == param


def test_a_partition_that_is_not_there_is_told_with_those_that_are():
    """The gateway's operator sees what to change."""
    assert "support" in refusal_of(vllm_xargs={"cache_partition": "other"}).message
    assert read(vllm_xargs={"cache_partition": "support"}).partition == "support"
    assert read(vllm_xargs={"cache_partition": ""}).partition == ""
