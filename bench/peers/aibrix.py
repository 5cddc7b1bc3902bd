"""AIBrix' prefix-cache: the longest match among workers that are not far busier than the mean."""

from __future__ import annotations

import statistics

from bench.peers.peer import Peer
from bench.peers.placements import Placements
from bench.peers.scraped import Scraper
from router.replay.core import EngineSettings, TraceRequest, Truth


class AiBrixPrefix(Peer):
    """Longest match first, skipping those over mean + `deviations` · sigma; nobody left: the least busy.

    When the busiest and the idlest differ by more than `imbalance`, only the idlest are looked at. 16 and 2 are the
    manifests', 8 and 1 the code's. Loads are scraped every 50 ms. Its table of 200,000 blocks of 128 bytes is
    generously one of as many blocks of the trace for each worker; full blocks only.
    """

    SCRAPE_SECONDS = 0.05
    TABLE_BLOCKS = 200_000

    def __init__(self, settings: EngineSettings, seed: int = 1, imbalance: int = 16, deviations: float = 2.0) -> None:
        super().__init__(settings, seed)
        self._imbalance = imbalance
        self._deviations = deviations
        self._table = Placements(self.TABLE_BLOCKS)
        self._scraper = Scraper(self.SCRAPE_SECONDS, settings.cache_blocks)

    def pick(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The first in the order of matches that is not too busy."""
        prompt = request.prompt
        chain = prompt.exact_blocks[: prompt.tokens // prompt.block_tokens]
        running = {worker: answer.in_flight for worker, answer in self._scraper.look(now, truth).items()}
        loads = [running[worker] for worker in truth.present]
        live = [w for w in truth.present if max(loads) - min(loads) <= self._imbalance or running[w] == min(loads)]
        matched = self._table.matched(chain, live)
        most = statistics.fmean(loads) + self._deviations * (statistics.stdev(loads) if len(loads) > 1 else 0.0)
        fitting = [worker for worker in live if matched[worker] and running[worker] <= most]
        worker = self.least(fitting or truth.present, lambda w: running[w] - (1e6 * matched[w] if fitting else 0))
        self._table.insert(chain, worker)
        return worker

    def left(self, worker: int, now: float) -> None:  # noqa: ARG002
        """Forget it."""
        self._table.forget(worker)
