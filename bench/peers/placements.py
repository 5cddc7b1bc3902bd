"""Which workers each block was sent to: the trees, tries and tables of the peers, over blocks instead of characters.

A block of a trace names its whole prefix, so a table by block is a tree: the blocks of a prompt in their order are the
way down, and what a node of a character tree knows of an edge, every block of the edge knows here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import islice


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
        holders, latest, bit = self._holders, self._latest, 1 << worker
        for block in reversed(chain):
            if block in share:
                share.move_to_end(block)
            else:
                share[block] = None
                holders[block] = holders.get(block, 0) | bit
            latest[block] = worker
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
        for depth, block in enumerate(chain):
            if not holders.get(block, 0) & wanted:
                return depth
        return len(chain)

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
        """Blocks that each of these workers was sent, without a gap from the beginning on."""
        counts = dict.fromkeys(among, len(chain))
        live = mask_of(among)
        for depth, block in enumerate(chain):
            left = live & self._holders.get(block, 0)
            if left != live:
                for worker in _workers_in(live & ~left):
                    counts[worker] = depth
                live = left
                if not live:
                    break
        return counts

    def counted(self, chain: Sequence[bytes], among: Sequence[int]) -> dict[int, int]:
        """Blocks that each was sent, gaps or not, up to the first that nobody was sent."""
        counts = dict.fromkeys(among, 0)
        for block in islice(chain, self.depth(chain, among)):
            for worker in self.holders(block, among):
                counts[worker] += 1
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
