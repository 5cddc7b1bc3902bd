"""KV events by medium: whoever follows them knows what is in the pool, in host memory and on disk."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from backends.events.journal import EventJournal
from backends.events.wire import Cleared, Event, Removed, Stored
from tests.backends.core_builders import build_prompt, build_request
from tests.backends.tiers.engine_builders import TieredEngine, run


class Follower:
    """What is where, from the events alone."""

    def __init__(self) -> None:
        self.kept: dict[str, set[bytes]] = defaultdict(set)

    def hear(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Stored):
                self.kept[event.medium].update(event.block_hashes)
            elif isinstance(event, Removed):
                self.kept[event.medium].difference_update(event.block_hashes)
            elif isinstance(event, Cleared):
                self.kept.clear()


def test_a_follower_knows_what_is_in_every_medium(tmp_path: Path):
    """Through evictions from all three, restores, resets of everything, and of the pool alone."""
    follower = Follower()
    events = EventJournal(follower.hear, whole_hashes=True)
    tiered = TieredEngine(tmp_path, host_blocks=8, disk_blocks=30, num_blocks=24, events=events)
    generator = random.Random(1)
    heads = [build_prompt(24, seed) for seed in range(6)]
    for number in range(120):
        prompt = generator.choice(heads)[: generator.randrange(8, 25)] + build_prompt(generator.randrange(20), number)
        tiered.engine.add(build_request(f"{number}", prompt))
        run(tiered)
        events.flush()
        if number in (40, 80, 115):
            assert tiered.engine.reset_prefix_cache(external=number == 40)
            events.flush()
            assert not follower.kept["GPU"]
            assert bool(follower.kept["CPU"]) == (number != 40)
    tiered.settle()
    tiered.close()
    tiered.offload.stepped(0, 0.0)
    events.flush()
    pool = tiered.engine.pool
    cached = {key.digest for block_id in range(24) if (key := pool.key_of(block_id)) is not None}
    assert follower.kept["GPU"] == cached
    assert follower.kept["CPU"] == set(tiered.host._blocks)
    assert follower.kept["STORAGE"] == set(tiered.disk._index)
    assert len(follower.kept["STORAGE"]) == 30
    assert follower.kept["CPU"] - follower.kept["GPU"], "removed from the pool while a copy stays is still a hit"
