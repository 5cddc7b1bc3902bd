"""NVIDIA Dynamo's KV router: booked prefill and active blocks, with events, without, and as lmetric."""

from __future__ import annotations

from collections.abc import Sequence

from bench.peers.peer import Peer
from router.replay.core import EngineSettings, TraceRequest, Truth


class Dynamo(Peer):
    """Least of blocks to prefill (booked and the request's own, less what the worker holds) + active blocks.

    A block that several requests hold counts once among the active ones. What a worker holds comes from KV events.
    """

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._prefill_blocks = [0.0] * len(self.in_flight)
        self._active: list[dict[bytes, int]] = [{} for _ in self.in_flight]
        self._booked: dict[int, float] = {}

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The cheapest; its prefill and its blocks are booked."""
        prompt = request.prompt
        blocks = prompt.tokens / prompt.block_tokens
        held = self.held_blocks(request, now, truth)
        raw = {worker: max(0.0, self._prefill_blocks[worker] + blocks - held[worker]) for worker in truth.present}
        chain = prompt.exact_blocks
        worker = self.least(truth.present, lambda each: self.cost(raw[each], self._active_with(chain, each)))
        self._book(request, worker, max(0.0, blocks - held[worker]))
        return worker

    def held_blocks(self, request: TraceRequest, now: float, truth: Truth) -> dict[int, float]:  # noqa: ARG002
        """What events say of each worker's cache."""
        prompt = request.prompt
        return {worker: truth.cached_tokens(worker, prompt) // prompt.block_tokens for worker in truth.present}

    def cost(self, prefill_blocks: float, active_blocks: int) -> float:
        """What is compared."""
        return prefill_blocks + active_blocks

    def started(self, request: TraceRequest, worker: int, now: float) -> None:  # noqa: ARG002
        """The prefill is over."""
        self._prefill_blocks[worker] -= self._booked.pop(request.number)

    def ended(self, request: TraceRequest, worker: int, now: float) -> None:  # noqa: ARG002
        """Its blocks are free."""
        active = self._active[worker]
        for block in request.prompt.exact_blocks:
            if active[block] == 1:
                del active[block]
            else:
                active[block] -= 1

    def _active_with(self, chain: Sequence[bytes], worker: int) -> int:
        active = self._active[worker]
        for shared, block in enumerate(chain):
            if block not in active:
                return len(active) + len(chain) - shared
        return len(active)

    def _book(self, request: TraceRequest, worker: int, prefill_blocks: float) -> None:
        self._prefill_blocks[worker] += prefill_blocks
        self._booked[request.number] = prefill_blocks
        active = self._active[worker]
        for block in request.prompt.exact_blocks:
            active[block] = active.get(block, 0) + 1


class DynamoLmetric(Dynamo):
    """Its `lmetric` policy: prefill times active blocks."""

    def cost(self, prefill_blocks: float, active_blocks: int) -> float:
        """The product."""
        return prefill_blocks * (active_blocks + 1)


class DynamoApproximate(Dynamo):
    """Without events: a worker holds what was sent there in the last 120 s."""

    KEPT_SECONDS = 120.0

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._until_seconds: list[dict[bytes, float]] = [{} for _ in self.in_flight]

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """As with events; then remember."""
        worker = super().pick(request, now, truth)
        self._until_seconds[worker].update(dict.fromkeys(request.prompt.exact_blocks, now + self.KEPT_SECONDS))
        return worker

    def held_blocks(self, request: TraceRequest, now: float, truth: Truth) -> dict[int, float]:
        """What was sent there lately, without a gap."""
        chain = request.prompt.exact_blocks
        return {worker: self._fresh(chain, self._until_seconds[worker], now) for worker in truth.present}

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget it."""
        self._until_seconds[worker].clear()

    @staticmethod
    def _fresh(chain: Sequence[bytes], until_seconds: dict[bytes, float], now: float) -> int:
        for depth, block in enumerate(chain):
            if until_seconds.get(block, 0.0) < now:
                return depth
        return len(chain)
