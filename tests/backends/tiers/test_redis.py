"""The Redis tier against a real server: shared, verified, and never waited for longer than a moment."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

import pytest

from backends.tiers.interface import FetchState
from backends.tiers.redis import SOCKET_SECONDS, RedisTier
from tests.backends.core_builders import ManualClock
from tests.backends.tiers.builders import build_chain, build_entries, loaded, payload_of, payloads_of, store_all
from tests.backends.tiers.redis_server import RedisServer

PREFIX = "homing:kv:test:"


def build_tier(server: RedisServer, clock=None, digest: str | None = None, **settings) -> RedisTier:
    entries = build_entries(digest) if digest else build_entries()
    settings = {"prefix": PREFIX, "ttl_seconds": 100, **settings}
    return RedisTier(server.url, entries, clock=clock or ManualClock(), **settings)


def test_what_one_worker_stored_another_one_loads(redis_server: RedisServer):
    """In more than one round trip, and ending at the first miss."""
    blocks = build_chain(21)
    store_all(build_tier(redis_server), blocks[:20])
    other = build_tier(redis_server)
    assert other.lookup(blocks[0].name) is FetchState.PENDING
    assert loaded(other, blocks) == payloads_of(blocks[:20])
    assert other.counters.loads == 20
    assert loaded(other, blocks[20:]) == []
    assert other.counters.failed_loads == 0


def test_one_key_per_block_that_does_not_live_for_ever(redis_server: RedisServer):
    """A use renews its time."""
    tier, blocks = build_tier(redis_server), build_chain(2)
    store_all(tier, blocks)
    key = (PREFIX + blocks[0].name.hex()).encode()
    assert sorted(redis_server.client.keys("*")) == sorted((PREFIX + b.name.hex()).encode() for b in blocks)
    assert 90 < redis_server.client.ttl(key) <= 100
    redis_server.client.expire(key, 5)
    loaded(tier, blocks)
    assert redis_server.client.ttl(key) > 90


@pytest.mark.parametrize("value", [b"", b"x", b"\0" * 1000, b"HOMINGKV" + bytes(400), "flipped", "foreign", "other"])
def test_a_wrong_value_is_a_miss_and_deleted(redis_server: RedisServer, value: bytes | str):
    """Whatever somebody put there: too short, too long, damaged, of another config, of another block."""
    tier, blocks = build_tier(redis_server), build_chain(3)
    store_all(tier, blocks)
    key = PREFIX + blocks[1].name.hex()
    if value == "flipped":
        redis_server.client.setrange(key, 150, b"\xff\xfe")
    elif value == "foreign":
        store_all(build_tier(redis_server, digest="ba9876543210"), blocks[1:2])
    elif value == "other":
        redis_server.client.rename(PREFIX + blocks[2].name.hex(), key)
    else:
        redis_server.client.set(key, value)
    assert loaded(tier, blocks) == payloads_of(blocks[:1])
    assert tier.counters.broken == (0 if value == b"" else 1)
    assert value == b"" or not redis_server.client.exists(key)
    assert not tier.holds(blocks[1].name)


def test_a_huge_value_is_not_fetched_whole(redis_server: RedisServer):
    """One byte more than a block has tells enough."""
    tier, block = build_tier(redis_server), build_chain(1)[0]
    redis_server.client.set(PREFIX + block.name.hex(), b"x" * 50_000_000)
    before = redis_server.client.info("stats")["total_net_output_bytes"]
    assert loaded(tier, [block]) == []
    assert redis_server.client.info("stats")["total_net_output_bytes"] - before < 100_000


def test_a_value_of_another_type_is_a_failure_not_an_exception(redis_server: RedisServer):
    """Somebody else's list under our name."""
    tier, block = build_tier(redis_server), build_chain(1)[0]
    redis_server.client.rpush(PREFIX + block.name.hex(), "a")
    assert loaded(tier, [block]) == []
    assert tier.counters.failed_loads == 1


@pytest.mark.parametrize(
    "answer", [b"!!!\r\n", b"HTTP/1.1 400\r\n\r\n", b"*2\r\n$1\r\na\r\n$1\r\nb\r\n", b"+OK\r\n", b":5\r\n", b"%1\r\n"]
)
def test_whatever_a_server_answers_is_a_miss_and_never_raises(answer: bytes):
    """Something else may listen there, or a proxy lose its place in the stream."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection = server.accept()[0]
                    threading.Thread(target=answer_all, args=(connection,), daemon=True).start()

        def answer_all(connection: socket.socket) -> None:
            with suppress(OSError), connection:
                while connection.recv(1 << 16):
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url, blocks = f"redis://127.0.0.1:{server.getsockname()[1]}/0", build_chain(3)
        for use in (lambda tier: loaded(tier, blocks), lambda tier: store_all(tier, blocks), RedisTier.reset):
            tier = RedisTier(url, build_entries(), prefix=PREFIX, ttl_seconds=100, clock=ManualClock())
            assert not use(tier)
            assert tier.counters.loads == 0


def test_a_frozen_server_costs_a_moment_once(redis_server: RedisServer):
    """Then it is left alone, and asked again after a rest."""
    clock = ManualClock()
    tier, blocks = build_tier(redis_server, clock), build_chain(4)
    store_all(tier, blocks[:2])
    redis_server.freeze()
    begin = time.monotonic()
    assert loaded(tier, blocks) == []
    assert time.monotonic() - begin < 4 * SOCKET_SECONDS
    assert tier.lookup(blocks[0].name) is FetchState.MISS
    assert tier.holds(blocks[2].name), "resting: whoever asks is told not to bother"
    begin = time.monotonic()
    assert [loaded(tier, blocks) for _ in range(100)] == [[]] * 100
    assert time.monotonic() - begin < SOCKET_SECONDS
    redis_server.thaw()
    clock.sleep(60)
    assert loaded(tier, blocks) == payloads_of(blocks[:2])


def test_a_killed_server_is_a_miss_until_it_is_back(redis_server: RedisServer):
    """Stores are counted and lost, nothing raises; a new server is used without a restart."""
    clock = ManualClock()
    tier, blocks = build_tier(redis_server, clock), build_chain(2)
    store_all(tier, blocks)
    redis_server.kill()
    assert loaded(tier, blocks) == []
    clock.sleep(60)
    tier.store(blocks[0], payload_of(blocks[0]))
    assert (tier.counters.failed_loads, tier.counters.failed_stores) == (1, 1)
    redis_server.start()
    clock.sleep(60)
    assert loaded(tier, blocks) == []
    store_all(tier, blocks)
    assert loaded(tier, blocks) == payloads_of(blocks)


def test_down_at_the_start_is_no_error(redis_server: RedisServer):
    """It connects when it is used."""
    redis_server.kill()
    tier = build_tier(redis_server)
    assert loaded(tier, build_chain(1)) == []


def test_a_reset_deletes_this_configs_blocks_and_no_others(redis_server: RedisServer):
    """Other workers' of this config go too."""
    tier, blocks = build_tier(redis_server), build_chain(3)
    store_all(tier, blocks)
    store_all(build_tier(redis_server, prefix="homing:kv:other:"), blocks)
    tier.reset()
    assert loaded(tier, blocks) == []
    assert redis_server.client.dbsize() == 3


def test_what_this_worker_stored_it_does_not_offer_again(redis_server: RedisServer):
    """Until it is found to be gone."""
    tier, blocks = build_tier(redis_server), build_chain(1)
    store_all(tier, blocks)
    assert tier.holds(blocks[0].name)
    redis_server.client.flushall()
    loaded(tier, blocks)
    assert not tier.holds(blocks[0].name)


def test_its_figures(redis_server: RedisServer):
    """It knows what it moved, not how full the server is."""
    tier, blocks = build_tier(redis_server), build_chain(2)
    store_all(tier, blocks)
    stats = tier.stats()
    assert (stats.name, stats.limit_bytes, stats.usage, stats.counters.stores) == ("redis", None, 0.0, 2)


def test_a_url_that_is_none_is_refused():
    """When the tier is built, not when it is used."""
    with pytest.raises(ValueError, match="scheme"):
        RedisTier("http://host", build_entries(), prefix="", ttl_seconds=1, clock=time.monotonic)
