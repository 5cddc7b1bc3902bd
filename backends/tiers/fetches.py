"""What is being brought for whom: one load per block however many requests want it, and how each request stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf

from backends.tiers.entry import Named
from backends.tiers.host import HostTier
from backends.tiers.interface import MISS, PENDING, Fetched, FetchState
from backends.tiers.rates import Rates
from backends.tiers.slow_tier import Load, SlowTier
from backends.tiers.tier import KvTier, Payload

SLOWEST_FIRST = ("redis", "disk", "host")

PATIENCE = 2.0
LEAST_PATIENCE_SECONDS = 5.0
"""A fetch may take so many times as long as computing its blocks would, and so long at least: others' loads may come
before its own. A disk that hangs must not hold a request for ever."""


class Arrived:
    """A block that was in memory all along; stands beside `Load` in a fetch."""

    __slots__ = ("payload", "tier")
    done = True

    def __init__(self, payload: Payload, tier: KvTier) -> None:
        self.payload = payload
        self.tier = tier


class Fetch:
    """One request's blocks in chain order, each here or on its way; `first` names the one it begins with."""

    def __init__(
        self,
        first: bytes,
        parts: Sequence[Arrived | Load],
        clock: Callable[[], float] = float,
        patience_seconds: float = inf,
    ) -> None:
        self.first = first
        self.parts = parts
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._over_seconds = clock() + patience_seconds
        self._answer: Fetched | None = None

    def state(self) -> Fetched:
        """How it stands; once it is over, what came is credited to the tiers that gave it.

        It is over when every part is done, or when patience is: with what has come by then.
        """
        if self._answer is None:
            if not all(part.done for part in self.parts):
                if self._clock() < self._over_seconds:
                    return PENDING
                self._give_up()
            self._answer = self._end()
        return self._answer

    def _give_up(self) -> None:
        for part in self.parts:
            if isinstance(part, Load) and not part.done:
                part.tier.transfer.hung(self._patience_seconds)

    def _end(self) -> Fetched:
        payloads: list[Payload] = []
        names = set()
        for part in self.parts:
            if part.payload is None:
                break
            payloads.append(part.payload)
            names.add(_tier(part).name)
            _tier(part).counters.hits += 1
        if not payloads:
            return MISS
        return Fetched(FetchState.HIT, payloads, next(name for name in SLOWEST_FIRST if name in names))


class Fetches:
    """The fetches under way or not yet taken. Engine thread only. `staging_bytes` bounds what loads may hold."""

    def __init__(self, host: HostTier | None, *, staging_bytes: int, rates: Rates, clock: Callable[[], float]) -> None:
        self._host = host
        self._rates = rates
        self._clock = clock
        self._staging_bytes = staging_bytes
        self._fetches: dict[str, Fetch] = {}
        self._loads: dict[bytes, Load] = {}

    def get(self, request_id: str) -> Fetch | None:
        """The request's fetch."""
        return self._fetches.get(request_id)

    def begin(
        self, request_id: str, blocks: Sequence[Named], slow: Sequence[SlowTier], *, block_bytes: int, block_tokens: int
    ) -> Fetch | None:
        """Start bringing the longest beginning of `blocks` that is worth it; None when there is no room for it now."""
        parts = self._find(blocks, slow)
        fresh = [part for part in parts if isinstance(part, Load) and part.users == 0]
        room = max(0, self._staging_bytes // block_bytes - len(self._loads))
        for tier in slow:
            count = sum(load.tier is tier for load in fresh)
            if count:
                allowed = tier.worth.blocks(count, block_bytes=block_bytes, block_tokens=block_tokens)
                parts = _cut(parts, tier, allowed)
        kept = _cut(parts, None, room)
        if not kept and parts:
            return None
        self._order(kept)
        patience = max(PATIENCE * self._rates.compute_seconds(len(kept) * block_tokens), LEAST_PATIENCE_SECONDS)
        fetch = self._fetches[request_id] = Fetch(blocks[0].name, kept, self._clock, patience)
        return fetch

    def _find(self, blocks: Sequence[Named], slow: Sequence[SlowTier]) -> list[Arrived | Load]:
        parts: list[Arrived | Load] = []
        for block in blocks:
            part = self._find_one(block, slow)
            if part is None:
                break
            parts.append(part)
        return parts

    def _find_one(self, block: Named, slow: Sequence[SlowTier]) -> Arrived | Load | None:
        if self._host is not None:
            self._host.counters.queries += 1
            for payload in self._host.load([block]):
                return Arrived(payload, self._host)
        load = self._loads.get(block.name)
        if load is not None and (load.payload is not None or not load.done):
            return load
        for tier in slow:
            tier.tier.counters.queries += 1
            queued = tier.queued(block.name)
            if queued is not None:
                return Arrived(queued, tier.tier)
            if tier.lookup(block.name) is not FetchState.MISS:
                return Load(block, tier)
        return None

    def _order(self, parts: Sequence[Arrived | Load]) -> None:
        orders: dict[SlowTier, list[Load]] = {}
        for part in parts:
            if isinstance(part, Load):
                if part.users == 0:
                    self._loads[part.block.name] = part
                    orders.setdefault(part.tier, []).append(part)
                part.users += 1
        for tier, loads in orders.items():
            tier.bring(loads)

    def forget(self, request_id: str) -> None:
        """Nobody asks for this request any more; what no other request wants goes."""
        fetch = self._fetches.pop(request_id, None)
        for part in fetch.parts if fetch else ():
            if isinstance(part, Load):
                part.users -= 1
                if part.users == 0 and self._loads.get(part.block.name) is part:
                    del self._loads[part.block.name]

    def reset(self) -> None:
        """Forget all."""
        for request_id in tuple(self._fetches):
            self.forget(request_id)

    def check_integrity(self) -> None:
        """AssertionError unless exactly the loads that fetches want are kept."""
        wanted: dict[int, int] = {}
        for fetch in self._fetches.values():
            for part in fetch.parts:
                if isinstance(part, Load):
                    wanted[id(part)] = wanted.get(id(part), 0) + 1
                    if part.users < 1:
                        raise AssertionError("a fetch has a load that counts no users")
        for load in self._loads.values():
            if wanted.get(id(load)) != load.users:
                raise AssertionError(f"a load counts {load.users} users, {wanted.get(id(load))} fetches have it")


def _cut(parts: list[Arrived | Load], tier: SlowTier | None, allowed: int) -> list[Arrived | Load]:
    """The beginning of `parts` with at most so many new loads, of `tier` or (None) of any."""
    for index, part in enumerate(parts):
        if isinstance(part, Load) and part.users == 0 and tier in (None, part.tier):
            if allowed == 0:
                return parts[:index]
            allowed -= 1
    return parts


def _tier(part: Arrived | Load) -> KvTier:
    return part.tier.tier if isinstance(part.tier, SlowTier) else part.tier
