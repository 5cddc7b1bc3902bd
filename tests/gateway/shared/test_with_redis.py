"""Gateways on a real Redis that is killed, frozen, flushed and filled with rubbish: no request notices, all rejoin."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.shared.link import CALL_SECONDS
from gateway.shared.wire import BATCH_BYTES
from tests.end_to_end.redis_server import RedisServer, redis_server
from tests.gateway.builders import SALT_SECRET
from tests.gateway.running_gateway import Running, running_gateway
from tests.gateway.scripted_worker import ScriptedWorker, stream_then, until
from tests.gateway.shared.trio import REJOIN_SECONDS, backend, conversation, readiness, told_everybody, trio

CANARY = "canary-7f3a the prompt that must not be in Redis"


@pytest.fixture
def redis(tmp_path: Path):
    with redis_server(tmp_path) as server:
        yield server


async def test_the_next_turn_through_another_gateway_goes_to_the_same_worker(redis):
    """Three gateways are one: whoever is asked knows who has the conversation."""
    async with trio(redis.url) as group:
        for number in range(4):
            first = await backend(group.gateways[number % 3], conversation(number))
            for turn in range(2, 5):
                await told_everybody(group)
                assert await backend(group.gateways[(number + turn) % 3], conversation(number, turn)) == first
        await told_everybody(group)
        assert group.in_flight() == [0, 0, 0]


async def test_redis_that_is_killed_and_comes_back_costs_no_request(redis):
    """C2, C5: no error, alone within a second, rejoined within a few, and /readyz says yes all along."""
    async with trio(redis.url) as group:
        await group.traffic(0.5)
        redis.kill()
        await group.traffic(0.2)
        await until(group.alone)
        status, body = await readiness(group.gateways[0])
        assert (status, body["degraded"]) == (200, ["redis"])
        await group.traffic(0.5)
        redis.start()
        began = time.monotonic()
        await asyncio.gather(group.traffic(1.0), until(group.joined))
        assert time.monotonic() - began < REJOIN_SECONDS
        status, body = await readiness(group.gateways[0])
        assert (status, body["degraded"]) == (200, [])
        await until(lambda: group.in_flight() == [0, 0, 0])
        group.all_well()


async def test_a_frozen_redis_costs_no_request_and_no_time(redis):
    """C3: SIGSTOP. At most three slow calls a gateway and connection, none of them on a request's path."""
    async with trio(redis.url) as group:
        redis.freeze()
        await group.traffic(1.5)
        await until(group.alone)
        assert statistics.median(group.seconds) < CALL_SECONDS / 2
        assert all(1 <= each.count("redis_errors_total") <= 6 for each in group.gateways)
        redis.thaw()
        await until(group.joined, REJOIN_SECONDS)
        await group.traffic(0.3)
        group.all_well()


async def test_a_flushed_redis_is_not_even_noticed(redis):
    """C6: FLUSHALL during traffic: still joined, and a gateway that joins later learns what is told from then on."""
    async with trio(redis.url) as group:
        await group.traffic(0.4)
        for _ in range(3):
            assert redis.command("FLUSHALL") == b"+OK\r\n"
            await group.traffic(0.2)
        assert group.joined()
        assert sum(each.count("news_unresolved_total") for each in group.gateways) == 0
        group.all_well()


async def test_a_gateway_starts_without_redis_and_joins_when_it_comes(redis):
    """C1: down at start is degraded, not unready; /readyz waits no longer than it was told to."""
    redis.kill()
    async with trio(redis.url, count=1) as group:
        status, body = await readiness(group.gateways[0])
        assert (status, body["degraded"]) == (200, ["redis"])
        assert group.gateways[0].count("replica_state", state="alone") == 1
        await group.traffic(0.1)
        redis.start()
        await until(group.joined, REJOIN_SECONDS)
        assert group.gateways[0].count("replica_state", state="joined") == 1
        group.all_well()


async def test_a_gateway_that_joins_knows_the_conversations(redis):
    """It reads the stream before it is ready, and places the first request where the prefix is."""
    async with trio(redis.url, count=2) as group:
        placed = [await backend(group.gateways[0], conversation(number, 2)) for number in range(6)]
        await told_everybody(group)
        ports = [worker.port for worker in group.workers]
        async with running_gateway(*ports, redis_url=redis.url) as joiner:
            assert joiner.count("news_heard_total", kind="placed") == 6
            assert [await backend(joiner, conversation(number, 3)) for number in range(6)] == placed


async def test_open_requests_of_all_gateways_are_known_to_all_and_end_for_all(redis):
    """Streams in flight count everywhere while they last, and nowhere after."""
    release = asyncio.Event()

    async def wait_for_release(exchange):
        await release.wait()
        await exchange.end_stream() if hasattr(exchange, "end_stream") else exchange.close()

    async with trio(redis.url, script=stream_then(1, wait_for_release)) as group:
        asking = [
            asyncio.create_task(each.ask(messages=conversation(number), stream=True))
            for number, each in enumerate(group.gateways)
        ]
        await until(lambda: group.in_flight() == [3, 3, 3])
        release.set()
        await asyncio.gather(*asking, return_exceptions=True)
        await until(lambda: group.in_flight() == [0, 0, 0])


@pytest.mark.parametrize("kind", ["entries", "string", "list"])
async def test_hostile_values_in_redis_are_counted_and_hurt_nobody(redis, kind):
    """C12: rubbish in the stream is passed over; a key of another type means alone until it is gone."""
    async with trio(redis.url, count=2) as group:
        await group.traffic(0.2)
        if kind == "entries":
            for value in (b"", b"\x80\x04pickle", b"\x01" * 200, b"x" * (BATCH_BYTES + 1), b"y" * 3_000_000):
                redis.command("XADD", "homing:news", "*", "n", value)
            redis.command("XADD", "homing:news", "*", "other", "field", "n", "v")
            await group.traffic(0.3)
            await until(lambda: all(ignored(each) >= 6 for each in group.gateways))
            assert group.joined()
        else:
            redis.command("DEL", "homing:news")
            redis.command(*(("SET", "homing:news", "x") if kind == "string" else ("RPUSH", "homing:news", "x")))
            await group.traffic(0.3)
            await until(group.alone)
            redis.command("DEL", "homing:news")
            await until(group.joined, REJOIN_SECONDS)
        group.all_well()


def ignored(gateway: Running) -> float:
    reasons = ("malformed", "version", "forged", "oversized")
    return sum(gateway.count("news_ignored_total", reason=reason) for reason in reasons)


async def test_no_prompt_no_key_no_salt_and_no_name_is_in_redis(redis):
    """G6: MONITOR sees everything that is ever written."""
    reader, writer = await asyncio.open_connection("127.0.0.1", redis.port)
    writer.write(b"*1\r\n$7\r\nMONITOR\r\n")
    assert await reader.readline() == b"+OK\r\n"
    async with trio(redis.url, count=2) as group:
        for number in range(4):
            answer = await group.gateways[number % 2].ask(
                key="acme-key", messages=[{"role": "user", "content": f"{CANARY} {number} " * 30}], user="canary-user"
            )
            assert answer.status == 200
        await told_everybody(group)
        salts = {bytes_of(worker, "cache_salt") for worker in group.workers}
        await until(lambda: all(each.count("news_bytes_total", direction="out") > 500 for each in group.gateways))
    seen = await read_what_is_there(reader)
    writer.close()
    assert seen.count(b"XADD") > 4
    names = [b"canary", b"acme", SALT_SECRET.encode(), b"w1", b"w2", b"127.0.0.1:" + b"x", *filter(None, salts)]
    assert [name for name in names if name in seen] == []


def bytes_of(worker: ScriptedWorker, name: str) -> bytes:
    asked = [exchange.asked for exchange in worker.exchanges if exchange.body]
    return str(next((body[name] for body in asked if name in body), "")).encode()


async def read_what_is_there(reader: asyncio.StreamReader) -> bytes:
    seen = b""
    try:
        while True:
            seen += await asyncio.wait_for(reader.read(1 << 20), 0.3)
    except TimeoutError:
        return seen


async def test_a_slow_redis_is_as_good_as_none(redis):
    """C4: 200 ms a call: alone, and requests as fast as ever."""
    async with slow_proxy(redis.port, 0.2) as port, trio(f"redis://127.0.0.1:{port}/0", count=2) as group:
        await group.traffic(0.5)
        assert group.alone()
        assert statistics.median(group.seconds) < CALL_SECONDS / 2
        group.all_well()


async def test_an_entry_that_is_too_long_to_read_in_time_is_passed_over(redis, monkeypatch):
    """Who can add and not read is alone, though only until the poisoned entry is given up."""
    monkeypatch.setattr("gateway.shared.link.PAGE_SECONDS", 0.2)
    monkeypatch.setattr("gateway.shared.replicas.PROBE_SECONDS", 0.1)
    async with slow_proxy(redis.port, 0.02) as port, trio(f"redis://127.0.0.1:{port}/0", count=1) as group:
        await until(group.joined, REJOIN_SECONDS)
        redis.command("XADD", "homing:news", "*", "n", b"x" * 6_000_000)
        await until(group.alone, REJOIN_SECONDS)
        await until(group.joined, REJOIN_SECONDS)
        heard = group.gateways[0].count("news_lag_seconds_count")
        await group.traffic(0.2)
        await until(lambda: group.gateways[0].count("news_lag_seconds_count") > heard)
        assert group.joined()
        group.all_well()


async def test_a_flood_of_foreign_entries_is_read_through_and_not_begun_again(redis, monkeypatch, caplog):
    """What comes late behind them is no sign of another stream."""
    monkeypatch.setattr("gateway.shared.stream._DEAF_SECONDS", 0.5)
    caplog.set_level("WARNING", logger="homing.shared")
    async with trio(redis.url, count=1) as group:
        flood = "for i = 1, 12000 do redis.call('XADD', KEYS[1], '*', 'n', 'x') end"
        redis.command("EVAL", flood, "1", "homing:news")
        await group.traffic(0.3)
        await until(lambda: ignored(group.gateways[0]) >= 12_000)
        assert "alone" not in caplog.text
        group.all_well()


@asynccontextmanager
async def slow_proxy(target: int, delay_seconds: float) -> AsyncIterator[int]:
    """Passes bytes on late, both ways."""
    tasks: set[asyncio.Task] = set()

    async def pump(reader, writer):
        while data := await reader.read(65536):
            await asyncio.sleep(delay_seconds)
            writer.write(data)

    async def serve(reader, writer):
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", target)
        both = (pump(reader, other_writer), pump(other_reader, writer))
        tasks.update(asyncio.create_task(each) for each in both)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_the_log_has_one_line_for_each_change(redis: RedisServer, caplog):
    """Alone and joined, with the reason, and nothing of the URL."""

    async def away_and_back() -> None:
        async with trio(redis.url, count=1) as group:
            redis.kill()
            await until(group.alone)
            await asyncio.sleep(1.5)
            redis.start()
            await until(group.joined, REJOIN_SECONDS)

    caplog.set_level("INFO", logger="homing.shared")
    asyncio.run(away_and_back())
    said = [record for record in caplog.records if record.name == "homing.shared"]
    assert [record.message.split(",")[0] for record in said] == [
        "joined the other replicas",
        "going on alone",
        "joined the other replicas",
    ]
    assert str(redis.port) not in json.dumps([str(record.__dict__) for record in said])
