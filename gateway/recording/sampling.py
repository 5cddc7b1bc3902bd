"""Which requests a recording takes: whole families of prompts or none of them, the same ones everywhere.

Requests taken at random would tear conversations apart, and what they share with them. So the choice is made by the
adaptive key, the first block of a prompt that is not common to much of the traffic, and kept for every prompt that
has this block, also when traffic has made another block the key since.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from xxhash import xxh3_64_intdigest

REMEMBERED_FAMILIES: Final = 2**16


class Sampler:
    """Takes the given share (0 to 1) of the families."""

    def __init__(self, share: float, remembered_families: int = REMEMBERED_FAMILIES) -> None:
        self._below = share * 2**64
        self._bound = remembered_families
        self._families: OrderedDict[bytes, bool] = OrderedDict()

    def takes(self, key_blocks: Sequence[bytes], key: bytes) -> bool:
        """Whether the prompt with these blocks and this adaptive key is in the sample."""
        families = self._families
        # The deepest family wins: a block nearer to the root may have become rare, and a key, only since.
        family = next((block for block in reversed(key_blocks) if block in families), key)
        taken = families.get(family)
        if taken is None:
            taken = families[family] = xxh3_64_intdigest(family, seed=1) < self._below
            if len(families) > self._bound:
                families.popitem(last=False)
        else:
            families.move_to_end(family)
        return taken
