"""`--block-size auto`: the block size at which a recorded load saves most."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from backends.request_profile import ProfiledRequest, read_profile

logger = logging.getLogger("homing.worker")

AUTO = "auto"
"""The option's value for which a size is chosen."""

BLOCK_SIZES = (8, 16, 32, 64)

BLOCK_COST_TOKENS = 0.03
"""What naming, finding, holding and giving back a block costs, in tokens of prefill: 3 µs (bench/engine_overhead.py, a
cold request of 512 blocks) where 10,000 tokens are computed in a second.
"""

LEAST_SLOT_VALUE = 0.1
"""An empty slot at the end of a sequence is worth so many tokens at least, even if nothing is ever reused: it keeps
somebody from running."""


class Estimate(NamedTuple):
    """One block size, per request of the profile: tokens reused, slots left empty, blocks handled, and the balance."""

    block_tokens: int
    reused_tokens: float
    empty_slots: float
    blocks: float
    saved_tokens: float


class Choice(NamedTuple):
    """The block size, why in a sentence, and what was compared, smallest first."""

    block_tokens: int
    reason: str
    estimates: tuple[Estimate, ...]


def choose_block_size(profile: Sequence[ProfiledRequest]) -> Choice:
    """Weigh reuse rounded down to whole blocks against half-empty last blocks and work per block, in prefill tokens.

    An empty slot is worth the tokens that would be reused from it if it held content: the profile's share of reused
    tokens. Of equal balances the larger block wins. ValueError for an empty profile.
    """
    if not profile:
        raise ValueError("no request was recorded, so no block size can be chosen")
    prompt_tokens = sum(request.prompt_tokens for request in profile)
    slot_value = max(LEAST_SLOT_VALUE, sum(request.reused_tokens for request in profile) / max(1, prompt_tokens))
    estimates = tuple(_estimate(profile, size, slot_value) for size in BLOCK_SIZES)
    best = max(reversed(estimates), key=lambda estimate: estimate.saved_tokens)
    return Choice(best.block_tokens, _reason(profile, best, estimates), estimates)


def resolve_block_size(asked: int | str, path: Path | None) -> int:
    """The block size that `--block-size` and `--request-profile` ask for; a choice is logged with its reason.

    ValueError with a sentence for what cannot be, OSError when the profile cannot be read.
    """
    if asked != AUTO:
        if path is not None:
            raise ValueError(f"--request-profile is for --block-size {AUTO}, not for {asked}")
        return int(asked)
    if path is None:
        raise ValueError(
            f"--block-size {AUTO} needs --request-profile PATH; a worker started with --record-request-profile PATH "
            "writes one"
        )
    choice = choose_block_size(read_profile(path))
    logger.info("--block-size %s: %s", AUTO, choice.reason)
    return choice.block_tokens


def _estimate(profile: Sequence[ProfiledRequest], size: int, slot_value: float) -> Estimate:
    """The last token of a prompt is never reused; the end of a sequence is anywhere in its last block."""
    count = len(profile)
    reusable = sum(min(one.reused_tokens, max(0, one.prompt_tokens - 1)) // size for one in profile)
    reused = reusable * size / count
    blocks = sum(-(-one.prompt_tokens // size) for one in profile) / count
    empty = (size - 1) / 2
    return Estimate(size, reused, empty, blocks, reused - empty * slot_value - blocks * BLOCK_COST_TOKENS)


def _reason(profile: Sequence[ProfiledRequest], best: Estimate, estimates: Sequence[Estimate]) -> str:
    mean_prompt = sum(request.prompt_tokens for request in profile) / len(profile)
    others = ", ".join(f"{one.block_tokens}: {one.saved_tokens:.1f}" for one in estimates if one is not best)
    return (
        f"in blocks of {best.block_tokens}, {len(profile)} recorded requests of {mean_prompt:.0f} tokens on average "
        f"gain {best.saved_tokens:.1f} tokens of prefill each: {best.reused_tokens:.1f} reused, less the cost of "
        f"{best.empty_slots:.1f} empty slots and {best.blocks:.0f} blocks (in blocks of {others})"
    )
