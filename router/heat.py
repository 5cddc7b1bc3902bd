"""How popular key prefixes are, decayed over requests, so that a prefix too hot to have one home is passed over.

Counts halve every `half_life_requests` requests of the model. A chain is counted down to the first part that is far
from hot; what lies deeper cannot matter before that part warms up. Memory is bounded in blocks; the least recently
counted ends go first, and what is not seen for thousands of requests was cold anyway.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.chain_tree import ChainTree, Node, common_blocks

HALF_LIFE_REQUESTS = 2000.0
BOUND_BLOCKS = 262_144
"""About 20 MB: the cold tails of the last thousands of requests, more than any hot prefix waits for its next one."""

LEAST_REQUESTS = 32
"""A prefix of so many (decayed) requests is known well enough to weigh what follows it. One of fewer is passed over
where it has several branches.
"""

LEAST_BRANCHES = 3
"""What follows a young prefix that several conversations share. A lone conversation has two at most: where a turn
ended, its last partial block, and the block that the next turn made of it; short turns make some more.
"""

LEAST_LEAVING = 1 / 8
"""The part of LEAST_REQUESTS that must leave the main line behind a prefix, at the least, for it to be passed over.

Where nearly all go on to the same blocks, those are one conversation, or one text with the prefix. Looking further
down would spread nobody, and would give a conversation on a quiet fleet another home at every turn.
"""

MANY_BRANCHES = 16
"""So many need no weighing: no conversation's turns end so often within one block."""

COLD_FRACTION = 1 / 8
"""Parts below this fraction of the share asked for are not followed deeper."""

_RESCALE_AT = 1e100


class Heat:
    """Decayed popularity of key blocks of one model."""

    __slots__ = ("_bound_blocks", "_growth", "_least_requests", "_step", "_total", "_tree")

    def __init__(
        self,
        half_life_requests: float = HALF_LIFE_REQUESTS,
        bound_blocks: int = BOUND_BLOCKS,
        least_requests: float = LEAST_REQUESTS,
    ) -> None:
        self._tree = ChainTree()
        self._least_requests = least_requests
        self._bound_blocks = bound_blocks
        # Counting with growing steps is the same as decaying all counts, and touches only one chain.
        self._growth = 2.0 ** (1.0 / half_life_requests)
        self._step = 1.0
        self._total = 0.0

    def __len__(self) -> int:
        """How many blocks are being counted."""
        return self._tree.blocks

    def share(self, chain: Sequence[bytes]) -> float:
        """The decayed share, 0 … 1, of requests that began with all of `chain`."""
        node, position = self._tree.root, 0
        while position < len(chain):
            child = node.children.get(chain[position])
            if child is None or common_blocks(child.blocks, chain, position) < min(
                len(child.blocks), len(chain) - position
            ):
                return 0.0
            node, position = child, position + len(child.blocks)
        return node.weight / max(1.0, self._total) if chain else 0.0

    def adaptive_key(self, chain: Sequence[bytes], share: float) -> bytes:
        """The first block of `chain` (not empty) that fewer than `share` of the requests reach.

        Before any popularity is known that is the first block. Popular blocks above it from which nearly all requests
        go on to it are not passed over: the first of these is the key.
        """
        warm, hot = share * self._total, self._least_requests * self._step
        children, position, length, start = self._tree.root.children, 0, len(chain), 0
        while position < length:
            node = children.get(chain[position])
            if node is None or node.weight < warm or (node.weight < hot and len(node.children) < LEAST_BRANCHES):
                break
            size = len(node.blocks)
            if position + size > length or chain[position + size - 1] != node.blocks[-1]:
                break
            children, position = node.children, position + size
            if _branches(node, warm if node.weight < hot else max(warm, LEAST_LEAVING * hot)):
                start = position
        return chain[min(start, length - 1)]

    def count(self, chain: Sequence[bytes], share: float) -> None:
        """Count one request; `share` is the one that keys are chosen by."""
        self._step *= self._growth
        self._total += self._step
        path = self._count_known(chain, share * COLD_FRACTION * self._total)
        tree = self._tree
        tree.touch(path)
        if tree.blocks > self._bound_blocks:
            tree.trim(self._bound_blocks)
        if self._step > _RESCALE_AT:
            self._rescale()

    def check_integrity(self) -> None:
        """Raise AssertionError unless shares fall along every chain and the tree is sound."""
        self._tree.check_integrity()
        for node in self._tree.nodes():
            above = self._total if node.parent is self._tree.root or node.parent is None else node.parent.weight
            if node.weight > above * (1 + 1e-9):
                raise AssertionError("a longer prefix is more popular than a shorter one")

    def _count_known(self, chain: Sequence[bytes], cold: float) -> list[Node]:
        tree, path, position, length = self._tree, [], 0, len(chain)
        node = tree.root
        while position < length:
            child = node.children.get(chain[position])
            if child is None:
                path.append(tree.add(node, list(chain[position:]), self._step))
                break
            node, size = child, len(child.blocks)
            if position + size > length or chain[position + size - 1] != child.blocks[-1]:
                size = common_blocks(child.blocks, chain, position)
                node = tree.split(child, size)
            node.weight += self._step
            path.append(node)
            if node.weight < cold:
                break
            position += size
        return path

    def _rescale(self) -> None:
        for node in self._tree.nodes():
            node.weight /= self._step
        self._total /= self._step
        self._step = 1.0


def _branches(node: Node, least_weight: float) -> bool:
    """Whether enough requests leave the main line behind a prefix, so that passing it over spreads them.

    One that nothing follows is asked for again and again as it is: that spreads nobody, and needs more homes.
    """
    children = node.children
    if len(children) > MANY_BRANCHES:
        return True
    return bool(children) and node.weight - max([child.weight for child in children.values()]) >= least_weight
