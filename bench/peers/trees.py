"""Peers that remember in a tree what they sent where: SGLang's and vllm-router's cache_aware, SMG's, Ray's."""

from __future__ import annotations

import math
from typing import Literal

from bench.peers.peer import Peer
from bench.peers.placements import Placements
from router.replay.core import EngineSettings, TraceRequest, Truth

CHARACTERS_PER_TOKEN = 4


class CacheAware(Peer):
    """The classic `cache_aware` of SGLang's router: affinity for all, or for nobody while one worker is far busier.

    The defaults are the command line's; `threshold` 0.5, `absolute` 32, `relative` 1.1, 10,000 blocks and 30 s are
    those of the code, which vllm-router uses. `on_miss` "smallest_tree" is what older versions did.
    """

    def __init__(
        self,
        settings: EngineSettings,
        seed: int = 1,
        threshold: float = 0.3,
        absolute: int = 64,
        relative: float = 1.5,
        tree_blocks: int = 2**26 // CHARACTERS_PER_TOKEN // 512,
        eviction_seconds: float = 120.0,
        on_miss: Literal["least_busy", "smallest_tree"] = "least_busy",
    ) -> None:
        super().__init__(settings, seed)
        self.threshold, self.absolute, self.relative = threshold, absolute, relative
        self.tree = Placements()
        self._tree_blocks = tree_blocks
        self._eviction_seconds = eviction_seconds
        self._evicted_at_seconds = 0.0
        self._on_miss = on_miss

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The last that was sent the matching part, unless too little matches or the fleet is uneven."""
        self.evict(now, truth)
        worker = self._chosen(request, truth)
        self.tree.insert(request.prompt.exact_blocks, worker)
        return worker

    def matched_blocks(self, request: TraceRequest, truth: Truth) -> int:
        """The depth of the match where it is more than the threshold's share of the prompt, else 0."""
        prompt = request.prompt
        depth = self.tree.depth(prompt.exact_blocks, truth.present)
        matched_tokens = min(depth * prompt.block_tokens, prompt.tokens)
        return depth if matched_tokens > self.threshold * prompt.tokens else 0

    def evict(self, now: float, truth: Truth) -> None:
        """Every eviction interval, cut each worker's tree to its size."""
        if now - self._evicted_at_seconds >= self._eviction_seconds:
            self._evicted_at_seconds = now
            for worker in truth.present:
                self.tree.trim(worker, self._tree_blocks)

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget its tree."""
        self.tree.forget(worker)

    def _chosen(self, request: TraceRequest, truth: Truth) -> int:
        present = truth.present
        loads = [self.in_flight[worker] for worker in present]
        if max(loads) - min(loads) > self.absolute and max(loads) > self.relative * min(loads):
            return self.least_busy(present)
        depth = self.matched_blocks(request, truth)
        holder = self.tree.latest(request.prompt.exact_blocks[depth - 1], present) if depth else None
        if holder is not None:
            return holder
        return (
            self.least(present, self.tree.blocks_of) if self._on_miss == "smallest_tree" else self.least_busy(present)
        )


class SmgGate(CacheAware):
    """SMG's `cache_aware`: the least busy of those that hold the match, and a gate that is asked for each request.

    A request whose worker is over both bounds goes to the least busy of all, and is remembered there.
    """

    HOLDERS = 8

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._processed = [0] * len(self.in_flight)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """Gate the best holder; remember whom it let through."""
        self.evict(now, truth)
        depth = self.matched_blocks(request, truth)
        worker = self._quietest(truth)
        if depth:
            holders = self.tree.holders(request.prompt.exact_blocks[depth - 1], truth.present)
            worker = self.gated(self.least_busy(holders[: self.HOLDERS]), truth)
        self.tree.insert(request.prompt.exact_blocks, worker)
        self._processed[worker] += 1
        return worker

    def gated(self, worker: int, truth: Truth) -> int:
        """The worker itself, or the quietest where it is over the relative and the absolute bound."""
        load, mean = self.in_flight[worker], self.in_flight_together(truth.present) / len(truth.present)
        over = load > mean * self.relative and load > mean + self.absolute
        return self._quietest(truth) if over else worker

    def _quietest(self, truth: Truth) -> int:
        return min(truth.present, key=lambda worker: (self.in_flight[worker], self._processed[worker], worker))


class SmgEvents(SmgGate):
    """SMG with KV events: the worker that really holds most of the prompt, through the same gate."""

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """Most cached, then least busy; nobody: the quietest."""
        held = {worker: truth.cached_tokens(worker, request.prompt) for worker in truth.present}
        most = max(held.values())
        best = [worker for worker in truth.present if held[worker] == most]
        worker = self.gated(self.least_busy(best), truth) if most else self._quietest(truth)
        self._processed[worker] += 1
        return worker


class RayPrefix(Peer):
    """Ray Serve LLM's prefix-aware router: the shortest queue among the holders of a tree that forgets nothing.

    `imbalance` infinite is today's; with 10, the older, two workers by lot when queues differ by more.
    """

    MATCH_RATE = 0.1

    def __init__(self, settings: EngineSettings, seed: int = 1, imbalance: float = math.inf) -> None:
        super().__init__(settings, seed)
        self._imbalance = imbalance
        self._tree = Placements()

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """The least busy candidate."""
        worker = self.least_busy(self._candidates(request, truth))
        self._tree.insert(request.prompt.exact_blocks, worker)
        return worker

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget its part of the tree."""
        self._tree.forget(worker)

    def _candidates(self, request: TraceRequest, truth: Truth) -> list[int]:
        present, prompt = truth.present, request.prompt
        loads = [self.in_flight[worker] for worker in present]
        if max(loads) - min(loads) > self._imbalance:
            return self.random.sample(present, min(2, len(present)))
        depth = self._tree.depth(prompt.exact_blocks, present)
        if depth * prompt.block_tokens < self.MATCH_RATE * prompt.tokens or not depth:
            smallest = min(self._tree.blocks_of(worker) for worker in present)
            return [worker for worker in present if self._tree.blocks_of(worker) == smallest]
        return self._tree.holders(prompt.exact_blocks[depth - 1], present)
