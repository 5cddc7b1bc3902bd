"""How much of the prompts was found: in the pool, and beyond it in the tiers."""

from __future__ import annotations

from collections import Counter, deque

RECENT_REQUESTS = 1000
"""The window of the hit rate in the log line."""


class PrefixStatistics:
    """Tokens looked up and tokens found: since start, and over the last 1,000 requests.

    The external ones are what the tiers were asked for, because the pool had it not, and what they had.
    """

    __slots__ = (
        "_recent",
        "_recent_hits",
        "_recent_queries",
        "external_hits_by_source",
        "external_queries",
        "hits",
        "queries",
    )

    def __init__(self) -> None:
        self.queries = self.hits = self.external_queries = 0
        self.external_hits_by_source: Counter[str] = Counter()
        self.forget_recent()

    def record(self, queries: int, hits: int) -> None:
        """Count one request's look-up in the pool."""
        self.queries += queries
        self.hits += hits
        self._recent.append((queries, hits))
        self._recent_queries += queries
        self._recent_hits += hits
        if len(self._recent) > RECENT_REQUESTS:
            old_queries, old_hits = self._recent.popleft()
            self._recent_queries -= old_queries
            self._recent_hits -= old_hits

    def record_external(self, queries: int, hits: int, source: str) -> None:
        """Count what one request asked of the tiers, and what the tier `source` gave."""
        self.external_queries += queries
        if hits:
            self.external_hits_by_source[source] += hits

    def forget_recent(self) -> None:
        """Start the window anew, after a reset of the cache."""
        self._recent: deque[tuple[int, int]] = deque()
        self._recent_queries = self._recent_hits = 0

    @property
    def recent_hit_rate(self) -> float:
        """0..1; 0 before the first request."""
        return self._recent_hits / self._recent_queries if self._recent_queries else 0.0
