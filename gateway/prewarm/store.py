"""Recent prompts that could be sent again, in memory only: bounded in bytes, number and age, hottest known by heat."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from math import exp2

from gateway.cache_wishes import CacheWishes
from gateway.wire import Endpoint
from router.core import Prompt

HALF_LIFE_SECONDS = 600.0
"""In which a prompt's heat halves: about as long as people leave a conversation before they come back to it."""

BLOCK_BYTES = 57
"""What a block of a chain costs: 16 bytes, their object, and a place in a list."""

LARGEST_SHARE = 1 / 16
"""Of the store's bytes, for one prompt: a few giants must not drive out everybody else."""


@dataclass(slots=True)
class KeptPrompt:
    """One prompt as it was forwarded: `body` carries its salt, `model` may be an adapter.

    `tenant`, `policy` and `session` are what its home depended on, `wishes` what workers are asked of their caches.
    `heat` was counted at `at` (monotonic seconds).
    """

    model: str
    endpoint: Endpoint
    body: bytes = field(repr=False)
    prompt: Prompt = field(repr=False)
    tenant: str
    policy: str | None
    session: str | None
    wishes: CacheWishes | None
    at: float
    heat: float = 1.0

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        prompt = self.prompt
        return len(self.body) + BLOCK_BYTES * (len(prompt.exact_blocks) + len(prompt.key_blocks))

    @property
    def tokens(self) -> int:
        """What of it a cache can hold: its full blocks."""
        return len(self.prompt.exact_blocks) * self.prompt.block_tokens

    def heat_at(self, now: float) -> float:
        """Requests for it and for what it goes on from, decayed by age."""
        return self.heat * exp2(-max(0.0, now - self.at) / HALF_LIFE_SECONDS)


class PromptStore:
    """The prompts by the last block of their exact chain, the least recently asked for first.

    A prompt that goes on from a kept one takes its place and its heat: of a conversation the latest turn is kept.
    Chains are seeded with salt, model and adapter, so no prompt ever takes the place of another tenant's.
    """

    def __init__(self, most_bytes: int, most_prompts: int, most_seconds: float) -> None:
        self._most_bytes = most_bytes
        self._most_prompts = most_prompts
        self._most_seconds = most_seconds
        self._kept: OrderedDict[bytes, KeptPrompt] = OrderedDict()
        self._bytes = 0

    def __len__(self) -> int:
        """How many prompts are kept."""
        return len(self._kept)

    def __iter__(self) -> Iterator[KeptPrompt]:
        """All of them, the least recently asked for first, as they are now."""
        return iter(tuple(self._kept.values()))

    @property
    def size_bytes(self) -> int:
        """About how much memory they take."""
        return self._bytes

    def has_room_for(self, size_bytes: int) -> bool:
        """Whether one prompt may take so much."""
        return size_bytes <= self._most_bytes * LARGEST_SHARE

    def keep(self, kept: KeptPrompt) -> bool:
        """Keep a prompt that was answered at `kept.at`; False for one too short to be cached, or too large."""
        chain, size_bytes = kept.prompt.exact_blocks, kept.size_bytes
        if not chain or not self.has_room_for(size_bytes):
            return False
        earlier = next((block for block in reversed(chain) if block in self._kept), None)
        if earlier is not None:
            kept.heat += self._drop(earlier).heat_at(kept.at)
        self._kept[chain[-1]] = kept
        self._bytes += size_bytes
        self.expire(kept.at)
        while self._bytes > self._most_bytes or len(self._kept) > self._most_prompts:
            self._drop(next(iter(self._kept)))
        return True

    def find(self, prompt: Prompt, body: bytes) -> KeptPrompt | None:
        """What is kept of this very prompt with this very body."""
        chain = prompt.exact_blocks
        kept = self._kept.get(chain[-1]) if chain else None
        return kept if kept is not None and kept.prompt is prompt and kept.body == body else None

    def asked_again(self, kept: KeptPrompt, now: float) -> None:
        """A kept prompt was answered again: it is as if it were kept anew, and costs less."""
        last_block = kept.prompt.exact_blocks[-1]
        # Another object: who was about to send the one before sees that it was asked again.
        self._kept[last_block] = replace(kept, at=now, heat=1.0 + kept.heat_at(now))
        self._kept.move_to_end(last_block)
        self.expire(now)

    def holds(self, kept: KeptPrompt) -> bool:
        """Whether this very prompt is still kept: not expired, driven out or gone on from."""
        return self._kept.get(kept.prompt.exact_blocks[-1]) is kept

    def expire(self, now: float) -> None:
        """Drop what is too old."""
        while self._kept:
            last_block, oldest = next(iter(self._kept.items()))
            if oldest.at > now - self._most_seconds:
                return
            self._drop(last_block)

    def drop_of(self, tenants: Collection[str]) -> None:
        """Drop every prompt of these tenants."""
        for last_block in [block for block, kept in self._kept.items() if kept.tenant in tenants]:
            self._drop(last_block)

    def clear(self) -> None:
        """Drop everything."""
        self._kept.clear()
        self._bytes = 0

    def check_integrity(self) -> None:
        """Raise AssertionError unless the bytes add up, the bounds hold and every prompt is filed under its end."""
        if self._bytes != sum(kept.size_bytes for kept in self._kept.values()):
            raise AssertionError("the store's bytes are not the sum of its prompts'")
        if self._bytes > self._most_bytes or len(self._kept) > self._most_prompts:
            raise AssertionError("the store is over its bound")
        if any(kept.prompt.exact_blocks[-1] != block for block, kept in self._kept.items()):
            raise AssertionError("a prompt is filed under another's block")

    def _drop(self, last_block: bytes) -> KeptPrompt:
        kept = self._kept.pop(last_block)
        self._bytes -= kept.size_bytes
        return kept
