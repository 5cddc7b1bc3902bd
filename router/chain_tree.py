"""A compressed trie over block chains: the one structure behind the directory and the heat of prefixes.

A node holds a run of blocks that have always been touched together, so a chain of 512 blocks is usually one node,
and what is done to a chain costs its few nodes, not its blocks. Nodes are kept in order of touch, ancestors always
newer than their descendants; the oldest node therefore never has children, and taking blocks off its end is exactly
what a block-wise LRU does that is filled leaf first. Equal hashes of unequal blocks (a collision) misplace a match
and cannot break the tree.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence


class Node:
    """A run of blocks below `parent`; `weight` is for the owner of the tree, and a split copies it."""

    __slots__ = ("blocks", "children", "parent", "weight")

    def __init__(self, blocks: list[bytes], parent: Node | None, weight: float = 0.0) -> None:
        self.blocks = blocks
        self.parent = parent
        self.weight = weight
        self.children: dict[bytes, Node] = {}


class ChainTree:
    """Chains merged by common prefix, the least recently touched ends removable first."""

    __slots__ = ("_order", "blocks", "root")

    def __init__(self) -> None:
        self.root = Node([], None)
        self.blocks = 0
        self._order: OrderedDict[Node, None] = OrderedDict()

    def __len__(self) -> int:
        """How many nodes there are, the root not counted."""
        return len(self._order)

    def nodes(self) -> Iterator[Node]:
        """All nodes, the least recently touched first."""
        return iter(self._order)

    def split(self, node: Node, count: int) -> Node:
        """Cut a node after its first `count` blocks (0 < count < its length) and return the new upper part.

        The lower part keeps the node's identity, children and age; the upper part is the newest until touched.
        """
        parent = node.parent or self.root
        upper = Node(node.blocks[:count], parent, node.weight)
        parent.children[upper.blocks[0]] = upper
        del node.blocks[:count]
        node.parent = upper
        upper.children[node.blocks[0]] = node
        self._order[upper] = None
        return upper

    def add(self, parent: Node, blocks: list[bytes], weight: float = 0.0) -> Node:
        """Hang a new newest leaf of `blocks` (not empty, not a child of `parent` yet) below `parent`."""
        leaf = Node(blocks, parent, weight)
        parent.children[blocks[0]] = leaf
        self._order[leaf] = None
        self.blocks += len(blocks)
        return leaf

    def extend(self, leaf: Node, blocks: Sequence[bytes]) -> None:
        """Lengthen a node that has no children."""
        leaf.blocks.extend(blocks)
        self.blocks += len(blocks)

    def absorb(self, node: Node, child: Node) -> None:
        """Make `node` and its only child one node; both must just have been touched together."""
        node.blocks.extend(child.blocks)
        node.children = child.children
        for grandchild in child.children.values():
            grandchild.parent = node
        del self._order[child]

    def touch(self, path: Sequence[Node]) -> None:
        """Make a path (root side first) the newest, its root side newest of all."""
        move = self._order.move_to_end
        for node in reversed(path):
            move(node)

    def stamp(self, path: Sequence[Node], weight: float) -> None:
        """`touch`, and give every node of the path this weight."""
        move = self._order.move_to_end
        for node in reversed(path):
            move(node)
            node.weight = weight

    def drop_oldest(self, blocks: int) -> int:
        """Remove at most `blocks` blocks off the end of the oldest node; returns how many went."""
        node = next(iter(self._order), None)
        if node is None:
            return 0
        gone = min(blocks, len(node.blocks))
        if gone == len(node.blocks):
            parent = node.parent or self.root
            del parent.children[node.blocks[0]]
            del self._order[node]
        else:
            del node.blocks[-gone:]
        self.blocks -= gone
        return gone

    def trim(self, bound_blocks: int) -> int:
        """Remove the oldest ends until at most `bound_blocks` are left; returns how many went."""
        before = self.blocks
        while self.blocks > max(0, bound_blocks):
            self.drop_oldest(self.blocks - max(0, bound_blocks))
        return before - self.blocks

    def clear(self) -> None:
        """Forget everything; the links are cut, so that memory comes back now and not when cycles are next sought."""
        for node in self._order:
            node.parent = None
            node.children.clear()
        self.root = Node([], None)
        self._order.clear()
        self.blocks = 0

    def check_integrity(self) -> None:
        """Raise AssertionError unless counts, links and the order of ages agree."""
        age = {node: place for place, node in enumerate(self._order)}
        if sum(len(node.blocks) for node in age) != self.blocks:
            raise AssertionError("the tree's block count is wrong")
        for node, place in age.items():
            parent = node.parent
            if parent is None or parent.children.get(node.blocks[0]) is not node:
                raise AssertionError("a node is not its parent's child")
            if parent is not self.root and age[parent] < place:
                raise AssertionError("an ancestor is older than its descendant")
        linked = sum(len(node.children) for node in age) + len(self.root.children)
        if linked != len(age):
            raise AssertionError("a child is not in the order of ages")


def common_blocks(blocks: Sequence[bytes], chain: Sequence[bytes], position: int) -> int:
    """How many blocks of a node agree with `chain` from `position` on; the first is known to agree.

    Chained hashes agree up to one point and nowhere after it, so this is a binary search.
    """
    agree, differ = 1, min(len(blocks), len(chain) - position) + 1
    while differ - agree > 1:
        middle = (agree + differ) // 2
        if blocks[middle - 1] == chain[position + middle - 1]:
            agree = middle
        else:
            differ = middle
    return agree
