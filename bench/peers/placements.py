"""Which workers each block was sent to: the trees, tries and tables of the peers, over blocks instead of characters.

A block of a trace names its whole prefix, so a table by block is a tree: the blocks of a prompt in their order are the
way down, and what a node of a character tree knows of an edge, every block of the edge knows here. Who was sent a block
was sent all before it, and forgets it before them; so along a prompt holders only become fewer, and are bisected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence


class Placements:
    """What was sent where. Each worker's share is an LRU of `bound_blocks`; None never forgets."""

    def __init__(self, bound_blocks: int | None = None) -> None:
        self.bound_blocks = bound_blocks
        self._holders: dict[bytes, int] = {}
        self._latest: dict[bytes, int] = {}
        self._shares: dict[int, OrderedDict[bytes, None]] = {}

    def blocks_of(self, worker: int) -> int:
        """How many blocks this worker was sent, and are remembered."""
        return len(self._shares.get(worker, ()))

    def insert(self, chain: Sequence[bytes], worker: int) -> None:
        """This prompt went there. Its end is forgotten before its beginning."""
        share = self._shares.setdefault(worker, OrderedDict())
        holders, bit = self._holders, 1 << worker
        known = bisect_left(chain, True, key=lambda block: block not in share)
        share.update(dict.fromkeys(reversed(chain[known:])))
        deque(map(share.move_to_end, reversed(chain[:known])), maxlen=0)
        for block in chain[known:]:
            holders[block] = holders.get(block, 0) | bit
        self._latest.update(dict.fromkeys(chain, worker))
        if self.bound_blocks is not None:
            self.trim(worker, self.bound_blocks)

    def trim(self, worker: int, blocks: int) -> None:
        """Forget the least recent of this worker's blocks until so many are left."""
        share = self._shares.get(worker)
        while share and len(share) > blocks:
            self._drop(share.popitem(last=False)[0], worker)

    def forget(self, worker: int) -> None:
        """This worker is gone."""
        for block in self._shares.pop(worker, ()):
            self._drop(block, worker)

    def depth(self, chain: Sequence[bytes], among: Sequence[int]) -> int:
        """How many blocks from the beginning on have been sent to any of these workers."""
        holders, wanted = self._holders, mask_of(among)
        return bisect_left(chain, True, key=lambda block: not holders.get(block, 0) & wanted)

    def holders(self, block: bytes, among: Sequence[int]) -> list[int]:
        """Of these workers, those that were sent the block."""
        mask = self._holders.get(block, 0)
        return [worker for worker in among if mask >> worker & 1]

    def latest(self, block: bytes, among: Sequence[int]) -> int | None:
        """Who was sent it last; where that one is gone or has forgotten it, any other of these."""
        worker = self._latest.get(block)
        holders = self.holders(block, among)
        return worker if worker in holders else next(iter(holders), None)

    def matched(self, chain: Sequence[bytes], among: Sequence[int]) -> dict[int, int]:
        """Blocks that each of these workers was sent, from the beginning on."""
        counts = dict.fromkeys(among, len(chain))
        holders, live, depth = self._holders, mask_of(among), 0
        while live:
            depth = bisect_left(chain, True, lo=depth, key=lambda block: holders.get(block, 0) & live != live)
            left = live & holders.get(chain[depth], 0) if depth < len(chain) else live
            for worker in _workers_in(live & ~left):
                counts[worker] = depth
            live = left if depth < len(chain) else 0
        return counts

    def _drop(self, block: bytes, worker: int) -> None:
        left = self._holders[block] & ~(1 << worker)
        if left:
            self._holders[block] = left
        else:
            del self._holders[block]
            del self._latest[block]


def mask_of(workers: Sequence[int]) -> int:
    """One bit for each worker."""
    mask = 0
    for worker in workers:
        mask |= 1 << worker
    return mask


def _workers_in(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
