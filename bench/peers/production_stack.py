"""vLLM production-stack's `prefixaware` and `loadaware`: a trie of chunks that never forgets."""

from __future__ import annotations

from bench.peers.peer import Peer
from bench.peers.placements import Placements
from router.replay.core import EngineSettings, TraceRequest, Truth


class PrefixAware(Peer):
    """Any worker, by lot, of those that were sent the longest known part; no load is looked at.

    Its chunks of 128 characters are whole blocks here, and a cold prompt goes anywhere.
    """

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self.trie = Placements()

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """Choose, and put the whole prompt into the trie."""
        worker = self.chosen(request, truth)
        self.trie.insert(request.prompt.exact_blocks, worker)
        return worker

    def chosen(self, request: TraceRequest, truth: Truth) -> int:
        """By lot among those that match longest."""
        matched = self.trie.matched(request.prompt.exact_blocks, truth.present)
        most = max(matched.values())
        return self.random.choice([worker for worker in truth.present if matched[worker] == most])

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget it."""
        self.trie.forget(worker)


class LoadAware(PrefixAware):
    """The proposed `loadaware`: the share that matches, less the share by which a worker is busier than the mean."""

    BETA = 1.0

    def chosen(self, request: TraceRequest, truth: Truth) -> int:
        """The best difference."""
        prompt, present = request.prompt, truth.present
        matched = self.trie.matched(prompt.exact_blocks, present)
        mean = self.in_flight_together(present) / len(present)

        def cost(worker: int) -> float:
            share = min(1.0, matched[worker] * prompt.block_tokens / prompt.tokens)
            return self.BETA * (self.in_flight[worker] - mean) / max(1.0, mean) - share

        return self.least(present, cost)
