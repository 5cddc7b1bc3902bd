"""Who does not run: those ready to be admitted, in their order, and those who wait for something first."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from heapq import merge

from backends.sequence import Sequence


class Waiting:
    """Each partition has a queue, sorted by rank; the deferred ones are passed over until somebody wakes them.

    A preempted sequence comes before all that arrived after it, as its rank is its own for life.
    """

    __slots__ = ("_deferred", "_queues")

    def __init__(self) -> None:
        self._queues: dict[str, list[Sequence]] = {}
        self._deferred: dict[Sequence, None] = {}

    @property
    def ready(self) -> Iterator[Sequence]:
        """Those who may be admitted, in the order of their ranks."""
        return merge(*self._queues.values(), key=_rank)

    def first(self, held_up: Container[str] = ()) -> Sequence | None:
        """The first of the ready ones, but for those of some partitions. O(partitions)."""
        heads = [queue[0] for name, queue in self._queues.items() if queue and name not in held_up]
        return min(heads, key=_rank, default=None)

    @property
    def deferred_count(self) -> int:
        """Those who wait for something other than room."""
        return len(self._deferred)

    def __len__(self) -> int:
        """All who do not run."""
        return sum(map(len, self._queues.values())) + len(self._deferred)

    def __iter__(self) -> Iterator[Sequence]:
        """The ready ones in order, then the others."""
        yield from self.ready
        yield from self._deferred

    def add(self, sequence: Sequence) -> None:
        """Queue a sequence that may be admitted when its turn comes."""
        insort(self._queues.setdefault(sequence.partition, []), sequence, key=_rank)

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
        queue = self._queues.get(sequence.partition, [])
        place = bisect_left(queue, sequence.rank, key=_rank)
        if place == len(queue) or queue[place] is not sequence:
            raise ValueError(f"{sequence.request_id} is not in the queue")
        del queue[place]


def _rank(sequence: Sequence) -> tuple[int, int]:
    return sequence.rank
