"""How long what a request computes is to stay cached: asked per request, carried out by the block pool."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Retention(Enum):
    """In the order of eviction: what is first goes first. NO_STORE is never cached at all."""

    NO_STORE = "no-store"
    EVICT_FIRST = "evict-first"
    NORMAL = "normal"
    PRIORITY = "priority"
    PIN = "pin"


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """What a request wants for its blocks.

    `ttl_seconds` bounds PRIORITY and PIN, counted from each time the blocks are given back; PIN always has one.
    `until_token` limits the wish to the full blocks among the first so many tokens (the rest is NORMAL); None means
    the whole sequence. A pin beyond the pool's quota is only PRIORITY.
    """

    retention: Retention = Retention.NORMAL
    ttl_seconds: float | None = None
    until_token: int | None = None


ORDINARY = CachePolicy()
"""No wish."""
