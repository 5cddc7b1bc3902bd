"""Header lines of an answer that tell what the gateway did: how long each stage took, and why this worker."""

from __future__ import annotations

from typing import Final

from gateway.accounting import Bill
from router.core import Placement, Prompt

_TIMING: Final = (
    b"openai-processing-ms: %d\r\n"
    b"server-timing: parse;dur=%.3f, tokenise;dur=%.3f, place;dur=%.3f, upstream;dur=%.3f\r\n"
)


def timing_lines(bill: Bill, now: float) -> bytes:
    """What has passed until the answer's head, in milliseconds, by stage; one formatting, since every answer pays."""
    spans = bill.spans
    return _TIMING % (
        (now - bill.opened_at) * 1e3,
        spans.get("parse", 0.0) * 1e3,
        spans.get("prepare", 0.0) * 1e3,
        spans.get("place", 0.0) * 1e3,
        (now - bill.marked_at) * 1e3,
    )


def debug_lines(placement: Placement, prompt: Prompt) -> bytes:
    """Which worker answers, why, and how many of the prompt's blocks it is believed to hold; for those who may know."""
    cached_blocks = placement.predicted_cached_tokens // prompt.block_tokens
    return (
        f"x-homing-backend: {placement.worker}\r\n"
        f"x-homing-reason: {placement.reason}\r\n"
        f"x-homing-blocks: {cached_blocks}/{len(prompt.exact_blocks)}\r\n"
    ).encode("latin-1", "replace")
