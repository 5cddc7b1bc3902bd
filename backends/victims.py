"""Who gives way when a running sequence finds no block."""

from __future__ import annotations

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
        helping = self._pool.in_the_way(wanting.partition)
        candidates = [one for one in running if one.partition in helping]
        return max(candidates, key=_rank) if self._by_rank else candidates[-1]


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
