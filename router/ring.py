"""The consistent-hash ring: which worker is home to a key, and who comes next.

A ring is immutable; whoever changes the membership builds a new one aside and swaps the reference. uhashring lays
the points out (`name-0`, `name-1`, … hashed with a seeded xxh3-64); lookups go by index over its sorted points,
because its own walks copy the ring. Two workers that hash to one point share it by rule: the greater name owns it. So
the ring depends on names and weights only, never on the order in which workers came, and exactly 0 keys move between
workers that stay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence

from uhashring import HashRing
from xxhash import xxh3_64_intdigest

POINTS_PER_WORKER = 256
"""Points of a worker of weight 1: the fullest of 4 to 32 workers gets at most 1.2 times the mean share of keys."""

POINT_SEED = 248
"""Seeds the points' hash. With 256 points one fleet in fifty is less even than 1.2 by bad luck; under this seed, the
luckiest of 400, none is of the fleets of 4 to 33 workers with the usual names (`worker-N`, `vllm-N`, host:port, …).
"""


def ring_position(text: str) -> int:
    """Where a point's name lies on the ring, 0 … 2⁶⁴ − 1 (xxhash refuses `str`, uhashring passes nothing else)."""
    return xxh3_64_intdigest(text.encode(errors="surrogatepass"), POINT_SEED)


class Ring:
    """Workers on a circle of 64-bit positions; immutable.

    `weights` multiply a worker's points and are whole numbers ≥ 0; a worker of weight 0 is known but is nobody's home.
    Raises ValueError for a negative or fractional weight.
    """

    __slots__ = ("_order", "_owners", "_positions", "points", "weights")

    def __init__(
        self,
        weights: Mapping[str, int],
        points: int = POINTS_PER_WORKER,
        laid_out: Callable[[str, int, int], Sequence[int]] | None = None,
    ) -> None:
        """`laid_out` gives a worker's points by name, weight and `points`, if they were laid out before."""
        self.weights: Mapping[str, int] = {name: _checked(name, weights[name]) for name in sorted(weights)}
        self.points = points
        self._order = tuple(name for name, weight in self.weights.items() if weight)
        owners: dict[int, str] = {}
        for name in self._order:
            # The last writer owns a shared point: sorted names make that the greater one, in any order of arrival.
            owners.update(dict.fromkeys((laid_out or lay_out)(name, self.weights[name], points), name))
        self._positions = sorted(owners)
        self._owners = [owners[position] for position in self._positions]

    def __len__(self) -> int:
        """How many workers can be a home."""
        return len(self._order)

    def home(self, key: bytes) -> str | None:
        """The worker that owns `key`; None when nobody is on the ring."""
        owners = self._owners
        return owners[bisect_right(self._positions, xxh3_64_intdigest(key)) % len(owners)] if owners else None

    def walk(self, key: bytes) -> Iterator[str]:
        """Every worker on the ring once, home first, in the order in which they would inherit `key`."""
        seen: set[str] = set()
        start = bisect_right(self._positions, xxh3_64_intdigest(key))
        total = len(self._owners)
        for step in range(total):
            owner = self._owners[(start + step) % total]
            if owner not in seen:
                seen.add(owner)
                yield owner
                if len(seen) == len(self._order):
                    return
        # A worker may have lost all its points to others; it still inherits, last.
        yield from (name for name in self._order if name not in seen)

    def with_worker(self, name: str, weight: int = 1) -> Ring:
        """A new ring with `name` added, or with its weight changed."""
        return Ring({**self.weights, name: weight}, self.points)

    def without_worker(self, name: str) -> Ring:
        """A new ring without `name`; the same members if it was not there."""
        return Ring({other: weight for other, weight in self.weights.items() if other != name}, self.points)

    def check_integrity(self) -> None:
        """Raise AssertionError unless positions ascend strictly and every owner is a member."""
        if any(left >= right for left, right in zip(self._positions, self._positions[1:], strict=False)):
            raise AssertionError("ring positions do not ascend")
        if not set(self._owners) <= set(self._order):
            raise AssertionError("a point of the ring belongs to no member")


def lay_out(name: str, weight: int, points: int = POINTS_PER_WORKER) -> list[int]:
    """Where one worker's points lie: most of what a ring costs, and it depends on nobody else."""
    laid: list[tuple[int, str]] = HashRing({name: weight}, hash_fn=ring_position, vnodes=points).get_points()
    return [position for position, _ in laid]


def _checked(name: str, weight: int) -> int:
    if not isinstance(weight, int) or weight < 0:
        raise ValueError(f"weight of worker {name!r} must be a whole number of at least 0, not {weight!r}")
    return weight
