"""The circle that the hashing peers share: points of every worker, walked clockwise from a key."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from xxhash import xxh64_intdigest


class HashRing:
    """`points` points of each worker; rebuilt when others are present. Points depend on the worker's name only."""

    def __init__(self, points: int) -> None:
        self.points = points
        self._members: tuple[int, ...] = ()
        self._laid: list[tuple[int, int]] = []

    def walk(self, key: bytes, present: Sequence[int]) -> Iterator[int]:
        """The present workers, each once, in the order of their first points at or after the key's."""
        self._lay_out(tuple(present))
        seen: set[int] = set()
        start = bisect_left(self._laid, (xxh64_intdigest(key), -1))
        for step in range(len(self._laid)):
            worker = self._laid[(start + step) % len(self._laid)][1]
            if worker not in seen:
                seen.add(worker)
                yield worker

    def owner(self, key: bytes, present: Sequence[int]) -> int:
        """The first of the walk."""
        return next(self.walk(key, present))

    def _lay_out(self, members: tuple[int, ...]) -> None:
        if members != self._members:
            self._members = members
            self._laid = sorted(
                (xxh64_intdigest(f"worker-{worker}#{point}".encode()), worker)
                for worker in members
                for point in range(self.points)
            )
