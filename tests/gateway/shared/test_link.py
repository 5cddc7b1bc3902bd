"""The link to a real Redis: bounded in time, and no call ever reads another's answer."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.shared.link import CALL_SECONDS, ENTRIES_PER_PAGE, Link, LinkError, id_seconds
from tests.end_to_end.redis_server import RedisServer, redis_server

STREAM = "homing:news"
CANCELS = 1500


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@asynccontextmanager
async def build_link(redis: RedisServer) -> AsyncIterator[Link]:
    redis.command("FLUSHALL")
    async with Link(redis.url, STREAM) as link:
        yield link


@asynccontextmanager
async def scripted(answer: bytes, *, greets: bool = False) -> AsyncIterator[str]:
    """Something that answers every command with the same bytes, the greeting only if not `greets`; its URL."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while asked := await reader.read(65536):
            greetings = asked.count(b"CLIENT") + asked.count(b"SELECT") if greets else 0
            writer.write(b"+OK\r\n" * greetings + (b"" if greetings else answer))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    finally:
        server.close()


async def test_what_is_added_is_read_in_order(redis):
    """Pages of bounded length, from any id on."""
    async with build_link(redis) as link:
        for number in range(ENTRIES_PER_PAGE + 6):
            await link.add(b"%d" % number, 1000)
        first = await link.read(b"0-0", 0.0)
        rest = await link.read(first[-1].id, 0.0)
        values = [int(entry.value or b"-1") for entry in (*first, *rest)]
        assert (len(first), values) == (ENTRIES_PER_PAGE, list(range(ENTRIES_PER_PAGE + 6)))
        assert await link.read(rest[-1].id, 0.0) == []
        assert abs(rest[-1].at - await link.time()) < 5


async def test_reading_waits_for_what_comes(redis):
    """An entry that is added while somebody waits arrives at once; none comes after the wait."""
    async with build_link(redis) as link:
        reading = asyncio.create_task(link.read(b"0-0", 5.0))
        await asyncio.sleep(0.05)
        await link.add(b"news", 1000)
        assert [entry.value for entry in await asyncio.wait_for(reading, 1)] == [b"news"]
        assert await link.read((await reading)[0].id, 0.05) == []


async def test_the_stream_is_trimmed_and_ends_by_itself(redis):
    """About as many entries as told; a key that nobody tends expires."""
    async with build_link(redis) as link:
        for _ in range(600):
            await link.add(b"x" * 200, 100)
        assert 100 <= await link.tend(100) < 350
        assert redis.command("TTL", STREAM).startswith((b":9", b":100"))


async def test_a_cancelled_call_never_gives_its_answer_to_another(redis):
    """C11: calls cancelled at random moments; every answer that comes is of its own call."""
    dice = random.Random(7)
    async with build_link(redis) as link:
        for number in range(CANCELS):
            kind = dice.choice((link.time, lambda: link.tend(1000), lambda: link.read(b"0-0", 0.0)))
            call = asyncio.create_task(kind())
            if dice.random() < 0.5:
                for _ in range(dice.randrange(6)):
                    await asyncio.sleep(0)
                call.cancel()
            try:
                answer = await call
            except asyncio.CancelledError:
                continue
            except LinkError:
                continue
            if kind == link.time:
                assert isinstance(answer, float), number
                assert abs(answer - time.time()) < 5
            else:
                assert answer in (0, []), number
                assert isinstance(answer, list) == (answer == [])


async def test_an_answer_that_comes_too_late_is_nobodys(redis):
    """A call gives up in time; after the thaw the next one reads its own answer."""
    async with build_link(redis) as link:
        await link.add(b"before", 1000)
        redis.freeze()
        began = time.monotonic()
        with pytest.raises(LinkError, match="no answer in time"):
            await link.add(b"during", 1000)
        with pytest.raises(LinkError, match="no answer in time"):
            await link.time()
        assert time.monotonic() - began < 2 * CALL_SECONDS + 1
        redis.thaw()
        assert await link.tend(1000) in (1, 2)
        assert isinstance(await link.time(), float)
        assert all(entry.value in (b"before", b"during") for entry in await link.read(b"0-0", 0.0))


@pytest.mark.parametrize(
    "answer",
    [
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-MOVED 3999 127.0.0.1:6381\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
        b"!garbage\r\n",
        b"*-7\r\n$x",
        b":seven\r\n",
        b"$nine\r\n",
        b"*1\r\n" * 5000,
    ],
)
async def test_whatever_redis_says_is_an_error_of_the_link(answer):
    """C7: fail-over and nonsense are the same as down; the error's words hold nothing of the URL."""
    async with scripted(answer) as url, Link(url.replace("127", "user:hunter2@127"), STREAM) as link:
        for call in (link.add(b"x", 10), link.time(), link.tend(10), link.read(b"0-0", 0.0)):
            with pytest.raises(LinkError) as caught:
                await call
            assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "answer", [b":5\r\n", b"+OK\r\n", b"$3\r\nabc\r\n", b"*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n:7\r\n*0\r\n"]
)
async def test_an_answer_of_another_kind_is_an_error_of_the_link(answer):
    """Something that speaks the protocol and is no Redis is as good as none, and no fault of ours."""
    async with scripted(answer, greets=True) as url, Link(url, STREAM) as link:
        for call in (link.time, lambda: link.read(b"0-0", 0.0)):
            with pytest.raises(LinkError, match="none of Redis'"):
                await call()


async def test_a_host_that_is_no_name_is_an_error_of_the_link():
    """Python refuses to look it up with an error of its own kind."""
    async with Link("redis://a..b:6379/0", STREAM) as link:
        with pytest.raises(LinkError):
            await link.time()


async def test_nobody_there_is_an_error_at_once():
    """A refused connection costs no time."""
    async with Link("redis://127.0.0.1:1/0", STREAM) as link:
        began = time.monotonic()
        with pytest.raises(LinkError, match="ConnectionError"):
            await link.time()
        assert time.monotonic() - began < CALL_SECONDS + 0.5


def test_the_time_of_an_id():
    """Milliseconds before the dash."""
    assert id_seconds(b"1500-3") == 1.5
