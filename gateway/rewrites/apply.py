"""A call as its tenant lets it be rewritten, done so that the event loop never waits long for a lexer."""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.rewrites.body import Applied, rewrite_body
from gateway.rewrites.rules import Rewrites
from gateway.wire import Call, parse_call

INLINE_BYTES: Final = 4 * 1024
"""Longer bodies with code are read in a thread: what was made to keep a lexer busy grows with the square."""


def rewrite_call(call: Call, rewrites: Rewrites) -> tuple[Call, tuple[Applied, ...]]:
    """The call that is forwarded, the very same where nothing applies, and what was done."""
    if rewrites.is_empty:
        return call, ()
    rewritten = rewrite_body(call.body, rewrites)
    if not rewritten.applied:
        return call, ()
    return parse_call(call.endpoint, rewritten.body), rewritten.applied


async def rewrite_call_soon(call: Call, rewrites: Rewrites) -> tuple[Call, tuple[Applied, ...]]:
    """The same on an event loop."""
    if rewrites.code and len(call.body) > INLINE_BYTES:
        return await asyncio.to_thread(rewrite_call, call, rewrites)
    return rewrite_call(call, rewrites)
