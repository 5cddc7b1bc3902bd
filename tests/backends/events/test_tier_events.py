"""Events of the tiers: what the pool gives up is told as stored in a slower medium, until a reset takes it away."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.backends.events.test_worker_events import SMALL, events_config
from tests.backends.server_builders import running_worker, until

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


async def test_an_idle_workers_disk_is_told_of(tmp_path: Path):
    """What is written after the last step, and a reset that comes to the disk later, need no further request."""
    more = ("--kv-disk", str(tmp_path), "--kv-write-policy", "write-through")
    async with running_worker(*TIERED, *more) as worker:
        kept: set[int] = set()

        def follow(events: list[Any]) -> None:
            for event in events:
                if getattr(event, "medium", "") == "STORAGE":
                    change = kept.update if type(event).__name__ == "Stored" else kept.difference_update
                    change(event.block_hashes)

        async def all_is_kept() -> bool:
            return len(kept) == 10

        async def nothing_is_kept() -> bool:
            return not kept

        worker.worker.events._events._publish = follow
        await worker.complete([1] * 41, max_tokens=1)
        await until(all_is_kept, "blocks that were written are untold")
        assert (await worker.post("/reset_prefix_cache?reset_external=true", None))[0] == 200
        await until(nothing_is_kept, "a reset is untold")


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
