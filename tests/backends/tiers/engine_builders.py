"""An engine over SlotRunner, whose answers depend on every K/V slot, with real tiers behind a small pool."""

from __future__ import annotations

import time
from pathlib import Path

from backends.engine import Engine
from backends.events.journal import EventJournal
from backends.journal import together
from backends.tiers.disk import DiskTier
from backends.tiers.disk_files import BlockFiles
from backends.tiers.host import HostTier
from backends.tiers.offload import TieredOffload, WritePolicy
from backends.tiers.tier import TierNews
from tests.backends.core_builders import SlotRunner, build_engine
from tests.backends.tiers.builders import TierNotes

BLOCK_TOKENS = 4
SLOT_BLOCK_BYTES = 8 * BLOCK_TOKENS


class TieredEngine:
    """The engine and what is behind it, to look at."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        host_blocks: int = 0,
        disk_blocks: int = 1000,
        policy: str = "write-back",
        more_tiers=(),
        events: EventJournal | None = None,
        **changes,
    ) -> None:
        self.runner = changes.pop("runner", None) or SlotRunner()
        self.news, self.notes = TierNews(), TierNotes()
        self.host = HostTier(host_blocks * SLOT_BLOCK_BYTES, self.news) if host_blocks else None
        self.disk: DiskTier | None = None

        def open_slow(entries) -> list:
            tiers = []
            if folder is not None:
                files = BlockFiles(folder, "slots", entries.config_digest)
                limit = disk_blocks * entries.entry_bytes
                self.disk = DiskTier(files, entries, limit, self.news, time.monotonic)
                self.disk.open()
                tiers.append(self.disk)
            return tiers + [build(entries) for build in more_tiers]

        self.offload = TieredOffload(
            self.runner,
            host=self.host,
            open_slow=open_slow,
            policy=WritePolicy(policy),
            block_tokens=BLOCK_TOKENS,
            clock=time.monotonic,
            news=self.news,
            journal=self.notes if events is None else events.tiers,
        )
        changes = {"num_blocks": 20, "block_tokens": BLOCK_TOKENS, "max_model_tokens": 60, **changes}
        self.engine: Engine = build_engine(
            self.runner,
            offload=self.offload,
            journal=together(*([] if events is None else [events]), self.offload),
            clock=time.monotonic,
            **changes,
        )

    def check_integrity(self) -> None:
        self.engine.check_integrity()
        self.offload.check_integrity()

    def settle(self) -> None:
        """Until everything is written."""
        while any(slow.queued_bytes for slow in self.offload._slow):
            time.sleep(0.001)

    def close(self) -> None:
        self.offload.close()

    def computed_tokens(self) -> int:
        """Tokens the runner has computed so far."""
        return sum(count for batch in self.runner.batches for _, _, count in batch)


def run(tiered: TieredEngine, most_steps: int = 100_000) -> list:
    """Step to the end, checking everything after each step."""
    deltas = []
    for _ in range(most_steps):
        if not tiered.engine.has_work:
            return deltas
        deltas += tiered.engine.step()
        tiered.check_integrity()
    raise AssertionError("it never ended")
