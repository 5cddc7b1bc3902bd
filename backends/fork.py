"""Several answers to one prompt: one computes it, the others share its blocks and copy only the last one."""

from __future__ import annotations

from backends.prefix_cache import PrefixCache
from backends.sequence import Sequence
from backends.types import BlockCopy


class Forks:
    """Gives a child its parent's prompt blocks, and keeps the copies that the next step must carry out.

    The block that holds the prompt's last token is the child's own: it computes that token again, for a draw of its
    own, and goes on writing there. A shared block is never written. Both ends of a copy are held until the step that
    carried it out is over; the parent may end or be preempted before.
    """

    __slots__ = ("_block_tokens", "_cache", "_copies")

    def __init__(self, cache: PrefixCache, block_tokens: int) -> None:
        self._cache = cache
        self._block_tokens = block_tokens
        self._copies: dict[Sequence, BlockCopy] = {}

    @property
    def copies(self) -> tuple[BlockCopy, ...]:
        """What the next step has to copy before it computes anything."""
        return tuple(self._copies.values()) if self._copies else ()

    @property
    def held_blocks(self) -> list[int]:
        """The sources of these copies, each held once for it."""
        return [copy.source for copy in self._copies.values()]

    def start(self, parent: Sequence, child: Sequence, *, spare_blocks: int) -> bool:
        """Make the child ready to run from the parent's computed prompt; False, and nothing done, without room."""
        pool, last = self._cache.pool, parent.prompt_tokens - 1
        if 1 + spare_blocks > pool.available(child.partition):
            return False
        shared = last // self._block_tokens
        source = parent.block_ids[shared]
        pool.touch(parent.block_ids[: shared + 1], child.partition, hits=False)  # nobody asked for them again
        (own,) = pool.get_new_blocks(1, child.partition)
        child.block_ids = [*parent.block_ids[:shared], own]
        child.root_key, child.block_keys = (
            parent.root_key,
            parent.block_keys[: parent.prompt_tokens // self._block_tokens],
        )
        child.registered_blocks = child.found_blocks = min(shared, parent.registered_blocks)
        child.computed_tokens = last
        child.cached_tokens, child.prompt_scores = parent.cached_tokens, parent.prompt_scores
        self._copies[child] = BlockCopy(source, own)
        return True

    def forget(self, child: Sequence) -> None:
        """A child runs no more; if its copy was not made yet, nobody needs it."""
        copy = self._copies.pop(child, None)
        if copy is not None:
            self._cache.pool.free_blocks([copy.source])

    def carried_out(self) -> None:
        """The step with these copies is over."""
        if self._copies:
            self._cache.pool.free_blocks(self.held_blocks)
            self._copies.clear()


def make_family(siblings: list[Sequence]) -> None:
    """Make the first of these the parent of the others."""
    parent, *children = siblings
    parent.parent, parent.children = None, children
    for child in children:
        child.parent = parent
