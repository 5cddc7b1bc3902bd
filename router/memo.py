"""Remembers what prefixes of earlier prompts came to, so that a further turn costs its new text only.

A prefix is a chain of segments; every node knows its parent and only its own blocks, so a conversation of n turns
takes memory for its text once, not n times. Use touches a node after its children, never before: the least recently
used node is then always a leaf, and nothing is evicted that a remembered node still needs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

NODE_BYTES = 400
"""A node's own share of memory: its tuple, its key, its entry in the table."""

BLOCK_BYTES = 60


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """The state of both chains' hashing after one more segment.

    `key` identifies seed and text up to here. `blocks` are the full blocks that this segment completed, `last` is the
    hash of the newest block of all (the seed before there is one), `tail` the packed tokens after it, and `tokens`
    counts all tokens up to here.
    """

    key: bytes
    parent: Node | None
    blocks: tuple[bytes, ...]
    last: bytes
    tail: bytes
    tokens: int

    @property
    def size_bytes(self) -> int:
        """What the node takes of the memo's bound, about."""
        return NODE_BYTES + BLOCK_BYTES * len(self.blocks) + len(self.tail)

    def all_blocks(self) -> list[bytes]:
        """Every full block from the prompt's start."""
        runs: list[tuple[bytes, ...]] = []
        node: Node | None = self
        while node is not None:
            runs.append(node.blocks)
            node = node.parent
        return [block for run in reversed(runs) for block in run]


class PrefixMemo:
    """Nodes by key, least recently used first, bounded in bytes.

    Every method takes `lock` for some microseconds: pass a `threading.Lock` when several threads build prompts, and
    leave it out when one does.
    """

    def __init__(self, bound_bytes: int, lock: AbstractContextManager[Any] | None = None) -> None:
        self.bound_bytes = bound_bytes
        self.held_bytes = 0
        self._lock = nullcontext() if lock is None else lock
        self._nodes: OrderedDict[bytes, Node] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def deepest(self, keys: Sequence[bytes]) -> Node | None:
        """The node of the longest remembered prefix, given the keys of all prefixes, shortest first."""
        with self._lock:
            found = None
            for key in keys:
                node = self._nodes.get(key)
                if node is None:
                    break
                found = node
            self._touch(found)
            return found

    def touch(self, keys: Sequence[bytes]) -> None:
        """The nodes of these keys, such as are remembered, were used again."""
        with self._lock:
            for key in keys:
                self._touch(self._nodes.get(key))

    def keep(self, leaf: Node) -> None:
        """Remember `leaf` and its ancestors; what was not used for longest goes when the bound is passed."""
        with self._lock:
            self._touch(leaf)
            while self.held_bytes > self.bound_bytes:
                _, node = self._nodes.popitem(last=False)
                self.held_bytes -= node.size_bytes

    def check_integrity(self) -> None:
        """AssertionError unless sizes add up, every parent is remembered, and is newer than its children."""
        with self._lock:
            age = {key: place for place, key in enumerate(self._nodes)}
            held_bytes = sum(node.size_bytes for node in self._nodes.values())
            broken = [n for n in self._nodes.values() if n.parent and age.get(n.parent.key, -1) < age[n.key]]
        if held_bytes != self.held_bytes or held_bytes > self.bound_bytes or broken:
            raise AssertionError(f"memo: {held_bytes} of {self.held_bytes} bytes, {len(broken)} nodes out of order")

    def _touch(self, node: Node | None) -> None:
        """Make `node` and its ancestors the newest, the ancestors last."""
        while node is not None:
            if node.key in self._nodes:
                self._nodes.move_to_end(node.key)
            else:
                self._nodes[node.key] = node
                self.held_bytes += node.size_bytes
            node = node.parent
