"""Warming a prompt, and the picture of the cache: over a real socket, and by itself."""

from __future__ import annotations

import json
import threading

import pytest

from backends.exchange import routes
from backends.exchange.ages import Ages
from backends.exchange.cache_map import AGE_BOUNDS, Seen, build_map, depth, histogram, hottest
from backends.hashing import BlockHasher, BlockKey, pack
from tests.backends.core_builders import ManualClock, build_cache, build_computed
from tests.backends.exchange.exchange_builders import SMALL, TOKEN, cached_tokens, giver, token_file
from tests.backends.server_builders import running_worker

PROMPT = list(range(1, 42))
WARM = "/v1/cache/warm"
MAP = "/v1/cache/map"


async def picture(worker, **query: str):
    async with worker.client.get(MAP, params=query) as response:
        assert response.status == 200
        return await response.json()


async def warm(worker, **fields):
    status, answer = await worker.post(WARM, fields)
    assert status == 200, answer
    return answer


async def test_a_warmed_prompt_is_a_hit(tmp_path):
    """Every full block, also the last one of a prompt that ends with it; no token of output."""
    async with giver(tmp_path) as worker:
        answer = await warm(worker, prompt=PROMPT[:40])
        assert answer == {
            "object": "cache.warm",
            "model": "smollm2",
            "prompt_tokens": 40,
            "cached_tokens": 40,
            "reused_tokens": 0,
            "ttl": None,
        }
        assert await worker.metric("generation_tokens_total") == 0
        assert await cached_tokens(worker, PROMPT) == 40
        assert (await warm(worker, prompt=PROMPT[:40]))["reused_tokens"] == 36


async def test_messages_are_warmed_as_a_chat_says_them(tmp_path):
    """The next chat with these messages hits."""
    async with giver(tmp_path) as worker:
        messages = [{"role": "user", "content": "hello"}]
        answer = await warm(worker, messages=messages)
        chat = await worker.chat("hello", max_tokens=1)
        assert chat["usage"]["prompt_tokens"] == answer["prompt_tokens"]
        assert chat["usage"]["prompt_tokens_details"]["cached_tokens"] == (answer["prompt_tokens"] - 1) // 4 * 4


async def test_a_salt_is_warmed_apart(tmp_path):
    """A prompt warmed under a salt is warm under that salt only."""
    async with giver(tmp_path) as worker:
        await warm(worker, prompt=PROMPT, cache_salt="a")
        assert await cached_tokens(worker, PROMPT) == 0
        assert await cached_tokens(worker, PROMPT, cache_salt="a") == 40


async def test_a_ttl_pins_what_is_warmed(tmp_path):
    """A flood of other prompts evicts everything else."""
    async with giver(tmp_path) as worker:
        assert (await warm(worker, prompt=PROMPT, ttl=60))["ttl"] == 60
        await warm(worker, prompt=[9] * 41)
        for number in range(30):
            await worker.complete([100 + number] * 41, max_tokens=1)
        assert (await picture(worker))["blocks"]["pinned"] == 10
        assert await cached_tokens(worker, [9] * 41) == 0
        assert await cached_tokens(worker, PROMPT) == 40


@pytest.mark.parametrize(
    ("fields", "parameter"),
    [
        ({}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": [[1, 2], [3]]}, "body.prompt"),
        ({"prompt": [1], "ttl": 0}, "ttl"),
        ({"prompt": [1], "ttl": 1e9}, "ttl"),
        ({"prompt": [1], "cache_salt": "a/b"}, "cache_salt"),
        ({"prompt": [1], "model": "another"}, "model"),
        ({"prompt": [1] * 600}, "input_tokens"),
        ({"prompt": [1], "vllm_xargs": {"cache_partition": "nobody"}}, "vllm_xargs.cache_partition"),
    ],
)
async def test_a_wrong_warm_up_is_refused_by_name(tmp_path, fields, parameter):
    """As a wrong completion is."""
    async with giver(tmp_path) as worker:
        status, answer = await worker.post(WARM, fields)
        assert status in (400, 404)
        assert answer["error"]["param"] == parameter


async def test_the_routes_are_off_unless_switched_on(tmp_path):
    """404 for all; without a token file also for those that exchange."""
    paths = [("POST", WARM), ("GET", MAP), ("GET", "/v1/cache/blocks"), ("POST", "/v1/cache/pull")]
    for arguments, served in (((), 0), (("--enable-cache-routes",), 2)):
        async with running_worker(*arguments) as worker:
            for index, (method, path) in enumerate(paths):
                async with worker.client.request(method, path, json={} if method == "POST" else None) as response:
                    assert (response.status == 404) == (index >= served)


async def test_an_api_key_guards_them(tmp_path):
    """Like all of /v1."""
    async with giver(tmp_path, "--api-key", "key") as worker:
        assert (await worker.post(WARM, {"prompt": PROMPT}))[0] == 401
        async with worker.client.get(MAP, headers={"Authorization": f"Bearer {TOKEN}"}) as response:
            assert response.status == 401
        assert (await worker.post(WARM, {"prompt": PROMPT}, Authorization="Bearer key"))[0] == 200


async def test_the_map_counts_states_and_partitions(tmp_path):
    """Free, referenced, cached and pinned blocks, of all and of each partition."""
    async with giver(tmp_path, "--cache-partition", "support=0.3:0.6") as worker:
        await warm(worker, prompt=PROMPT)
        await warm(worker, prompt=[7] * 21, vllm_xargs={"cache_partition": "support"})
        seen = await picture(worker)
        assert seen["blocks"] == {
            "usable": 199,
            "free": 199,
            "referenced": 0,
            "cached": 15,
            "pinned": 0,
            "duplicates": 0,
        }
        assert [(part["name"], part["cached"]) for part in seen["partitions"]] == [("", 10), ("support", 5)]
        assert seen["digest_collisions"] == 0
        assert seen["reuse"]["never_hit"] == 15


async def test_the_map_names_the_hottest_chains(tmp_path):
    """By the hash of their last block; a chain ends where its hits do."""
    async with giver(tmp_path) as worker:
        head = PROMPT[:20]
        for tail in range(4):
            await worker.complete([*head, *[200 + tail] * 8], max_tokens=1)
        await worker.complete([*head, *[200] * 8, 1], max_tokens=1)
        seen = await picture(worker, top="2")
        assert [(chain["blocks"], chain["hits"]) for chain in seen["hottest_chains"]] == [(5, 4), (7, 1)]
        assert seen["reuse"]["hits_of_cached_blocks"] == 5 * 4 + 2
        holdings = worker.worker.holdings
        assert seen["hottest_chains"][0]["hash"] == holdings.prompt(head, cache_salt=None).keys[4].digest.hex()
        assert (await picture(worker, top="0"))["hottest_chains"] == []


async def test_the_map_has_hashes_and_no_words(tmp_path):
    """Never a token id, a word of a prompt or a salt; with `hashes` the names of all that is cached."""
    async with giver(tmp_path) as worker:
        await worker.complete("SECRETWORD " * 8, max_tokens=1, cache_salt="SALTWORD")
        seen = await picture(worker, hashes="true", top="1000")
        assert len(seen["hashes"]) == seen["blocks"]["cached"] == 22
        assert all(len(name) == 64 for name in seen["hashes"])
        text = json.dumps(seen)
        assert "SECRET" not in text
        assert "SALT" not in text
        assert "token" not in text
        assert "hashes" not in await picture(worker)


async def test_the_map_is_drawn_beside_the_event_loop(tmp_path, monkeypatch):
    """A large cache takes a tenth of a second, and streams go on meanwhile."""
    drawn_in = []

    def draw(*arguments):
        drawn_in.append(threading.current_thread())
        return build_map(*arguments)

    monkeypatch.setattr(routes, "build_map", draw)
    async with giver(tmp_path) as worker:
        await picture(worker)
    assert len(drawn_in) == 1
    assert drawn_in[0] is not threading.current_thread()


@pytest.mark.parametrize("top", ["-1", "x", "", "1.5"])
async def test_a_wrong_number_of_chains_is_refused(tmp_path, top):
    """400 that names it."""
    async with giver(tmp_path) as worker, worker.client.get(MAP, params={"top": top}) as response:
        assert response.status == 400
        assert (await response.json())["error"]["param"] == "top"


def test_collisions_of_digests_are_counted():
    """Two contents under one digest: found apart, and counted each time they are met."""
    cache = build_cache(num_blocks=40, bits=1)
    for number in range(6):
        build_computed(cache, [number] * 9, str(number))
    assert cache.pool.cached.collisions > 0
    honest = build_cache(num_blocks=40)
    for number in range(6):
        build_computed(honest, [number] * 9, str(number))
    assert honest.pool.cached.collisions == 0


def build_chain(count: int, salt: str | None = None) -> list[BlockKey]:
    hasher = BlockHasher(1)
    keys: list[BlockKey] = []
    hasher.extend(keys, hasher.root(cache_salt=salt), pack(range(count)))
    return keys


def test_the_end_of_a_chain_is_where_its_hits_end():
    """Blocks inside a chain, and those that nobody hit, are not listed."""
    keys = build_chain(5)
    uses = (3, 3, 2, 2, 0)
    seen = [Seen(key, use, 1.0) for key, use in zip(keys, uses, strict=True)]
    assert [(block.key, block.uses) for block in hottest(seen, 10)] == [(keys[1], 3), (keys[3], 2)]
    assert [block.key for block in hottest(seen, 1)] == [keys[1]]
    assert [depth(key) for key in keys] == [1, 2, 3, 4, 5]


def test_ages_are_from_when_it_was_stored():
    """Gone when the last copy is, or when all is."""
    clock = ManualClock()
    ages = Ages(clock)
    one, other = build_chain(2)
    ages.stored(one, 1)
    clock.now = 5.0
    ages.stored(other, 2)
    clock.now = 7.0
    assert (ages.seconds(one.digest), ages.seconds(other.digest)) == (7.0, 2.0)
    ages.overwritten(one, 1)
    ages.removed(one)
    assert ages.seconds(one.digest) is None
    ages.cleared()
    assert ages.seconds(other.digest) is None


def test_a_histogram_has_every_value_once():
    """Up to and including each bound."""
    counted = histogram([0, 1, 1.5, 10, 11, 10_000], AGE_BOUNDS)
    assert counted == {"1": 2, "10": 2, "60": 1, "600": 0, "3600": 0, "more": 1}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--peer", "http://a:1"), "need --enable-cache-routes"),
        (("--enable-cache-routes", "--peer", "http://a:1"), "--peer needs --peer-token-file"),
        (("--enable-cache-routes", "--peer-token-file", "/nowhere/token"), "--peer-token-file /nowhere/token: No such"),
    ],
)
async def test_options_that_do_not_fit_are_refused(arguments, complaint):
    """At the start, with a sentence that names them."""
    with pytest.raises(Exception, match=complaint):
        async with running_worker(*arguments, *SMALL):
            pass


@pytest.mark.parametrize("token", ["short", "has spaces in it which is wrong", "", "two\nlines-of-some-length"])
async def test_a_weak_token_is_refused_and_not_shown(tmp_path, token):
    """The message names the file and the rule."""
    arguments = ("--enable-cache-routes", "--peer-token-file", token_file(tmp_path, token))
    with pytest.raises(Exception, match="at least 16 characters") as caught:
        async with running_worker(*arguments, *SMALL):
            pass
    assert not token or token not in str(caught.value)
