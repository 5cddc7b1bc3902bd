"""Names for a trace's blocks: 16 bytes each, the same object for the same block all over the trace."""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from xxhash import xxh3_128_digest


class BlockNames(dict[int, bytes]):
    """Names by a trace's own number of a block, for traces whose equal numbers mean equal prefixes."""

    def __missing__(self, number: int) -> bytes:
        name = self[number] = xxh3_128_digest(b"block %d" % number)
        return name


class ChainNames:
    """Names by what a block holds and what stands before it, for traces that tell contents."""

    def __init__(self) -> None:
        self._names: dict[tuple[bytes, Hashable], bytes] = {}

    def follow(self, parent: bytes, contents: Iterable[Hashable]) -> list[bytes]:
        """The names of blocks with these contents, one after the other; b"" stands before the first."""
        names, known = [], self._names
        for content in contents:
            name = known.get((parent, content))
            if name is None:
                name = known[parent, content] = xxh3_128_digest(b"chain %d" % len(known))
            names.append(name)
            parent = name
        return names
