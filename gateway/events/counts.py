"""What followed events come to, as metrics: streams count for themselves, and a scrape takes the difference."""

from __future__ import annotations

from collections import Counter

from gateway.events.following import Following
from gateway.metrics import Metrics


class EventCounts:
    """Brings the metrics of events up to date."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._before: dict[int, Counter[tuple[str, str]]] = {}

    def read(self, name: str, following: Following | None, *, known: bool) -> None:
        """One worker's gauges, and what was added to the counters since it was read last."""
        metrics = self._metrics
        metrics.backend_cache_known.labels(name).set(float(known))
        lags = (
            [stream.lag_seconds for stream in following.streams if stream.lag_seconds is not None] if following else []
        )
        if lags:
            metrics.backend_event_lag_seconds.labels(name).set(max(lags))
        else:
            metrics.backend_event_lag_seconds.remove(name)
        if following is None:
            metrics.backend_known_blocks.remove(name)
            return
        held = sum(len(knowledge) for knowledge in following.knowledge.values())
        metrics.backend_known_blocks.labels(name).set(held)
        self._add(following)

    def stopped(self, following: Following) -> None:
        """It is no longer followed: its last counts are taken in now."""
        self._add(following)
        self._before.pop(id(following), None)

    def left(self, name: str) -> None:
        """The worker has gone, and so do its series."""
        metrics = self._metrics
        for family in (metrics.backend_cache_known, metrics.backend_known_blocks, metrics.backend_event_lag_seconds):
            family.remove(name)

    def _add(self, following: Following) -> None:
        now, before = _counted(following), self._before.get(id(following), Counter())
        self._before[id(following)] = now
        metrics = self._metrics
        for (family, label), count in (now - before).items():
            if family == "batches":
                metrics.event_batches_total.labels(label).inc(count)
            elif family == "gaps":
                metrics.event_gaps_total.labels(label).inc(count)
            elif family == "blocks":
                metrics.event_blocks_total.labels(label).inc(count)
            else:
                metrics.event_lives_total.labels().inc(count)


def _counted(following: Following) -> Counter[tuple[str, str]]:
    """Everything counted so far, by family and label."""
    counted: Counter[tuple[str, str]] = Counter()
    for stream in following.streams:
        counts = stream.follower.counts
        counted["batches", "applied"] += counts.applied - counts.replayed
        counted["batches", "replayed"] += counts.replayed
        counted["batches", "repeated"] += counts.repeated
        counted["batches", "bad"] += stream.bad_batches
        counted["gaps", "noticed"] += counts.gaps
        counted["gaps", "lost"] += counts.lost
        counted["lives", ""] += counts.lives
    for knowledge in following.knowledge.values():
        for cache in knowledge.caches:
            counted["blocks", "stored"] += cache.stored_blocks
            counted["blocks", "removed"] += cache.removed_blocks
            counted["blocks", "absent"] += cache.absent
            counted["blocks", "orphan"] += cache.orphans
            counted["blocks", "refused"] += cache.refused
    return counted
