"""Pulling blocks over real sockets: what comes, where it goes, and that everything else is computed."""

from __future__ import annotations

import asyncio
import json

from backends.exchange.pull import candidates
from backends.hashing import BlockHasher, BlockKey, pack
from tests.backends.exchange.exchange_builders import PROMPT, cached_tokens, giver, payloads, pull, taker, two_workers


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
