"""What a tenant wants of a worker's cache, told to workers that understand it: its share, and how long blocks are kept.

The bundled worker lists the keys of `vllm_xargs` that it understands in its model card (`cache_fields`). A vLLM would
take them and have no use for them; another engine may refuse a field it does not know.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

import msgspec

FIELD: Final = "vllm_xargs"
PARTITION: Final = "cache_partition"
POLICY: Final = "cache_policy"
TTL: Final = "cache_ttl_seconds"

_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode


class CacheWishes(NamedTuple):
    """A tenant's wishes; None where it has none. `ttl_seconds` is how long `policy` holds."""

    partition: str | None = None
    policy: str | None = None
    ttl_seconds: float | None = None


def with_wishes(body: bytes, wishes: CacheWishes, understood: Collection[str]) -> bytes:
    """`body` with those wishes that the worker understands; every other value keeps its bytes.

    A caller's own `cache_policy`, at the top level or in `vllm_xargs`, goes before its tenant's.
    """
    fields = _RAW.decode(body)
    given = fields.get(FIELD)
    extra = {} if given is None or bytes(given) == b"null" else _RAW.decode(given)
    told = _told(wishes, understood, has_own=POLICY in fields or POLICY in extra)
    if not told:
        return body
    fields[FIELD] = msgspec.Raw(_encode(extra | {name: msgspec.Raw(_encode(value)) for name, value in told.items()}))
    return _encode(fields)


def _told(wishes: CacheWishes, understood: Collection[str], *, has_own: bool) -> dict[str, str | float]:
    told: dict[str, str | float] = {}
    if wishes.partition is not None and PARTITION in understood:
        told[PARTITION] = wishes.partition
    if wishes.policy is not None and POLICY in understood and not has_own:
        told[POLICY] = wishes.policy
        if wishes.ttl_seconds is not None and TTL in understood:
            told[TTL] = wishes.ttl_seconds
    return told
