"""Which blocks everybody has heard of, so that only new ones travel, and what stands before each of them.

The book has two halves. All replicas turn to a new half at the same place of the stream (the batch's epoch says so),
keeping the one before. Who publishes refers to blocks of the present half only, and only to those that it has read
back from the stream; who reads looks in both. So a reference can be followed by everybody who has read the stream from
the turn before the last on, and a chain that goes on being used is told whole once in every epoch.
"""

from __future__ import annotations

from collections.abc import Sequence


class Piece:
    """Blocks that were told together, behind the first `before_blocks` of the piece `before`."""

    __slots__ = ("before", "before_blocks", "blocks")

    def __init__(self, before: Piece | None, before_blocks: int, blocks: Sequence[bytes]) -> None:
        self.before = before
        self.before_blocks = before_blocks
        self.blocks = blocks


class ChainBook:
    """Blocks heard in this epoch and the one before, at most `bound_blocks` in each."""

    def __init__(self, bound_blocks: int) -> None:
        self.bound_blocks = bound_blocks
        self.epoch = 0
        self._present: dict[bytes, Piece] = {}
        self._past: dict[bytes, Piece] = {}

    def __len__(self) -> int:
        """How many blocks are known in the present half."""
        return len(self._present)

    @property
    def full(self) -> bool:
        """Whether it is time to turn to a new epoch."""
        return len(self._present) >= self.bound_blocks // 2

    def turn(self, epoch: int) -> None:
        """Begin `epoch`, unless it has begun; what was heard before the last one is forgotten."""
        if epoch <= self.epoch:
            return
        self._past = self._present if epoch == self.epoch + 1 else {}
        self._present = {}
        self.epoch = epoch

    def known_blocks(self, chain: Sequence[bytes]) -> int:
        """How many blocks at the beginning of `chain` need not be told again.

        What stands before a block of the present half is in it too, so this is a binary search.
        """
        present = self._present
        if not chain or chain[0] not in present:
            return 0
        known, unknown = 1, len(chain) + 1
        while unknown - known > 1:
            middle = (known + unknown) // 2
            if chain[middle - 1] in present:
                known = middle
            else:
                unknown = middle
        return known

    def hear(self, known: bytes | None, blocks: Sequence[bytes]) -> list[bytes] | None:
        """The whole chain of `blocks` behind `known`, which is remembered; None when `known` was never heard of."""
        half, before, before_blocks = self._present, None, 0
        if known is not None:
            half = self._present if known in self._present else self._past
            before = half.get(known)
            if before is None:
                return None
            before_blocks = before.blocks.index(known) + 1
        if blocks and len(half) + len(blocks) <= self.bound_blocks:
            half.update(dict.fromkeys(blocks, Piece(before, before_blocks, blocks)))
        return [*_chain(before, before_blocks), *blocks]

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is in its piece and the present half has no gaps before it."""
        for half in (self._present, self._past):
            if len(half) > self.bound_blocks:
                raise AssertionError("the book holds more than its bound")
            if any(block not in piece.blocks for block, piece in half.items()):
                raise AssertionError("a block is filed under a piece that does not have it")
        for piece in self._present.values():
            if any(block not in self._present for block in _chain(piece.before, piece.before_blocks)):
                raise AssertionError("a block is known whose beginning is not")


def _chain(piece: Piece | None, count: int) -> list[bytes]:
    """The chain that ends with the first `count` blocks of `piece`."""
    parts: list[Sequence[bytes]] = []
    while piece is not None:
        parts.append(piece.blocks if count == len(piece.blocks) else piece.blocks[:count])
        count, piece = piece.before_blocks, piece.before
    return [block for part in reversed(parts) for block in part]
