"""Who gives way when a running sequence finds no block."""

from __future__ import annotations

from collections.abc import Iterable

from backends.block_pool import BlockPool
from backends.engine_config import EngineConfig
from backends.sequence import Sequence


class Victims:
    """The last to be served under the policy, of those whose blocks would help.

    The sequence that wants room is itself among them, and nobody before it is ever chosen: so the first one always
    gets on, and there is no livelock.
    """

    def __init__(self, config: EngineConfig, pool: BlockPool) -> None:
        self._by_rank = config.scheduling_policy == "priority"
        self._pool = pool if config.partitions.shares else None

    def choose(self, running: list[Sequence], wanting: Sequence) -> Sequence:
        """One of `running`, which contains `wanting`."""
        if self._pool is None:
            return max(running, key=_rank) if self._by_rank else running[-1]
        helping = list(self._helping(self._pool, running, wanting.partition))
        return max(helping, key=_rank) if self._by_rank else helping[-1]

    def _helping(self, pool: BlockPool, running: list[Sequence], partition: str) -> Iterable[Sequence]:
        """Those of its own partition; and if that is not at its ceiling, of others that have more than their floor."""
        shares = {share.name: share for share in pool.occupancy()}
        own = shares[partition]
        at_ceiling = own.referenced >= own.ceiling
        lent = {name for name, share in shares.items() if not at_ceiling and share.referenced > share.floor}
        return (one for one in running if one.partition == partition or one.partition in lent)


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
