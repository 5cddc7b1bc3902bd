"""llm-d's endpoint picker: its weighted scorers 3/2/2, approximate and exact, and its sticky profile."""

from __future__ import annotations

from bench.peers.peer import Peer
from bench.peers.placements import Placements
from bench.peers.scraped import Scraper, spread
from router.replay.core import EngineSettings, TraceRequest, Truth


class LlmdApproximate(Peer):
    """Most of 3 · share of the prompt's blocks + 2 · shortness of the queue + 2 · free cache, by lot among equals.

    It guesses the share from what it sent where, in an LRU for each worker that it fits to the worker's cache; queue
    and cache are scraped every 50 ms. The LRU forgets ends before beginnings here: its counts of blocks have no gaps.
    """

    PREFIX_WEIGHT = 3
    QUEUE_WEIGHT = 2
    CACHE_WEIGHT = 2
    SCRAPE_SECONDS = 0.05
    MOST_TOKENS = 131_072

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._sent_blocks = Placements(settings.cache_blocks)
        self._scraper = Scraper(self.SCRAPE_SECONDS, settings.cache_blocks)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The best sum."""
        shares = self.shares(request, truth)
        scrapes = self._scraper.look(now, truth)
        shortness = spread([scrapes[worker].waiting for worker in truth.present])

        def cost(worker: int) -> float:
            queue, free = shortness(scrapes[worker].waiting), 1.0 - scrapes[worker].cache_share
            return -(self.PREFIX_WEIGHT * shares[worker] + self.QUEUE_WEIGHT * queue + self.CACHE_WEIGHT * free)

        worker = self.least(truth.present, cost)
        self.learn(request, worker)
        return worker

    def shares(self, request: TraceRequest, truth: Truth) -> dict[int, float]:
        """By worker, the share of the prompt's blocks that it is believed to hold."""
        most = self.MOST_TOKENS // request.prompt.block_tokens
        chain = request.prompt.exact_blocks[:most]
        matched = self._sent_blocks.matched(chain, truth.present)
        return {worker: blocks / max(1, len(chain)) for worker, blocks in matched.items()}

    def learn(self, request: TraceRequest, worker: int) -> None:
        """The worker will hold this prompt."""
        self._sent_blocks.insert(request.prompt.exact_blocks, worker)

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget it."""
        self._sent_blocks.forget(worker)


class LlmdExact(LlmdApproximate):
    """The same sum with the share from KV events: what a worker holds at this moment."""

    def shares(self, request: TraceRequest, truth: Truth) -> dict[int, float]:
        """From the workers' caches."""
        prompt = request.prompt
        total = max(1, len(prompt.exact_blocks))
        return {worker: truth.cached_tokens(worker, prompt) // prompt.block_tokens / total for worker in truth.present}

    def learn(self, request: TraceRequest, worker: int) -> None:
        """Events tell."""


class LlmdSticky(Peer):
    """llm-d's prefix-affinity filter: only workers that hold 80 % of the prompt, unless their queues cost over 18 s.

    Of those that are left, or of all, the one with the fewest tokens to prefill: queued ones and the request's own.
    """

    AFFINITY = 0.8
    MOST_PENALTY_SECONDS = 18.0

    def __init__(self, settings: EngineSettings, seed: int = 1) -> None:
        super().__init__(settings, seed)
        self._sent_blocks = Placements(settings.cache_blocks)
        self._queued_tokens = [0] * len(self.in_flight)
        self._booked: dict[int, int] = {}
        self._most_penalty_tokens = settings.prefill_tokens_per_second * self.MOST_PENALTY_SECONDS

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:  # noqa: ARG002
        """Filter, then the shortest."""
        prompt, queued = request.prompt, self._queued_tokens
        matched = self._sent_blocks.matched(prompt.exact_blocks, truth.present)
        uncached = {w: prompt.tokens - min(prompt.tokens - 1, n * prompt.block_tokens) for w, n in matched.items()}
        limit = prompt.tokens * (1.0 - self.AFFINITY)
        sticky = [worker for worker in truth.present if uncached[worker] <= limit]
        shortest = min(queued[worker] for worker in truth.present)
        if not sticky or min(queued[worker] for worker in sticky) - shortest > self._most_penalty_tokens:
            sticky = list(truth.present)
        worker = self.least(sticky, lambda each: queued[each] + uncached[each])
        queued[worker] += uncached[worker]
        self._booked[request.number] = uncached[worker]
        self._sent_blocks.insert(prompt.exact_blocks, worker)
        return worker

    def started(self, request: TraceRequest, worker: int, now: float) -> None:  # noqa: ARG002
        """Its prefill is over."""
        self._queued_tokens[worker] -= self._booked.pop(request.number)

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget it."""
        self._sent_blocks.forget(worker)
