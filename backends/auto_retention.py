"""The automatic frequency rule: what is hit often within a short time is pinned for a while."""

from __future__ import annotations

from backends.free_queue import Block

HALF_LIFE_SECONDS = 60.0
HOT_HEAT = 2.25
"""Three hits within 50 seconds, or a hit every 50 seconds."""

PIN_SECONDS = 300.0
"""A pause of some minutes in a conversation, or between two bursts of one application, is bridged."""


def became_hot(block: Block, now: float) -> bool:
    """Count a hit at `now`, and say whether the block is hot: hits, each worth half as much after a minute.

    The heat lies in the block and ends with its content, so nothing grows. It decays instead of being counted in
    windows because a chain's head must never be colder than its tail: every hit on the tail is one on the head.
    """
    block.heat = 1.0 + block.heat * 0.5 ** ((now - block.heat_seconds) / HALF_LIFE_SECONDS)
    block.heat_seconds = now
    return block.heat >= HOT_HEAT
