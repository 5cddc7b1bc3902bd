"""What a prefix cache must hold, in the plainest way: block id to content; and what its journal may say of it."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from backends.hashing import BlockHasher, BlockKey
from backends.retention import Retention

Content = tuple[str | None, tuple[int, ...]]
"""What a cached block stands for: the salt, and all tokens up to the block's end."""

SALTS = (None, "s")


class CacheModel:
    """A journal that checks what it is told, and a tier that keeps what is overwritten.

    The driver says what was computed, taken and pinned; the pool says what was stored, overwritten and removed. Both
    must agree: a content is announced exactly while some block holds it, and no live pin is overwritten.
    """

    def __init__(self) -> None:
        self.content: dict[int, Content] = {}
        self.announced: set[Content] = set()
        self.kept: set[Content] = set()
        self.pinned_until: dict[int, float] = {}
        self.now = 0.0
        self._salts = {BlockHasher(1).root(cache_salt=salt).tokens: salt for salt in SALTS}

    def stored(self, key: BlockKey, block_id: int) -> None:
        content = self.content_of(key)
        assert content not in self.announced, "a content that is stored already was stored"
        self.announced.add(content)

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        assert self.content[block_id] == self.content_of(key), "a block was overwritten that holds something else"
        assert self.pinned_until.get(block_id, self.now) <= self.now, "a pinned block was overwritten"
        self.kept.add(self.content[block_id])
        self.taken([block_id])

    def removed(self, key: BlockKey) -> None:
        content = self.content_of(key)
        assert content in self.announced, "a content that nobody holds was removed"
        self.announced.remove(content)

    def cleared(self) -> None:
        self.announced.clear()

    def content_of(self, key: BlockKey) -> Content:
        tokens: list[bytes] = []
        while key.parent is not None:
            tokens.append(key.tokens)
            key = key.parent
        return self._salts[key.tokens], tuple(array("I", b"".join(reversed(tokens))))

    def taken(self, block_ids: Iterable[int]) -> None:
        """These blocks were given to somebody, or forgotten."""
        for block_id in block_ids:
            self.content.pop(block_id, None)
            self.pinned_until.pop(block_id, None)

    def clear(self) -> None:
        """Everything was forgotten; the tier keeps what it has."""
        self.content.clear()
        self.pinned_until.clear()

    def note_pins(self, blocks, until: float) -> None:
        """These blocks were asked to be pinned; the pool may have made some of them priorities."""
        for block in blocks:
            if block.retention is Retention.PIN and block.key is not None:
                self.pinned_until[block.block_id] = max(until, self.pinned_until.get(block.block_id, until))

    def check(self, block_tokens: int, *, orphans: bool) -> None:
        """The announced contents are the cached ones; without `orphans` every parent is cached too."""
        known = set(self.content.values())
        assert self.announced == known, "the journal's contents are not the cached ones"
        for salt, tokens in () if orphans else known:
            assert len(tokens) == block_tokens or (salt, tokens[:-block_tokens]) in known, "a cached block is an orphan"
