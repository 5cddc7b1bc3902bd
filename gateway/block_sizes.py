"""Which blocks a model's prompts are hashed in: what fits the workers' own cache blocks."""

from __future__ import annotations

from collections.abc import Iterable
from math import lcm

LEAST_ROUTING_BLOCK_TOKENS = 64
LEAST_KNOWN_BLOCK_TOKENS = 16
MOST_KNOWN_BLOCK_TOKENS = 512
DEFAULT_WORKER_BLOCK_TOKENS = 16


def routing_block_tokens(worker_block_tokens: int | None) -> int:
    """The least multiple of the worker's block that is at least 64 tokens."""
    block = worker_block_tokens or DEFAULT_WORKER_BLOCK_TOKENS
    return -(-LEAST_ROUTING_BLOCK_TOKENS // block) * block


def known_block_tokens(block_sizes: Iterable[int | None]) -> int | None:
    """The routing block where some of a model's workers publish events: their own block, or one that holds theirs.

    Blocks of a few tokens (SGLang's default is 1) are taken together. None where nobody publishes, and where sizes
    have no reasonable multiple in common.
    """
    sizes = {size for size in block_sizes if size}
    block = lcm(*sizes)
    block *= -(-LEAST_KNOWN_BLOCK_TOKENS // block)
    return block if sizes and block <= MOST_KNOWN_BLOCK_TOKENS else None
