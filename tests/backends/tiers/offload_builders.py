"""What the engine does with an `Offload`: it gives blocks up, and fetches them until they are there."""

from __future__ import annotations

from backends.tiers.host import HostTier
from backends.tiers.interface import Fetched, FetchState
from backends.tiers.offload import TieredOffload
from backends.tiers.tier import TierNews
from tests.backends.tiers.builders import PAYLOAD_BYTES


def build_host(blocks: int = 100) -> HostTier:
    return HostTier(blocks * PAYLOAD_BYTES, TierNews())


def keys_of(blocks):
    return [block.key for block in blocks]


def fetched(offload: TieredOffload, blocks, request_id: str = "a") -> Fetched:
    """The end of a fetch, waited for as the engine does."""
    fetch = offload.fetch(request_id, keys_of(blocks))
    for _ in range(10_000):
        if fetch.state is not FetchState.PENDING:
            return fetch
        offload.wait(0.01)
        fetch = offload.fetch(request_id, keys_of(blocks))
        offload.check_integrity()
    raise AssertionError("it never ended")


def contents(fetch: Fetched) -> list[bytes]:
    return [bytes(payload) for payload in fetch.payloads]


def give_up(offload: TieredOffload, blocks) -> None:
    """The pool computed these in blocks 1, 2, … and takes them for something else now."""
    offload.memory.hold(blocks)
    for block_id, block in enumerate(blocks, 1):
        offload.stored(block.key, block_id)
    for block_id, block in enumerate(blocks, 1):
        offload.overwritten(block.key, block_id)
        offload.removed(block.key)
