"""A tier for tests of the core: keeps what is overwritten, brings it back after as many looks as it is told."""

from __future__ import annotations

import random
from collections.abc import Sequence as Items

from backends.hashing import BlockKey
from backends.journal import NoJournal
from backends.tiers.interface import MISS, PENDING, Fetched, FetchState, NoOffload
from tests.backends.core_builders import SlotRunner, build_engine


def chain(key: BlockKey) -> tuple[bytes, ...]:
    """The content that a key stands for, without any digest."""
    parts: list[bytes] = []
    following: BlockKey | None = key
    while following is not None:
        parts.append(following.tokens)
        following = following.parent
    return tuple(reversed(parts))


class ToyTier(NoOffload):
    """Keeps every block that the pool overwrites, for ever. A fetch is pending for `looks` calls.

    With `generator` the looks are random, and now and then a fetch fails, brings only a part, or a broken payload.
    """

    brings = True

    def __init__(self, runner: SlotRunner, *, looks: int = 0, generator: random.Random | None = None) -> None:
        self.runner = runner
        self.looks = looks
        self.generator = generator
        self.kept: dict[tuple[bytes, ...], bytes] = {}
        self.open: dict[str, tuple[tuple[bytes, ...], int, Fetched]] = {}
        self.forgotten: list[str] = []
        self.found: list[BlockKey] = []
        self.stepped_tokens: list[int] = []
        self.waits = self.resets = 0

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        self.kept[chain(key)] = self.runner.read_blocks([block_id])[0]

    stored = NoJournal.stored
    removed = NoJournal.removed
    cleared = NoJournal.cleared

    def fetch(self, request_id: str, keys: Items[BlockKey]) -> Fetched:
        first, looks, result = self.open.get(request_id, ((), 0, MISS))
        if first != chain(keys[0]):
            looks, result = self._looks(), self._result(keys)
        self.open[request_id] = chain(keys[0]), looks - 1, result
        return result if looks <= 0 or result is MISS else PENDING

    def _looks(self) -> int:
        return self.looks if self.generator is None else self.generator.randint(0, 4)

    def _result(self, keys: Items[BlockKey]) -> Fetched:
        payloads: list[bytes] = []
        for key in keys:
            payload = self.kept.get(chain(key))
            if payload is None:
                break
            payloads.append(payload)
        if self.generator is not None and payloads:
            kind = self.generator.randrange(8)
            payloads = payloads[: {0: 0, 1: 1}.get(kind, len(payloads))]
            payloads = [payload[:8] for payload in payloads] if kind == 2 else payloads
        return Fetched(FetchState.HIT, payloads, "toy") if payloads else MISS

    def forget(self, request_id: str) -> None:
        self.open.pop(request_id, None)
        self.forgotten.append(request_id)

    def seen(self, keys: Items[BlockKey]) -> None:
        self.found += keys

    def stepped(self, computed_tokens: int, seconds: float) -> None:
        self.stepped_tokens.append(computed_tokens)

    def wait(self, timeout_seconds: float) -> None:
        self.waits += 1

    def reset(self) -> None:
        self.kept.clear()
        self.resets += 1


def build_tiered_engine(*, looks: int = 0, generator: random.Random | None = None, **changes):
    """An engine whose evicted blocks go to a toy tier; the tier."""
    runner = SlotRunner()
    tier = ToyTier(runner, looks=looks, generator=generator)
    return build_engine(runner, journal=tier, offload=tier, **changes), tier
