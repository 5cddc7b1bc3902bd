"""What a request says about the cache: how long to keep its blocks, and which share of the pool pays for them.

The spellings: `cache_policy` (an object or a word) at the top level, the same in `vllm_xargs`, or flat there
(`cache_policy: "pin"`, `cache_ttl_seconds: 600`, as vLLM takes no objects in `vllm_xargs`); Anthropic's `cache_control`
on a message or a part of one; OpenAI's `prompt_cache_retention`. `prompt_cache_key` is for routers and ignored here.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from backends.api_errors import BadRequestError
from backends.cache_control import last_mark
from backends.request_fields import Fields, is_number
from backends.retention import ORDINARY, CachePolicy, Retention
from router.core import Json

PIN_SECONDS = 300.0
"""How long a pin lasts that says nothing, as Anthropic's "5m"."""

LONGEST_SECONDS = 86_400.0
"""No wish holds for longer than a day."""

CACHE_FIELDS = ("cache_partition", "cache_policy", "cache_ttl_seconds")
"""The keys of `vllm_xargs` that are read here; model cards list them, so that gateways send them to nobody else."""

RETENTIONS = {retention.value: retention for retention in Retention}
OPENAI_RETENTIONS = {
    **dict.fromkeys(("in_memory", "in-memory"), ORDINARY),  # OpenAI's clients have had both spellings
    "24h": CachePolicy(Retention.PRIORITY, LONGEST_SECONDS),
}
TIMED = (Retention.PIN, Retention.PRIORITY)


@dataclass(frozen=True, slots=True)
class CacheWish:
    """What a request wants of the cache. `marked_messages` leading messages are what a `cache_control` covers."""

    policy: CachePolicy = ORDINARY
    marked_messages: int | None = None
    partition: str = ""


NO_WISH = CacheWish()


def read_cache_wish(fields: Fields, partitions: Collection[str] = ("",)) -> CacheWish:
    """The wish of a request; BadRequestError naming the field that cannot be understood. `partitions` are known names.

    A `cache_policy` goes before a `cache_control`, that before a `prompt_cache_retention`.
    """
    extra = Fields(fields.mapping("vllm_xargs") or {})
    partition = _partition(extra.value("cache_partition"), partitions)
    openai = _openai_retention(fields.value("prompt_cache_retention"))
    mark = last_mark(fields.value("messages"))
    policy = _policy(fields, extra)
    if policy is not None:
        return CacheWish(policy, None, partition)
    if mark is not None:
        return CacheWish(CachePolicy(Retention.PIN, mark.ttl_seconds), mark.messages, partition)
    return CacheWish(openai, None, partition)


def _policy(fields: Fields, extra: Fields) -> CachePolicy | None:
    """The `cache_policy` at either place, None without one."""
    outer, inner = fields.value("cache_policy"), extra.value("cache_policy")
    ttl = extra.value("cache_ttl_seconds")
    if outer is not None and (inner is not None or ttl is not None):
        raise BadRequestError(
            "cache_policy stands at the top level and in vllm_xargs; give it once.", param="cache_policy"
        )
    if outer is not None:
        return _read_policy(outer, "cache_policy")
    if inner is None and ttl is not None:
        raise BadRequestError(
            "vllm_xargs.cache_ttl_seconds needs a cache_policy beside it.", param="vllm_xargs.cache_ttl_seconds"
        )
    if isinstance(inner, str) and ttl is not None:
        inner = {"retention": inner, "ttl_seconds": ttl}
    return None if inner is None else _read_policy(inner, "vllm_xargs.cache_policy")


def _read_policy(value: Json, place: str) -> CachePolicy:
    if isinstance(value, str):
        value = {"retention": value}
    if not isinstance(value, dict):
        raise BadRequestError(f"{place} must be an object, or one of {', '.join(RETENTIONS)}.", param=place)
    unknown = set(value) - {"retention", "ttl_seconds", "until_token"}
    if unknown:
        raise BadRequestError(f"{place} knows retention, ttl_seconds and until_token only.", param=place)
    word = value.get("retention")
    retention = RETENTIONS.get(word) if isinstance(word, str) else None
    if retention is None:
        raise BadRequestError(f"{place}.retention must be one of {', '.join(RETENTIONS)}.", param=f"{place}.retention")
    ttl = _ttl(value.get("ttl_seconds"), retention, f"{place}.ttl_seconds")
    return CachePolicy(retention, ttl, _until(value.get("until_token"), f"{place}.until_token"))


def _ttl(value: Json, retention: Retention, place: str) -> float | None:
    if value is None:
        return PIN_SECONDS if retention is Retention.PIN else None
    if retention not in TIMED:
        raise BadRequestError(f"{place} has a meaning for pin and priority only.", param=place)
    if not is_number(value) or not 0 < value <= LONGEST_SECONDS:
        raise BadRequestError(f"{place} must be above 0 and at most {LONGEST_SECONDS:g} seconds.", param=place)
    return float(value)


def _until(value: Json, place: str) -> int | None:
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise BadRequestError(f"{place} must be a whole number of tokens above 0.", param=place)
    return value


def _partition(value: Json, known: Collection[str]) -> str:
    if value is None:
        return ""
    if not isinstance(value, str) or value not in known:
        names = ", ".join(sorted(name for name in known if name)) or "none"
        place = "vllm_xargs.cache_partition"
        raise BadRequestError(f"{place} names no partition of this worker; it has: {names}.", param=place)
    return value


def _openai_retention(value: Json) -> CachePolicy:
    if value is None:
        return ORDINARY
    policy = OPENAI_RETENTIONS.get(value) if isinstance(value, str) else None
    if policy is None:
        raise BadRequestError(
            f"prompt_cache_retention must be one of {', '.join(OPENAI_RETENTIONS)}.", param="prompt_cache_retention"
        )
    return policy
