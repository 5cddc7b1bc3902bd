"""Which blocks everybody has heard of, so that only new ones travel, and what stands before each of them.

The book has two halves. All replicas turn to a new half at the same place of the stream (the batch's epoch says so),
keeping the one before. Who publishes refers to blocks of the present half only, and only to those that it has read
back from the stream; who reads looks in both. So a reference can be followed by everybody who has read the stream from
the turn before the last on, and a chain that goes on being used is told whole once in every epoch.

Not every block can be referred to, only each eighth of a chain and the last of what was told together: a book of all
blocks would take most of the time that hearing takes, to save a few blocks where chains part.
"""

from __future__ import annotations

from collections.abc import Sequence

STRIDE = 8


class Piece:
    """Blocks that were told together, behind the first `before_blocks` of the piece `before`, `start` blocks in all."""

    __slots__ = ("before", "before_blocks", "blocks", "start")

    def __init__(self, before: Piece | None, before_blocks: int, blocks: Sequence[bytes]) -> None:
        self.before = before
        self.before_blocks = before_blocks
        self.start: int = before.start + before_blocks if before is not None else 0
        self.blocks = blocks

    def marks(self) -> list[bytes]:
        """The blocks that can be referred to."""
        return [*self.blocks[STRIDE - 1 - self.start % STRIDE :: STRIDE], self.blocks[-1]]


class ChainBook:
    """Blocks heard in this epoch and the one before, at most `bound_marks` that can be referred to in each."""

    def __init__(self, bound_marks: int) -> None:
        self.bound_marks = bound_marks
        self.epoch = 0
        self._present: dict[bytes, Piece] = {}
        self._past: dict[bytes, Piece] = {}

    def __len__(self) -> int:
        """How many blocks of the present half can be referred to."""
        return len(self._present)

    @property
    def full(self) -> bool:
        """Whether it is time to turn to a new epoch."""
        return len(self._present) >= self.bound_marks // 2

    def turn(self, epoch: int) -> None:
        """Begin `epoch`, unless it has begun; what was heard before the last one is forgotten."""
        if epoch <= self.epoch:
            return
        self._past = self._present if epoch == self.epoch + 1 else {}
        self._present = {}
        self.epoch = epoch

    def known_blocks(self, chain: Sequence[bytes]) -> int:
        """How many blocks at the beginning of `chain` need not be told again.

        What stands before a block of the present half is in it too: the eighths are found by a binary search, and
        beyond the last of them only the end of something that was told can be known.
        """
        present = self._present
        known, unknown = 0, len(chain) // STRIDE + 1
        while unknown - known > 1:
            middle = (known + unknown) // 2
            if chain[middle * STRIDE - 1] in present:
                known = middle
            else:
                unknown = middle
        for end in range(min(len(chain), known * STRIDE + STRIDE - 1), known * STRIDE, -1):
            if chain[end - 1] in present:
                return end
        return known * STRIDE

    def hear(self, known: bytes | None, blocks: Sequence[bytes]) -> list[bytes] | None:
        """The whole chain of `blocks` behind `known`, which is remembered; None when `known` was never heard of."""
        half, before, before_blocks = self._present, None, 0
        if known is not None:
            half = self._present if known in self._present else self._past
            before = half.get(known)
            if before is None:
                return None
            before_blocks = before.blocks.index(known) + 1
        if blocks and len(half) < self.bound_marks:
            piece = Piece(before, before_blocks, blocks)
            half.update(dict.fromkeys(piece.marks(), piece))
        return [*_chain(before, before_blocks), *blocks]

    def check_integrity(self) -> None:
        """Raise AssertionError unless every block is in its piece and the present half has no gaps before it."""
        for half in (self._present, self._past):
            if any(block not in piece.blocks for block, piece in half.items()):
                raise AssertionError("a block is filed under a piece that does not have it")
        for piece in self._present.values():
            whole = Piece(None, 0, _chain(piece.before, piece.before_blocks))
            if whole.blocks and any(mark not in self._present for mark in whole.marks()):
                raise AssertionError("a block is known whose beginning is not")


def _chain(piece: Piece | None, count: int) -> list[bytes]:
    """The chain that ends with the first `count` blocks of `piece`."""
    parts: list[Sequence[bytes]] = []
    while piece is not None:
        parts.append(piece.blocks if count == len(piece.blocks) else piece.blocks[:count])
        count, piece = piece.before_blocks, piece.before
    return [block for part in reversed(parts) for block in part]
