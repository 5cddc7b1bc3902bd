"""The workers that blocks may come from: who they are, whether they answer, and whether what they send is worth it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from backends.api_errors import BadRequestError
from backends.tiers.breaker import Breaker
from backends.tiers.interface import NoOffload
from backends.tiers.rates import Rates, Transfer, Worth


class Peer:
    """One worker; `breaker` leaves it alone for a while after a failure."""

    def __init__(self, url: str, rates: Rates, clock: Callable[[], float]) -> None:
        self.url = url
        self.breaker = Breaker(clock)
        self.transfer = Transfer()
        self.worth = Worth(rates, self.transfer, clock)


class Peers:
    """All of them, by URL."""

    def __init__(self, urls: Iterable[str], rates: Rates, clock: Callable[[], float] = time.monotonic) -> None:
        self._peers = {url: Peer(url, rates, clock) for url in urls}

    def named(self, url: str) -> Peer:
        """The peer of this URL; BadRequestError for any other address, whoever it belongs to."""
        peer = self._peers.get(url.rstrip("/"))
        if peer is None:
            raise BadRequestError("from is no peer of this worker: start it with --peer URL.", param="from")
        return peer


class Measuring(NoOffload):
    """No tiers, but the steps are measured: what computing costs decides whether blocks are pulled."""

    def __init__(self, rates: Rates) -> None:
        self._rates = rates

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        """A step took so long."""
        self._rates.stepped(computed_tokens, seconds)
