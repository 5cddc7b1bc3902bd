"""The line that vLLM logs every ten seconds while there is work; log scrapers know it by heart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from backends.accounts import EngineStats

logger = logging.getLogger("homing.worker")

INTERVAL_SECONDS = 10.0

Watch = Callable[[EngineStats], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """The engine's numbers at one moment of a monotonic clock."""

    stats: EngineStats
    seconds: float


def log_line(before: Sample, now: Sample) -> str | None:
    """The line for the time between two samples, or None when nothing happened and nothing runs.

    Prompt throughput counts computed tokens only; hits cost nothing.
    """
    elapsed = max(now.seconds - before.seconds, 1e-9)
    prompt = (_computed(now.stats) - _computed(before.stats)) / elapsed
    generation = (now.stats.generation_tokens - before.stats.generation_tokens) / elapsed
    stats = now.stats
    if not (prompt or generation or stats.running or stats.waiting):
        return None
    return (
        f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, "
        f"Running: {stats.running} reqs, Waiting: {stats.waiting} reqs, "
        f"GPU KV cache usage: {stats.kv_usage * 100:.1f}%, "
        f"Prefix cache hit rate: {stats.recent_hit_rate * 100:.1f}%"
    )


class Pulse:
    """Keeps the newest stats, and logs the line from them. `beside` is written by the engine's thread."""

    def __init__(self) -> None:
        self._newest: EngineStats | None = None
        self._last: Sample | None = None

    def beside(self, watch: Watch) -> Watch:
        """A watcher that does what `watch` does and keeps the stats."""

        def both(stats: EngineStats) -> None:
            watch(stats)
            self._newest = stats

        return both

    async def beat(self, clock: Callable[[], float], interval_seconds: float = INTERVAL_SECONDS) -> None:
        """Log the line every interval, as long as there is something to tell; ends when cancelled."""
        while True:
            line = self.line(clock())
            if line is not None:
                logger.info("%s", line)
            await asyncio.sleep(interval_seconds)

    def line(self, now_seconds: float) -> str | None:
        """The line since the last call; None for the first one and for a time without work."""
        if self._newest is None:
            return None
        now = Sample(self._newest, now_seconds)
        before, self._last = self._last, now
        return None if before is None else log_line(before, now)


def _computed(stats: EngineStats) -> int:
    return stats.prompt_tokens - stats.cached_prompt_tokens
