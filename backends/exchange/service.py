"""Warm-up, exchange and map as one thing: what the options switch on, and what it counts."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager

from backends.api_errors import QueueOverflowError
from backends.async_engine import AsyncEngine
from backends.events.service import EventService
from backends.exchange.ages import Ages
from backends.exchange.metrics import ExchangeCollector
from backends.exchange.options import ExchangeSettings, read_exchange_settings
from backends.exchange.peers import Peers
from backends.exchange.pull import Puller
from backends.holdings import Holdings
from backends.journal import Journal, NoJournal
from backends.tiers.rates import Rates

SERVED_AT_ONCE = 4
"""Peers that are given blocks at the same time; one more is told to come later."""


class Exchange:
    """Switched off, it has no routes, keeps nothing and costs nothing."""

    def __init__(self, settings: ExchangeSettings, rates: Rates) -> None:
        self.settings = settings
        self.ages = Ages(time.monotonic)
        self.peers = Peers(settings.peers, rates)
        self.serving = 0
        self.given_blocks = 0
        self._puller: Puller | None = None

    @property
    def journal(self) -> Journal:
        """For the block pool."""
        return self.ages if self.settings.routes else NoJournal()

    def connect(self, engine: AsyncEngine, holdings: Holdings) -> None:
        """The engine is there: blocks may be pulled into it."""
        if self.settings.peer_token is not None:
            self._puller = Puller(engine, holdings, self.settings.peer_token)

    @property
    def puller(self) -> Puller | None:
        """None without a token: then nothing is exchanged."""
        return self._puller

    @contextmanager
    def giving(self) -> Iterator[None]:
        """Count a peer while it is given blocks; QueueOverflowError when there are too many."""
        if self.serving >= SERVED_AT_ONCE:
            raise QueueOverflowError("Too many peers are being given blocks; come later, or compute.")
        self.serving += 1
        try:
            yield
        finally:
            self.serving -= 1

    def collector(self, model_name: str, events: EventService, holdings: Holdings) -> ExchangeCollector:
        """For /metrics."""
        puller = self._puller
        return ExchangeCollector(
            model_name,
            lambda: {} if puller is None else dict(puller.outcomes),
            {
                "cache_pulled_tokens": lambda: 0 if puller is None else puller.pulled_tokens,
                "cache_given_blocks": lambda: self.given_blocks,
                "block_digest_collisions": lambda: holdings.cache.pool.cached.collisions,
                "kv_event_batches_dropped": lambda: events.dropped,
            },
        )

    async def close(self) -> None:
        """Let go of connections to peers."""
        if self._puller is not None:
            await self._puller.close()


NO_EXCHANGE = Exchange(ExchangeSettings(), Rates())


def build_exchange(options: argparse.Namespace, rates: Rates) -> Exchange:
    """What the options ask for; ExchangeOptionsError when they do not fit together."""
    return Exchange(read_exchange_settings(options), rates)
