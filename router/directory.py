"""What one worker probably holds: a bounded LRU over exact blocks, asked for the longest cached prefix.

Invariant (prefix closure): a block is here only if its whole prefix is. Chains are inserted leaf first, so roots are
the newest, and eviction takes ends before beginnings; a chain longer than the bound keeps its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.chain_tree import ChainTree, Node, common_blocks


class Directory:
    """A belief about one worker's prefix cache, at most `bound_blocks` blocks of it."""

    __slots__ = ("_tree", "bound_blocks", "evicted_blocks")

    def __init__(self, bound_blocks: int) -> None:
        self._tree = ChainTree()
        self.bound_blocks = bound_blocks
        self.evicted_blocks = 0

    def __len__(self) -> int:
        """How many blocks are believed to be held."""
        return self._tree.blocks

    def match(self, chain: Sequence[bytes]) -> int:
        """Length in blocks of the longest held prefix of `chain`; changes nothing, not even recency."""
        children, position, length = self._tree.root.children, 0, len(chain)
        while position < length:
            node = children.get(chain[position])
            if node is None:
                return position
            blocks = node.blocks
            end = position + len(blocks)
            if end > length or chain[end - 1] != blocks[-1]:
                return position + common_blocks(blocks, chain, position)
            children, position = node.children, end
        return position

    @property
    def oldest_at(self) -> float:
        """When that was last inserted which goes first; 0 of nothing."""
        oldest = next(self._tree.nodes(), None)
        return 0.0 if oldest is None else oldest.weight

    def insert(self, chain: Sequence[bytes], now: float = 0.0) -> int:
        """Believe that the worker will hold all of `chain`, as its most recent; returns how many blocks were new.

        `now` is kept, for `oldest_at`.
        """
        kept = chain if len(chain) <= self.bound_blocks else chain[: self.bound_blocks]
        path, matched = self._descend(kept)
        fresh = len(kept) - matched
        if fresh:
            self._append(path, list(kept[matched:]))
        tree = self._tree
        tree.stamp(path, now)
        if len(path) > 1:
            self._join(path)
        if tree.blocks > self.bound_blocks:
            self.evicted_blocks += tree.trim(self.bound_blocks)
        return fresh

    def resize(self, bound_blocks: int) -> None:
        """Change the bound; a smaller one drops the oldest blocks now."""
        self.bound_blocks = bound_blocks
        self.evicted_blocks += self._tree.trim(bound_blocks)

    def clear(self) -> None:
        """Believe that the worker holds nothing; the bound stays."""
        self._tree.clear()

    def check_integrity(self) -> None:
        """Raise AssertionError unless the bound holds and the tree is sound."""
        if self._tree.blocks > self.bound_blocks:
            raise AssertionError("a directory holds more than its bound")
        self._tree.check_integrity()

    def _descend(self, chain: Sequence[bytes]) -> tuple[list[Node], int]:
        """The nodes that `chain` runs through, the last one cut to fit, and how many blocks they hold."""
        tree, path, position, length = self._tree, [], 0, len(chain)
        node = tree.root
        while position < length:
            child = node.children.get(chain[position])
            if child is None:
                break
            node, size = child, len(child.blocks)
            if position + size > length or chain[position + size - 1] != child.blocks[-1]:
                size = common_blocks(child.blocks, chain, position)
                node = tree.split(child, size) if size < len(child.blocks) else child
            path.append(node)
            position += size
            if node is not child:
                break
        return path, position

    def _append(self, path: list[Node], blocks: list[bytes]) -> None:
        if path and not path[-1].children:
            self._tree.extend(path[-1], blocks)
        else:
            path.append(self._tree.add(path[-1] if path else self._tree.root, blocks))

    def _join(self, path: list[Node]) -> None:
        """Merge neighbours that nothing branches between, so that long conversations stay few nodes."""
        upper = path[0] if path else self._tree.root
        for node in path[1:]:
            if len(upper.children) == 1:
                self._tree.absorb(upper, node)
            else:
                upper = node
