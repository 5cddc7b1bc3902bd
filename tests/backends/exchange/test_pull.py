"""Pulling blocks over real sockets: what comes, what is refused, and that everything else is computed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from backends.exchange.block_stream import HEAD_BYTES, Head, encode_head
from backends.exchange.pull import BLOCKS_PATH, candidates
from backends.hashing import BlockHasher, BlockKey, pack
from tests.backends.exchange.exchange_builders import (
    TOKEN,
    cached_tokens,
    giver,
    pull,
    taker,
    two_workers,
)
from tests.backends.server_builders import RunningWorker, until

PROMPT = list(range(1, 42))
"""Ten full blocks of four, and a token."""


async def payloads(worker: RunningWorker, prompt=PROMPT, salt: str | None = None) -> list[bytes]:
    """The K/V that the worker has of a prompt."""
    holdings = worker.worker.holdings

    def read() -> list[bytes]:
        chain = holdings.prompt(prompt, cache_salt=salt)
        return holdings.read(chain.keys[: chain.held_blocks])

    return await worker.worker.engine.call(read)


async def outcomes(worker: RunningWorker) -> dict[str, int]:
    puller = worker.worker.exchange.puller
    assert puller is not None
    return dict(puller.outcomes)


async def test_blocks_come_from_a_peer_and_are_hits(tmp_path):
    """All ten blocks, the very bytes; the next request finds them, and nobody holds them."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        answer = await pull(second, first.url, PROMPT)
        assert answer == {
            "object": "cache.pull",
            "prompt_tokens": 41,
            "cached_tokens": 40,
            "pulled_tokens": 40,
            "reason": "ok",
        }
        assert await payloads(second) == await payloads(first)
        assert await cached_tokens(second, PROMPT) == 40
        await second.worker.engine.call(second.worker.engine._engine.check_integrity)


async def test_only_what_is_missing_is_pulled(tmp_path):
    """The beginning is there: the peer is asked for what follows it."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        await second.complete(PROMPT[:18], max_tokens=1)
        answer = await pull(second, first.url, PROMPT)
        assert (answer["pulled_tokens"], answer["cached_tokens"]) == (24, 40)
        assert (await pull(second, first.url, PROMPT))["reason"] == "nothing_missing"


async def test_a_peer_gives_what_it_has(tmp_path):
    """It has the beginning only: that comes, and the answer says how much."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT[:17], max_tokens=1)
        answer = await pull(second, first.url, PROMPT)
        assert (answer["pulled_tokens"], answer["cached_tokens"], answer["reason"]) == (16, 16, "ok")
        nothing = await pull(second, first.url, [7] * 20)
        assert (nothing["pulled_tokens"], nothing["reason"]) == (0, "peer_has_nothing")


async def test_messages_are_pulled_like_prompts(tmp_path):
    """The model's template renders them, as it did for the peer."""
    messages = [{"role": "user", "content": "hello there, worker"}]
    async with two_workers(tmp_path) as (first, second):
        status, warmed = await first.post("/v1/cache/warm", {"messages": messages})
        assert status == 200
        status, answer = await second.post("/v1/cache/pull", {"from": first.url, "messages": messages})
        assert (status, answer["pulled_tokens"]) == (200, warmed["cached_tokens"])


async def test_a_salt_must_be_presented(tmp_path):
    """Blocks of another salt are never sent: their names cannot even be asked for."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT, cache_salt="tenant-a")
        for salt in (None, "tenant-b"):
            answer = await pull(second, first.url, PROMPT, **({"cache_salt": salt} if salt else {}))
            assert (answer["pulled_tokens"], answer["reason"]) == (0, "peer_has_nothing")
        assert (await pull(second, first.url, PROMPT, cache_salt="tenant-a"))["pulled_tokens"] == 40
        assert await cached_tokens(second, PROMPT) == 0
        assert await cached_tokens(second, PROMPT, cache_salt="tenant-a") == 40


async def test_a_wrong_token_gets_nothing(tmp_path):
    """The peer refuses, the answer says so, and the prompt is computed."""
    async with giver(tmp_path, token="another-token-of-enough-length") as first:
        await first.complete(PROMPT)
        async with taker(tmp_path, first.url) as second:
            answer = await pull(second, first.url, PROMPT)
            assert (answer["pulled_tokens"], answer["reason"]) == (0, "peer_refused")
            assert await outcomes(second) == {"peer_refused": 1}
            assert len(await payloads(second)) == 0
            assert (await second.complete(PROMPT))["usage"]["prompt_tokens"] == 41


async def test_only_named_peers_are_asked(tmp_path):
    """Whatever else `from` says is refused, so that nobody can make a worker call an address of his choice."""
    async with two_workers(tmp_path) as (first, second):
        for url in ("http://169.254.169.254/", "http://127.0.0.1:1", first.url + "/other", first.url + "@evil", ""):
            status, answer = await second.post("/v1/cache/pull", {"from": url, "prompt": PROMPT})
            assert (status, answer["error"]["param"]) == (400, "from")
        status, _ = await second.post("/v1/cache/pull", {"prompt": PROMPT})
        assert status == 400


async def test_without_the_token_no_block_leaves(tmp_path):
    """403 without, with a wrong, and with an API key in its place; the API key is not asked of peers."""
    async with giver(tmp_path, "--api-key", "api-key") as first:
        await first.post("/v1/completions", {"prompt": PROMPT}, Authorization="Bearer api-key")
        question = {"hash": "00" * 32, "after": "00" * 32}
        for headers in ({}, {"Authorization": "Bearer api-key"}, {"Authorization": f"Basic {TOKEN}"}):
            async with first.client.get(BLOCKS_PATH, params=question, headers=headers) as response:
                assert response.status == 403
        async with first.client.get(
            BLOCKS_PATH, params=question, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as response:
            assert response.status == 200
            assert len(await response.read()) == HEAD_BYTES


@pytest.mark.parametrize(
    "question",
    [{}, {"hash": "xyz", "after": "00" * 32}, {"hash": "00" * 31, "after": "00" * 32}, {"hash": "00" * 32}],
)
async def test_a_malformed_question_is_refused(tmp_path, question):
    """400 that names the field."""
    async with giver(tmp_path) as first:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with first.client.get(BLOCKS_PATH, params=question, headers=headers) as response:
            assert response.status == 400
            assert (await response.json())["error"]["param"] in ("hash", "after")


async def test_a_slow_peer_is_not_worth_it(tmp_path):
    """Where computing is measured to be faster, nothing is pulled."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        peer = second.worker.exchange.peers.named(first.url)
        for _ in range(50):
            peer.transfer.waited(60.0)
        await pull(second, first.url, [9] * 9)  # now and then a few blocks are tried all the same
        answer = await pull(second, first.url, PROMPT)
        assert (answer["pulled_tokens"], answer["reason"]) == (0, "slower_than_computing")


async def test_a_full_pool_takes_what_fits(tmp_path):
    """What others hold is not touched: what finds no room is computed when it is its turn, and not counted."""
    prompt = list(range(1, 402))
    async with giver(tmp_path) as first:
        await first.complete(prompt, max_tokens=1)
        async with taker(tmp_path, first.url) as second:
            engine, pool = second.worker.engine, second.worker.holdings.cache.pool
            held = await engine.call(lambda: pool.get_new_blocks(pool.available() - 30))
            answer = await pull(second, first.url, prompt)
            assert (answer["reason"], answer["pulled_tokens"], answer["cached_tokens"]) == ("no_room", 120, 120)
            await engine.call(lambda: pool.check_integrity([held]))
            await engine.call(lambda: pool.free_blocks(held))
            assert await cached_tokens(second, prompt) == 120


async def test_a_partition_pays_for_what_is_pulled(tmp_path):
    """As it does for what is computed; one that there is not is refused."""
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        async with taker(tmp_path, first.url, "--cache-partition", "support=0.3:0.6") as second:
            await pull(second, first.url, PROMPT, vllm_xargs={"cache_partition": "support"})
            cached = {part.name: part.cached for part in second.worker.holdings.cache.pool.occupancy()}
            assert cached == {"": 0, "support": 10}
            body = {"from": first.url, "prompt": PROMPT, "vllm_xargs": {"cache_partition": "nobody"}}
            assert (await second.post("/v1/cache/pull", body))[0] == 400


async def test_without_a_prefix_cache_nothing_is_pulled(tmp_path):
    """There is nowhere to put it."""
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        async with taker(tmp_path, first.url, "--no-enable-prefix-caching") as second:
            answer = await pull(second, first.url, PROMPT)
            assert (answer["pulled_tokens"], answer["reason"]) == (0, "no_prefix_cache")
            assert second.worker.holdings.cache.pool.cached_blocks_count == 0


async def test_the_same_pull_twice_at_once_stores_every_block_once(tmp_path):
    """The second one finds what the first one brought."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        answers = await asyncio.gather(*(pull(second, first.url, PROMPT) for _ in range(4)))
        assert {answer["cached_tokens"] for answer in answers} == {40}
        cached = second.worker.holdings.cache.pool.cached
        assert cached.count == cached.digests_count == 10


async def test_a_block_that_goes_while_it_is_sent_cuts_the_stream_off(tmp_path, monkeypatch):
    """The giver evicts in the middle: what came before is used, and nothing else is believed."""
    monkeypatch.setattr("backends.exchange.routes.BATCH_BYTES", 1)
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        holdings = first.worker.holdings
        chain = holdings.prompt(PROMPT, cache_salt=None)
        read, pool = holdings.read, holdings.cache.pool

        def read_and_lose(keys):
            if keys[0].digest == chain.keys[6].digest:
                found = pool.find(chain.keys[6], chain.keys[5])
                pool.evict([found[0]])
            return read(keys)

        monkeypatch.setattr(holdings, "read", read_and_lose)
        answer = await pull(second, first.url, PROMPT)
        assert (answer["pulled_tokens"], answer["reason"]) == (24, "truncated")


async def test_a_peer_that_leaves_frees_its_place(tmp_path):
    """The giver goes on, and serves the next one."""
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        question = {"hash": "00" * 32, "after": "00" * 32}
        for _ in range(10):
            response = await first.client.get(
                BLOCKS_PATH, params=question, headers={"Authorization": f"Bearer {TOKEN}"}
            )
            response.close()

        async def free() -> bool:
            return first.worker.exchange.serving == 0

        await until(free, "a place was never given back")


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


async def test_another_config_is_foreign(tmp_path):
    """Another block size is another layout of K/V, and another name of every block."""
    async with giver(tmp_path, "--block-size", "8") as first:
        await first.complete(PROMPT)
        async with taker(tmp_path, first.url) as second:
            answer = await pull(second, first.url, PROMPT)
            assert (answer["pulled_tokens"], answer["reason"]) == (0, "foreign_config")


async def test_pulled_blocks_are_published(tmp_path):
    """A router learns of them as of computed ones."""
    config = json.dumps({"enable_kv_cache_events": True, "endpoint": "tcp://127.0.0.1:*"})
    async with giver(tmp_path) as first:
        await first.complete(PROMPT)
        async with taker(tmp_path, first.url, "--kv-events-config", config) as second:
            told: list[object] = []
            second.worker.events._events._publish = told.extend
            await pull(second, first.url, PROMPT)
            await second.worker.engine.call(lambda: None)
            assert sum(len(event.block_hashes) for event in told) == 10


async def test_pulls_are_counted_in_the_metrics(tmp_path):
    """By outcome, in tokens, and on the other side in blocks."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        await pull(second, first.url, PROMPT)
        await pull(second, first.url, [9] * 9)
        async with second.client.get("/metrics") as response:
            lines = (await response.text()).splitlines()
        labels = 'engine="0",model_name="smollm2"'
        for outcome in ("ok", "peer_has_nothing"):
            assert f'homing:cache_pulls_total{{{labels},outcome="{outcome}"}} 1.0' in lines
        assert f"homing:cache_pulled_tokens_total{{{labels}}} 40.0" in lines
        assert f"homing:block_digest_collisions_total{{{labels}}} 0.0" in lines
        async with first.client.get("/metrics") as response:
            assert f"homing:cache_given_blocks_total{{{labels}}} 10.0" in await response.text()


async def test_only_so_many_peers_are_served_at_once(tmp_path):
    """One more is told to come later, and computes."""
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        first.worker.exchange.serving = 4
        assert (await pull(second, first.url, PROMPT))["reason"] == "peer_busy"
        first.worker.exchange.serving = 0
        assert (await pull(second, first.url, PROMPT))["reason"] == "ok"


def test_the_question_names_few_blocks():
    """At most 64 names, the last block's first, evenly spread: a URL of any prompt stays below 8 KB."""
    keys: list[BlockKey] = []
    hasher = BlockHasher(1)
    hasher.extend(keys, hasher.root(), pack(range(1000)))
    for count in (1, 63, 64, 65, 1000):
        names = candidates(keys[:count])
        assert names[0] == keys[count - 1].digest.hex()
        assert len(names) == len(set(names)) <= 64
        assert len(names) >= min(count, 33)
