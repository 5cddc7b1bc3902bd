"""Which kept prompts a worker should be given, and in which order: the most tokens, for the most who will ask."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gateway.prewarm.store import KeptPrompt

LOOKS_AT_ONCE = 8
"""Prompts that are looked at between two turns of the event loop: at most a millisecond over 64 workers."""


class Gain(NamedTuple):
    """What giving a prompt to its home would bring: tokens that it lacks, and who has most of them."""

    tokens: int
    source: str | None


NO_GAIN = Gain(0, None)


def joiner_gain(held: Mapping[str, int], target: str, peers: Collection[str], kept: KeptPrompt, *, lost: bool) -> Gain:
    """For a worker that joined: what others hold and it does not.

    With `lost` (it restarted, and what it held is gone) also what nobody holds: its prompts will come home to it.
    """
    source = max((name for name in held if name in peers), key=lambda name: (held[name], name), default=None)
    reach = kept.tokens if lost else held.get(source or "", 0)
    return Gain(max(0, reach - held.get(target, 0)), source)


def leaver_gain(held: Mapping[str, int], leaver: str, target: str, stay: Collection[str]) -> Gain:
    """For a prompt at a worker that will leave: what would be lost with it, if its new home takes it over."""
    elsewhere = max((held[name] for name in held if name in stay), default=0)
    only_there = held.get(leaver, 0) - elsewhere
    return Gain(held.get(leaver, 0) - held.get(target, 0) if only_there > 0 else 0, leaver)


class Plan:
    """Prompts to be given, the most valuable first.

    `gain` is asked anew when a prompt's turn comes, for others with the same beginning may have been given meanwhile.
    """

    def __init__(
        self, found: Iterable[tuple[KeptPrompt, Gain]], gain: Callable[[KeptPrompt], Gain], now: float
    ) -> None:
        """`found` are the prompts that bring something, with what they bring at `now`."""
        self._gain = gain
        # All heats are those of one moment: they fade alike, so what order they give does not change with time.
        self._moment = now
        self._heap = [(-self._value(kept, gain), number, kept) for number, (kept, gain) in enumerate(found)]
        self._serial = len(self._heap)
        heapify(self._heap)

    def __len__(self) -> int:
        """How many are left."""
        return len(self._heap)

    async def next(self) -> tuple[KeptPrompt, Gain] | None:
        """The most valuable that still brings something; None when there is none. The loop turns between looks."""
        for looks in itertools.count(1):
            if not self._heap:
                break
            if looks % LOOKS_AT_ONCE == 0:
                await asyncio.sleep(0)
            _, _, kept = heappop(self._heap)
            gain = self._gain(kept)
            if gain.tokens <= 0:
                continue
            if not self._heap or self._value(kept, gain) >= -self._heap[0][0]:
                return kept, gain
            self._push(kept, gain)
        return None

    def again(self, kept: KeptPrompt) -> None:
        """Put back what was interrupted."""
        self._push(kept, self._gain(kept))

    def _value(self, kept: KeptPrompt, gain: Gain) -> float:
        return kept.heat_at(self._moment) * gain.tokens

    def _push(self, kept: KeptPrompt, gain: Gain) -> None:
        self._serial += 1
        heappush(self._heap, (-self._value(kept, gain), self._serial, kept))
