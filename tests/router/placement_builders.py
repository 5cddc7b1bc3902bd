"""Small fleets, prompts and routers for tests of placement, with sane defaults."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count

from xxhash import xxh3_128_digest

from router.core import FleetView, Placement, Prompt, WorkerView
from router.router import Router
from router.settings import RouterSettings

BLOCK_TOKENS = 64
_SERIAL = count()


def build_chain(*parts: tuple[str, int]) -> list[bytes]:
    """A block chain: each part is a name and a number of blocks; equal beginnings give equal blocks."""
    chain, parent = [], b""
    for name, blocks in parts:
        for number in range(blocks):
            parent = xxh3_128_digest(parent + f"{name}/{number}".encode())
            chain.append(parent)
    return chain


def build_prompt(
    *parts: tuple[str, int],
    key: Sequence[tuple[str, int]] | None = None,
    tail_tokens: int = 10,
    block_tokens: int = BLOCK_TOKENS,
) -> Prompt:
    """A prompt of full blocks and a tail; `key` gives another key chain than the exact one."""
    exact = build_chain(*parts)
    keys = build_chain(*(parts if key is None else key)) or [xxh3_128_digest(repr(parts).encode())]
    tokens = len(exact) * block_tokens + tail_tokens
    return Prompt(tokens=tokens, block_tokens=block_tokens, exact_blocks=exact, key_blocks=keys)


def build_fleet(workers: int | Iterable[str] = 4, **view: object) -> FleetView:
    """A fleet of equal workers, `worker-0` and on unless named."""
    names = [f"worker-{number}" for number in range(workers)] if isinstance(workers, int) else workers
    return FleetView(tuple(WorkerView(name, **view) for name in names))


def build_router(policy: str = "homing", **settings: object) -> Router:
    """A router with default settings, which tests change by name."""
    return Router(RouterSettings(policy=policy, **settings))


def fresh_id(name: str = "request") -> str:
    """An id that no other request of this run has."""
    return f"{name}-{next(_SERIAL)}"


def send(router: Router, prompt: Prompt, fleet: FleetView, now: float = 0.0, **arguments: object) -> Placement:
    """Place a prompt under a fresh id and leave it in flight."""
    return router.place(prompt, fleet, now, request_id=fresh_id(), **arguments)


def serve(router: Router, prompt: Prompt, fleet: FleetView, now: float = 0.0, **arguments: object) -> Placement:
    """Place a prompt and let it be answered as predicted, before anything else happens."""
    placement = send(router, prompt, fleet, now, **arguments)
    router.first_token(placement.request_id, now + placement.predicted_seconds)
    router.finished(
        placement.request_id,
        now + placement.predicted_seconds + 1.0,
        reported_cached_tokens=placement.predicted_cached_tokens,
        prompt_tokens=prompt.tokens,
        output_tokens=30,
    )
    return placement
