"""Peers that hash a key onto a ring: KubeAI, SMG's prefix_hash, Envoy, and the session rings of two more."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

from xxhash import xxh3_64_intdigest

from bench.peers.hash_ring import HashRing
from bench.peers.peer import Peer
from router.replay.core import EngineSettings, TraceRequest, Truth


class KubeAI(Peer):
    """PrefixHash of KubeAI: from the key's place on the ring to the first worker within 1.25 of the mean load.

    The key is the head of the first user message; the load counts this request. All over the bound: the owner.
    """

    POINTS = 256
    FACTOR = 1.25

    def __init__(self, settings: EngineSettings, keys: Sequence[bytes], seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._keys = keys
        self._ring = HashRing(self.POINTS)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """Walk on until one has room."""
        key, present = self._keys[request.number], truth.present
        together = self.in_flight_together(present)
        bound = (together + 1) / len(present) * self.FACTOR
        for worker in self._ring.walk(key, present):
            if together == 0 or self.in_flight[worker] <= bound:
                return worker
        return self._ring.owner(key, present)


class SessionRing(Peer):
    """A ring on the session and no look at any load: production-stack's `session`, vllm-router's `consistent_hash`."""

    def __init__(self, settings: EngineSettings, keys: Sequence[bytes], seed: int = 1, points: int = 160) -> None:
        super().__init__(settings, seed)
        self._keys = keys
        self._ring = HashRing(points)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The owner."""
        return self._ring.owner(self._keys[request.number], truth.present)


class EnvoyBounded(SessionRing):
    """Envoy's `ring_hash` on a session header with `hash_balance_factor` 125.

    A full owner is passed over for the others in an order that the key alone settles. All full: the least busy.
    """

    POINTS = 1024
    FACTOR_PERCENT = 125

    def __init__(self, settings: EngineSettings, keys: Sequence[bytes], seed: int = 1) -> None:
        super().__init__(settings, keys, seed, self.POINTS)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The owner, else the key's own order of the others."""
        owner = super().pick(request, now, truth)
        together = self.in_flight_together(truth.present)
        slots = max(1, math.ceil(math.ceil((together + 1) * self.FACTOR_PERCENT / 100) / len(truth.present)))
        if self.in_flight[owner] <= slots:
            return owner
        others = [worker for worker in truth.present if worker != owner]
        Random(self._keys[request.number]).shuffle(others)
        roomy = next((worker for worker in others if self.in_flight[worker] <= slots), None)
        return min((owner, *others), key=self.in_flight.__getitem__) if roomy is None else roomy


class PrefixHash(Peer):
    """SMG's `prefix_hash`: ring on the head of the prompt, bounded by 1.25 of the mean load and by 10 above it.

    `depths_tokens` are its cache boundaries, or the 256 tokens that it hashes without any: here one block. The owner
    of the deepest that the prompt reaches is asked first.
    """

    POINTS = 150
    FACTOR = 1.25
    MARGIN = 10

    def __init__(self, settings: EngineSettings, seed: int = 1, depths_tokens: Sequence[int] = (256,)) -> None:
        super().__init__(settings, seed)
        self._depths_tokens = sorted(depths_tokens, reverse=True)
        self._ring = HashRing(self.POINTS)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The first owner with room, else the least busy with room, else the deepest owner."""
        present = truth.present
        mean = (self.in_flight_together(present) + 1) / len(present)
        bound = max(mean * self.FACTOR, mean + self.MARGIN)
        roomy = [worker for worker in present if self.in_flight[worker] <= bound]
        owners = [self._ring.owner(key, present) for key in self._keys(request)]
        first = next((owner for owner in owners if owner in roomy), None)
        if first is not None:
            return first
        return min(roomy, key=self.in_flight.__getitem__) if roomy else owners[0]

    def _keys(self, request: TraceRequest) -> list[bytes]:
        prompt = request.prompt
        reached = [depth for depth in self._depths_tokens if depth <= prompt.tokens] or self._depths_tokens[-1:]
        chain = prompt.exact_blocks or (b"",)
        ends = [max(1, depth // prompt.block_tokens) for depth in reached]
        return [f"{xxh3_64_intdigest(chain[min(end, len(chain)) - 1]):016x}".encode() for end in ends]
