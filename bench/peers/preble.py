"""Preble's E2: exploit a long match, explore otherwise by what each worker was given in the last three minutes."""

from __future__ import annotations

from collections import deque

from bench.peers.peer import Peer
from bench.peers.placements import Placements
from router.replay.core import EngineSettings, TraceRequest, Truth


class Preble(Peer):
    """Where more of the prompt is known than new, the holder that was given least; else the least cost of all.

    The load of a worker is the seconds of prefill and of decoding (shared by 64) that it was given in the window. A
    holder given over twice the least, and with more than one request, passes the request to the one given least. The
    cost of the others: their load, what the prompt would evict, and its own prefill.
    """

    WINDOW_SECONDS = 180.0
    IMBALANCE = 2.0
    SLACK_SECONDS = 5.0
    DECODED_TOGETHER = 64
    EVICTED_SHARE = 0.35

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._tree = Placements(settings.cache_blocks)
        self._given: list[deque[tuple[float, float]]] = [deque() for _ in self.in_flight]
        self._given_seconds = [0.0] * len(self.in_flight)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """Exploit or explore."""
        prompt, present = request.prompt, truth.present
        matched = self._tree.matched(prompt.exact_blocks, present)
        known = {worker: min(prompt.tokens, blocks * prompt.block_tokens) for worker, blocks in matched.items()}
        for worker in present:
            self._forget_old(worker, now)
        worker = (
            self._exploit(known, truth) if 2 * max(known.values()) > prompt.tokens else self._explore(request, known)
        )
        self._give(request, worker, now, truth)
        self._tree.insert(prompt.exact_blocks, worker)
        return worker

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget it."""
        self._tree.forget(worker)

    def _exploit(self, known: dict[int, int], truth: Truth) -> int:
        given = self._given_seconds
        most = max(known.values())
        holder = self.least([worker for worker in known if known[worker] == most], given.__getitem__)
        idlest = min(truth.present, key=given.__getitem__)
        too_much = given[holder] > self.IMBALANCE * given[idlest] + self.SLACK_SECONDS
        return idlest if too_much and self.in_flight[holder] > 1 else holder

    def _explore(self, request: TraceRequest, known: dict[int, int]) -> int:
        rate, together = self.settings.prefill_tokens_per_second, max(1, self.settings.most_sequences // 64)

        def cost(worker: int) -> float:
            own = max(0, request.prompt.tokens - known[worker]) / rate
            full = self._tree.blocks_of(worker) >= self.settings.cache_blocks
            return self._given_seconds[worker] / together + own + (self.EVICTED_SHARE * own if full else 0.0)

        return self.least(known, cost)

    def _give(self, request: TraceRequest, worker: int, now: float, truth: Truth) -> None:
        uncached = max(1, request.prompt.tokens - truth.expected_tokens(worker, request.prompt))
        decoding = request.output_tokens * self.settings.seconds_per_output_token / self.DECODED_TOGETHER
        seconds = uncached / self.settings.prefill_tokens_per_second + decoding
        self._given[worker].append((now, seconds))
        self._given_seconds[worker] += seconds

    def _forget_old(self, worker: int, now: float) -> None:
        given = self._given[worker]
        while given and given[0][0] < now - self.WINDOW_SECONDS:
            self._given_seconds[worker] -= given.popleft()[1]
