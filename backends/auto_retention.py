"""The automatic frequency rule: what is hit often within a short time is pinned for a while."""

from __future__ import annotations

from backends.free_queue import Block

HOT_HITS = 3
WINDOW_SECONDS = 60.0
PIN_SECONDS = 300.0
"""A pause of some minutes in a conversation, or between two bursts of one application, is bridged."""


def became_hot(block: Block, now: float) -> bool:
    """Count a hit at `now`, and say whether it was the third or later within a minute of the first.

    The counts lie in the block, and end with its content: nothing grows.
    """
    if now - block.hot_since > WINDOW_SECONDS:
        block.hot_since = now
        block.recent_hits = 0
    block.recent_hits += 1
    return block.recent_hits >= HOT_HITS
