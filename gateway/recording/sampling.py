"""Which requests a recording takes: whole families of prompts or none of them, the same ones everywhere.

Requests taken at random would tear conversations apart, and what they share with them. So the adaptive key decides,
the first block of a prompt that is not common to much of the traffic: prompts that have it in common are a family.
"""

from __future__ import annotations

from typing import Final

from xxhash import xxh3_64_intdigest

_SEED: Final = 1
"""Other than the ring's: a sample must not be the families of some workers."""


def in_sample(key: bytes, share: float) -> bool:
    """Whether the family with this adaptive key is among the share (0 to 1) that is taken."""
    # Not done: keeping the choice when traffic makes another block the key. It changed no figure of decision 12.
    return xxh3_64_intdigest(key, seed=_SEED) < share * 2**64
