"""How long blocks live in the cache, and how long between two uses: vLLM's kv_block_* histograms, from a sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import floor

from backends.hashing import BlockKey
from backends.metrics.families import Families

BUCKETS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
    *(10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0),
)
"""In seconds."""

_RANGE = 1 << 32


class _Life:
    """A sampled block: when it was stored and when it was last used, in seconds."""

    __slots__ = ("born", "used")

    def __init__(self, now: float) -> None:
        self.born = self.used = now


class BlockResidency:
    """A Journal of the pool. `sample` is the share of blocks that is watched, 0..1; `clock` gives seconds.

    Which blocks are watched follows from their digests, so that a block that comes back is watched again.
    """

    def __init__(self, families: Families, clock: Callable[[], float], sample: float) -> None:
        self._clock = clock
        self._below = floor(sample * _RANGE)
        self._lives: dict[bytes, _Life] = {}
        self._lifetime = families.histogram(
            "kv_block_lifetime_seconds", "Time from when a block was cached to its eviction; sampled.", BUCKETS
        )
        self._idle = families.histogram(
            "kv_block_idle_before_evict_seconds", "Time from a block's last use to its eviction; sampled.", BUCKETS
        )
        self._gap = families.histogram("kv_block_reuse_gap_seconds", "Time between uses of a block; sampled.", BUCKETS)

    def stored(self, key: BlockKey, block_id: int) -> None:  # noqa: ARG002 - the pool's Journal
        """A block became findable."""
        if int.from_bytes(key.digest[:4], "big") < self._below:
            self._lives[key.digest] = _Life(self._clock())

    def seen(self, keys: Sequence[BlockKey]) -> None:
        """A request found these."""
        now = self._clock()
        for life in filter(None, (self._lives.get(key.digest) for key in keys)):
            self._gap.observe(now - life.used)
            life.used = now

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """Nothing: `removed` comes."""

    def removed(self, key: BlockKey) -> None:
        """A block was evicted."""
        life = self._lives.pop(key.digest, None)
        if life is not None:
            now = self._clock()
            self._lifetime.observe(now - life.born)
            self._idle.observe(now - life.used)

    def cleared(self) -> None:
        """A reset is no eviction."""
        self._lives.clear()
