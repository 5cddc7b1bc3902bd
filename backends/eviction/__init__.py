"""Which free block with cached content goes first: the policies by name."""

from __future__ import annotations

from collections.abc import Callable

from backends.eviction.clock import Clock
from backends.eviction.lfu import Lfu
from backends.eviction.lru import Lru
from backends.eviction.policy import EvictionPolicy
from backends.eviction.probation import Probation
from backends.eviction.slru import Slru

EVICTION_POLICIES: dict[str, Callable[[int], EvictionPolicy]] = {
    "lru": Lru,
    "clock": Clock,
    "lfu": Lfu,
    "slru": Slru,
}
"""By the name that `--eviction-policy` takes; each is made for a number of blocks."""


def policy_maker(name: str, *, probation: bool) -> Callable[[int], EvictionPolicy]:
    """What makes a policy of this name, behind a probation if wanted; ValueError for a name that there is not."""
    if name not in EVICTION_POLICIES:
        raise ValueError(f"no eviction policy is called {name!r}; there are {', '.join(EVICTION_POLICIES)}")
    policy = EVICTION_POLICIES[name]
    return (lambda capacity_blocks: Probation(capacity_blocks, policy)) if probation else policy
