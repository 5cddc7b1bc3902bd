"""Fetching blocks from a peer in place of computing them: asked by name, verified one by one, cached as they come."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import aiohttp

from backends.async_engine import AsyncEngine
from backends.exchange.block_stream import HEAD_BYTES, BrokenStreamError, Head, decode_head
from backends.exchange.peers import Peer
from backends.hashing import TOKEN_BYTES, BlockKey
from backends.holdings import Holdings, Prompt
from backends.partitions import UNNAMED
from backends.tiers.entry import BrokenEntryError, EntryFormat, Named, name_of

BLOCKS_PATH = "/v1/cache/blocks"

CONNECT_SECONDS = 2.0
SILENCE_SECONDS = 5.0
TOTAL_SECONDS = 60.0

CANDIDATES = 64
"""Names in one question: the peer answers with the longest chain it has, to within a 64th of what is missing."""

BATCH_BYTES = 4 << 20
"""Blocks are cached by so much at a time: a copy of a millisecond or two between two steps."""

PULLS_AT_ONCE = 2


class Pulled(NamedTuple):
    """What became of a pull, in tokens: of the prompt, cached now, and come from the peer. `reason` is one word."""

    prompt_tokens: int
    cached_tokens: int
    pulled_tokens: int
    reason: str


class Arrival(NamedTuple):
    """How many blocks came and were cached, and why there were not more."""

    blocks: int
    reason: str


class Puller:
    """Never raises for what a peer does or does not do: what did not come is computed, and counted by its reason."""

    def __init__(self, engine: AsyncEngine, holdings: Holdings, token: str) -> None:
        self.outcomes: Counter[str] = Counter()
        self.pulled_tokens = 0
        self._engine = engine
        self._holdings = holdings
        self._headers = {"Authorization": f"Bearer {token}", "Accept-Encoding": "identity"}
        self._places = asyncio.Semaphore(PULLS_AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Let go of connections."""
        if self._session is not None:
            await self._session.close()

    async def pull(
        self, peer: Peer, token_ids: Sequence[int], cache_salt: str | None, partition: str = UNNAMED
    ) -> Pulled:
        """Bring what is missing of a prompt, as far as the peer has it and it is worth it; `partition` pays."""
        name = partial(self._holdings.prompt, token_ids, cache_salt=cache_salt, partition=partition)
        async with self._places:
            prompt = await self._engine.call(name)
            arrival = await self._bring(peer, prompt)
        if arrival.blocks:
            prompt = await self._engine.call(name)
        block_tokens = self._block_tokens
        self.outcomes[arrival.reason] += 1
        self.pulled_tokens += arrival.blocks * block_tokens
        return Pulled(len(token_ids), prompt.held_blocks * block_tokens, arrival.blocks * block_tokens, arrival.reason)

    @property
    def _block_tokens(self) -> int:
        return self._holdings.cache.hasher.block_tokens

    async def _bring(self, peer: Peer, prompt: Prompt) -> Arrival:
        if not self._holdings.cache.enabled:
            return Arrival(0, "no_prefix_cache")
        missing = len(prompt.keys) - prompt.held_blocks
        if not missing:
            return Arrival(0, "nothing_missing")
        if peer.breaker.resting:
            return Arrival(0, "peer_resting")
        block_bytes = await self._engine.call(lambda: self._holdings.payload_bytes)
        count = peer.worth.blocks(missing, block_bytes=block_bytes, block_tokens=self._block_tokens)
        if not count:
            return Arrival(0, "slower_than_computing")
        entries = EntryFormat(self._holdings.kv_digest, self._block_tokens * TOKEN_BYTES, block_bytes)
        arrival = await self._fetch(peer, prompt, count, entries)
        (peer.breaker.failed if arrival.reason in FAULTS else peer.breaker.worked)()
        return arrival

    async def _fetch(self, peer: Peer, prompt: Prompt, count: int, entries: EntryFormat) -> Arrival:
        """Ask, and cache what comes."""
        landing = Landing(self._engine, self._holdings, prompt, entries)
        wanted = prompt.keys[prompt.held_blocks : prompt.held_blocks + count]
        question = {"hash": ",".join(candidates(wanted)), "after": prompt.first_missing.digest.hex()}
        started = time.monotonic()
        try:
            async with self._client().get(
                peer.url + BLOCKS_PATH, params=question, headers=self._headers, allow_redirects=False
            ) as response:
                if response.status != 200:
                    return Arrival(0, REFUSALS.get(response.status, "peer_error"))
                head = await response.content.readexactly(HEAD_BYTES)
                peer.transfer.waited(time.monotonic() - started)
                expected = Head(entries.config_digest, entries.entry_bytes, count)
                reason = await landing.receive(response.content, decode_head(head, expected), peer)
        except BrokenStreamError as error:
            reason = error.reason
        except asyncio.IncompleteReadError:
            reason = "truncated"
        except TimeoutError:
            reason = "peer_hangs"
        except (aiohttp.ClientError, OSError):
            reason = "peer_down" if not landing.arrived else "truncated"
        await landing.store()
        return Arrival(landing.stored, reason)

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=TOTAL_SECONDS, connect=CONNECT_SECONDS, sock_read=SILENCE_SECONDS)
            self._session = aiohttp.ClientSession(timeout=timeout, auto_decompress=False)
        return self._session


REFUSALS = {401: "peer_refused", 403: "peer_refused", 503: "peer_busy"}

FAULTS = frozenset({"truncated", "peer_hangs", "peer_down", "peer_error", "peer_refused", "broken_block", "too_many"})
"""After these a peer is left alone for a while. A foreign config is no fault: it is what it is."""


class Landing:
    """Blocks as they come: each verified, cached some at a time and in order."""

    def __init__(self, engine: AsyncEngine, holdings: Holdings, prompt: Prompt, entries: EntryFormat) -> None:
        self.arrived = 0
        self.stored = 0
        self._engine = engine
        self._holdings = holdings
        self._prompt = prompt
        self._entries = entries
        self._waiting: list[memoryview] = []
        self._batch = max(1, BATCH_BYTES // entries.entry_bytes)

    async def receive(self, stream: aiohttp.StreamReader, count: int, peer: Peer) -> str:
        """Read `count` entries; why it ended. BrokenStreamError for one that is not what it should be."""
        seconds = 0.0
        for index in range(count):
            started = time.monotonic()
            # A guard of our own: aiohttp's ends with the first byte that is no HTTP, and leaves the reader waiting.
            async with asyncio.timeout(SILENCE_SECONDS):
                entry = await stream.readexactly(self._entries.entry_bytes)
            seconds += time.monotonic() - started
            self._verify(self._prompt.keys[self._prompt.held_blocks + index], entry)
            if len(self._waiting) >= self._batch and not await self.store():
                return "no_room"
        if count:
            peer.transfer.brought(count * self._entries.entry_bytes, seconds)
        return ("ok" if await self.store() else "no_room") if count else "peer_has_nothing"

    def _verify(self, key: BlockKey, entry: bytes) -> None:
        try:
            self._waiting.append(self._entries.open(Named(key, name_of(key)), entry))
        except BrokenEntryError:
            raise BrokenStreamError("broken_block") from None
        self.arrived += 1

    async def store(self) -> bool:
        """Cache what waits; False when not all of it could be."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return True
        first = self._prompt.held_blocks + self.arrived - len(waiting)
        stored = await self._engine.call(partial(self._holdings.add, self._prompt, first, waiting))
        self.stored += stored
        return stored == len(waiting)


def candidates(wanted: Sequence[BlockKey]) -> list[str]:
    """Some of the names, the longest chain's first, evenly spread."""
    step = -(-len(wanted) // CANDIDATES)
    return [key.digest.hex() for key in wanted[::-step]]
