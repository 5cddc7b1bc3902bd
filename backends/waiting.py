"""Who does not run: those ready to be admitted, in their order, and those who wait for something first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

from backends.sequence import Sequence


class Waiting:
    """`ready` is sorted by rank; the deferred ones are passed over until somebody wakes them.

    A preempted sequence comes before all that arrived after it, as its rank is its own for life.
    """

    __slots__ = ("_deferred", "ready")

    def __init__(self) -> None:
        self.ready: list[Sequence] = []
        self._deferred: dict[Sequence, None] = {}

    @property
    def deferred_count(self) -> int:
        """Those who wait for something other than room."""
        return len(self._deferred)

    def __len__(self) -> int:
        """All who do not run."""
        return len(self.ready) + len(self._deferred)

    def __iter__(self) -> Iterator[Sequence]:
        """The ready ones in order, then the others."""
        yield from self.ready
        yield from self._deferred

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence that may be admitted when its turn comes."""
        insort(self.ready, sequence, key=_rank)

    def add_deferred(self, sequence: Sequence) -> None:
        """Keep a sequence that is not to be admitted before it is woken."""
        self._deferred[sequence] = None

    def defer(self, sequence: Sequence) -> None:
        """A ready one has to wait for something."""
        self.remove(sequence)
        self._deferred[sequence] = None

    def wake(self, sequence: Sequence) -> None:
        """What a deferred one waited for is there, or will never be."""
        del self._deferred[sequence]
        self.add(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Forget a sequence; ValueError when it does not wait."""
        if sequence in self._deferred:
            del self._deferred[sequence]
            return
        place = bisect_left(self.ready, sequence.rank, key=_rank)
        if place == len(self.ready) or self.ready[place] is not sequence:
            raise ValueError(f"{sequence.request_id} is not in the queue")
        del self.ready[place]


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
