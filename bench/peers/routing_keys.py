"""What the hashing peers hash, where a trace has no text: a user's first words, and a session."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from router.replay.core import Trace, TraceRequest

COMMON_SHARE = 0.01
"""A block in more than this share of all prompts is a template's or a system prompt's, not a user's."""


def first_own_blocks(trace: Trace) -> Sequence[bytes]:
    """By request number: the block in which a prompt stops being common property.

    Where sessions are known that is the first block which no other session has; else the first one that under 1 % of
    the prompts have. It stands for the first words of the first user message. Where all blocks are common it is the
    last one.
    """
    owners = _sessions_by_block(trace) if trace.closed_loop else _prompts_by_block(trace)
    limit = 1 if trace.closed_loop else max(1, int(COMMON_SHARE * len(trace.requests)))
    keys = [b""] * len(trace.requests)
    for request in trace.requests:
        keys[request.number] = _first_own(request, owners, limit)
    return keys


def common_blocks(trace: Trace) -> frozenset[bytes]:
    """Blocks in more than 1 % of all prompts."""
    limit = COMMON_SHARE * len(trace.requests)
    return frozenset(block for block, prompts in _prompts_by_block(trace).items() if prompts > limit)


def session_keys(trace: Trace) -> Sequence[bytes]:
    """By request number: what a client would send as its session, from the trace or else guessed by the first words."""
    if not trace.closed_loop:
        return first_own_blocks(trace)
    keys = [b""] * len(trace.requests)
    for request in trace.requests:
        keys[request.number] = f"session-{request.session}".encode()
    return keys


def _first_own(request: TraceRequest, owners: Mapping[bytes, int], limit: int) -> bytes:
    chain = request.prompt.exact_blocks
    fallback = chain[-1] if chain else f"request-{request.number}".encode()
    return next((block for block in chain if owners[block] <= limit), fallback)


def _prompts_by_block(trace: Trace) -> Mapping[bytes, int]:
    counts: Counter[bytes] = Counter()
    for request in trace.requests:
        counts.update(request.prompt.exact_blocks)
    return counts


def _sessions_by_block(trace: Trace) -> Mapping[bytes, int]:
    first: dict[bytes, int] = {}
    shared: Counter[bytes] = Counter()
    for request in trace.requests:
        for block in request.prompt.exact_blocks:
            if first.setdefault(block, request.session) != request.session:
                shared[block] += 1
    return {block: 1 + shared[block] for block in first}
