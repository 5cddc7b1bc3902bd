"""The chains of requests that were sent to one worker and that its events have not shown yet: a counted trie."""

from __future__ import annotations

from collections.abc import Sequence

from router.chain_tree import common_blocks


class _Run:
    """Blocks that the same `requests` requests run through."""

    __slots__ = ("blocks", "children", "requests")

    def __init__(self, blocks: list[bytes], requests: int) -> None:
        self.blocks = blocks
        self.requests = requests
        self.children: dict[bytes, _Run] = {}


class PendingChains:
    """A bag of chains, asked for the longest prefix that any of them shares; what is added is removed once."""

    __slots__ = ("_chains", "_root")

    def __init__(self) -> None:
        self._root = _Run([], 0)
        self._chains = 0

    def __len__(self) -> int:
        """How many chains there are."""
        return self._chains

    def add(self, chain: Sequence[bytes]) -> None:
        """Put in one chain, which is not empty."""
        self._chains += 1
        run, position, length = self._root, 0, len(chain)
        while position < length:
            child = run.children.get(chain[position])
            if child is None:
                run.children[chain[position]] = _Run(list(chain[position:]), 1)
                return
            common = common_blocks(child.blocks, chain, position)
            if common < len(child.blocks):
                child = _split(run, child, common)
            child.requests += 1
            run, position = child, position + common

    def remove(self, chain: Sequence[bytes]) -> None:
        """Take out a chain that was put in."""
        self._chains -= 1
        run, position, length = self._root, 0, len(chain)
        while position < length:
            child = run.children[chain[position]]
            child.requests -= 1
            if not child.requests:
                del run.children[chain[position]]
                return
            run, position = child, position + len(child.blocks)

    def match(self, chain: Sequence[bytes]) -> int:
        """How many leading blocks of `chain` some chain in here begins with."""
        children, position, length = self._root.children, 0, len(chain)
        while position < length:
            run = children.get(chain[position])
            if run is None:
                return position
            common = common_blocks(run.blocks, chain, position)
            position += common
            if common < len(run.blocks):
                return position
            children = run.children
        return position

    def check_integrity(self) -> None:
        """Raise AssertionError unless every run is used, and by at least as many as all that follow it."""
        waiting = list(self._root.children.values())
        if sum(run.requests for run in waiting) != self._chains:
            raise AssertionError("the count of pending chains is wrong")
        while waiting:
            run = waiting.pop()
            if run.requests < 1 or run.requests < sum(child.requests for child in run.children.values()):
                raise AssertionError("a run of pending blocks is used by too few requests")
            waiting += run.children.values()


def _split(parent: _Run, run: _Run, count: int) -> _Run:
    """Cut a run after its first `count` blocks; returns the upper part."""
    upper = _Run(run.blocks[:count], run.requests)
    parent.children[upper.blocks[0]] = upper
    del run.blocks[:count]
    upper.children[run.blocks[0]] = run
    return upper
