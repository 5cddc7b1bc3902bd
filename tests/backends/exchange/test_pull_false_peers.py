"""Peers that send something else, less, or nothing: only what is whole is used, and nothing is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from backends.exchange.block_stream import HEAD_BYTES, Head, encode_head
from backends.exchange.pull import BLOCKS_PATH, candidates
from backends.hashing import BlockHasher, BlockKey, pack
from tests.backends.exchange.exchange_builders import (
    PROMPT,
    TOKEN,
    cached_tokens,
    giver,
    outcomes,
    payloads,
    pull,
    taker,
)
from tests.backends.server_builders import RunningWorker


@asynccontextmanager
async def false_peer(answer: bytes | None, status: str = "200 OK", hold: bool = False) -> AsyncIterator[str]:
    """A server that answers every request with these bytes, and ends the connection, or holds it."""
    released = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if answer is not None:
            writer.write(f"HTTP/1.1 {status}\r\nConnection: close\r\n\r\n".encode() + answer)
            await writer.drain()
        if hold:
            await released.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        released.set()
        server.close()


async def stream_of(worker: RunningWorker, prompt=PROMPT) -> bytearray:
    """What the worker sends of a prompt."""
    keys: list[BlockKey] = []
    hasher = BlockHasher(4)
    root = hasher.root()
    hasher.extend(keys, root, pack(prompt))
    question = {"hash": ",".join(candidates(keys)), "after": root.digest.hex()}
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with worker.client.get(BLOCKS_PATH, params=question, headers=headers) as response:
        return bytearray(await response.read())


def entry_bytes(stream: bytes) -> int:
    return (len(stream) - HEAD_BYTES) // 10


def flip(stream: bytearray, at: int) -> bytes:
    stream[at] ^= 1
    return bytes(stream)


BROKEN: dict[str, tuple[Callable[[bytearray], bytes], str, int]] = {
    "a bit of the third payload": (lambda s: flip(s, HEAD_BYTES + 3 * entry_bytes(s) - 1), "broken_block", 8),
    "a bit of a token": (lambda s: flip(s, HEAD_BYTES + entry_bytes(s) + 90), "broken_block", 4),
    "a bit of the magic": (lambda s: flip(s, 0), "not_blocks", 0),
    "a bit of the config": (lambda s: flip(s, 10), "foreign_config", 0),
    "cut off in the fifth block": (lambda s: bytes(s[: HEAD_BYTES + 4 * entry_bytes(s) + 9]), "truncated", 16),
    "cut off in the head": (lambda s: bytes(s[:11]), "truncated", 0),
    "nothing at all": (lambda s: b"", "truncated", 0),
    "the first block missing": (
        lambda s: bytes(
            s[:HEAD_BYTES] + s[HEAD_BYTES + entry_bytes(s) :] + s[HEAD_BYTES : HEAD_BYTES + entry_bytes(s)]
        ),
        "broken_block",
        0,
    ),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_stream_brings_only_what_is_whole(tmp_path, name):
    """Verified one by one: what came before the fault is used, the rest is computed; nothing false is ever stored."""
    spoil, reason, tokens = BROKEN[name]
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        stream = spoil(await stream_of(first))
        async with false_peer(stream) as url, taker(tmp_path, url) as second:
            answer = await pull(second, url, PROMPT)
            assert (answer["reason"], answer["pulled_tokens"], answer["cached_tokens"]) == (reason, tokens, tokens)
            assert await payloads(second) == (await payloads(first))[: tokens // 4]
            assert await cached_tokens(second, PROMPT) == tokens
            assert await outcomes(second) == {reason: 1}


async def test_a_head_that_promises_too_much_is_not_believed(tmp_path):
    """A bounded body: more entries than were asked for are refused before one is read."""
    async with giver(tmp_path) as first:
        holdings = first.worker.holdings
        await first.complete(PROMPT)
        size = entry_bytes(await stream_of(first))
        head = encode_head(Head(holdings.kv_digest, size, 1 << 31))
        async with false_peer(head + bytes(1000)) as url, taker(tmp_path, url) as second:
            assert (await pull(second, url, PROMPT))["reason"] == "too_many"


@pytest.mark.parametrize(
    ("status", "reason"), [("500 X", "peer_error"), ("302 Found", "peer_error"), ("401 No", "peer_refused")]
)
async def test_a_peer_that_answers_something_else_is_left_alone(tmp_path, status, reason):
    """Counted, and not asked again at once; a redirection is not followed."""
    async with false_peer(b"", status) as url, taker(tmp_path, url) as second:
        assert (await pull(second, url, PROMPT))["reason"] == reason
        assert (await pull(second, url, PROMPT))["reason"] == "peer_resting"
        assert await cached_tokens(second, PROMPT) == 0


async def test_a_peer_that_is_not_there_costs_nothing(tmp_path):
    """Connection refused: an answer with no tokens, at once."""
    async with false_peer(b"") as url:
        pass
    async with taker(tmp_path, url) as second:
        assert (await pull(second, url, PROMPT))["reason"] == "peer_down"


async def test_a_peer_that_hangs_is_given_up(tmp_path, monkeypatch):
    """No answer within the time for silence; also in the middle of the blocks, whose beginning is used."""
    monkeypatch.setattr("backends.exchange.pull.SILENCE_SECONDS", 0.3)
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        stream = bytes(await stream_of(first))
        async with false_peer(None, hold=True) as url, taker(tmp_path, url) as second:
            assert (await pull(second, url, PROMPT))["reason"] == "peer_hangs"
        half = stream[: HEAD_BYTES + 5 * entry_bytes(stream) + 3]
        async with false_peer(half, hold=True) as url, taker(tmp_path, url) as second:
            answer = await pull(second, url, PROMPT)
            assert (answer["reason"], answer["pulled_tokens"]) == ("peer_hangs", 20)
