"""Events of the tiers: what the pool gives up is told as stored in a slower medium, until a reset takes it away."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.backends.events.test_worker_events import SMALL, events_config
from tests.backends.server_builders import running_worker

TIERED = (*SMALL, *events_config(), "--kv-offloading-size", "0.01", "--enable-dev-routes")


async def test_an_evicted_block_is_told_as_stored_in_host_memory():
    """Trap 15: removed from GPU while a copy stays in CPU is a slower hit, and a router can know it."""
    async with running_worker(*TIERED) as worker:
        told: list[Any] = []
        worker.worker.events._events._publish = told.extend
        for number in range(8):
            await worker.complete([number + 1] * 41, max_tokens=1)
        await worker.worker.engine.call(lambda: None)
        counts: Counter[tuple[str, str]] = Counter()
        for event in told:
            counts[type(event).__name__, event.medium] += len(event.block_hashes)
        assert counts["Stored", "GPU"] == 80
        assert counts["Removed", "GPU"] == 80 - worker.worker.holdings.cache.pool.cached.count > 10
        assert counts["Stored", "CPU"] >= counts["Removed", "GPU"]


async def test_a_reset_of_the_tiers_takes_their_blocks_away():
    """Trap 14: reset_external; the next same prompt finds nothing in any tier."""
    async with running_worker(*TIERED) as worker:
        told: list[Any] = []
        worker.worker.events._events._publish = told.extend
        for number in range(8):
            await worker.complete([number + 1] * 41, max_tokens=1)
        assert await worker.post("/reset_prefix_cache?reset_external=true", None) == (200, {"success": True})
        stored = {name for event in told if getattr(event, "medium", "") == "CPU" for name in event.block_hashes}
        removed = [event for event in told if type(event).__name__ == "Removed" and event.medium == "CPU"]
        assert {name for event in removed for name in event.block_hashes} == stored
        assert any(type(event).__name__ == "Cleared" for event in told)
        answer = await worker.complete([1] * 41, max_tokens=1)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
