"""A giver that fails in the middle of its stream: the puller neither believes it nor waits for it."""

from __future__ import annotations

import asyncio
import threading

from backends.exchange import pull as pulling
from backends.exchange.block_stream import decode_head, encode_head
from tests.backends.exchange.exchange_builders import PROMPT, giver, pull, taker, two_workers


async def test_a_fault_of_the_giver_cuts_the_stream_off(tmp_path, monkeypatch):
    """Its engine may die; what came before is used, and the puller knows at once."""
    monkeypatch.setattr("backends.exchange.routes.BATCH_BYTES", 1)
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        read, calls = first.worker.holdings.read, []

        def read_twice(keys):
            calls.append(keys)
            if len(calls) > 2:
                raise RuntimeError
            return read(keys)

        monkeypatch.setattr(first.worker.holdings, "read", read_twice)
        async with asyncio.timeout(pulling.SILENCE_SECONDS):
            answer = await pull(second, first.url, PROMPT)
        assert (answer["reason"], answer["pulled_tokens"]) == ("truncated", 8)
        assert first.worker.exchange.serving == 0


async def test_a_giver_that_takes_too_long_cuts_the_stream_off(tmp_path, monkeypatch):
    """Its own time is over, long before the puller's would be."""
    monkeypatch.setattr("backends.exchange.routes.BATCH_BYTES", 1)
    monkeypatch.setattr("backends.exchange.routes.TOTAL_SECONDS", 0.3)
    async with two_workers(tmp_path) as (first, second):
        await first.complete(PROMPT)
        read, calls, released = first.worker.holdings.read, [], threading.Event()

        def read_once(keys):
            calls.append(keys)
            if len(calls) > 1:
                released.wait(10)
            return read(keys)

        monkeypatch.setattr(first.worker.holdings, "read", read_once)
        try:
            async with asyncio.timeout(pulling.SILENCE_SECONDS - 1):
                answer = await pull(second, first.url, PROMPT)
        finally:
            released.set()
        assert (answer["reason"], answer["pulled_tokens"]) == ("truncated", 4)


async def test_a_stream_that_is_no_http_any_more_is_given_up(tmp_path, monkeypatch):
    """Somebody between the two broke it, and holds the connection."""
    monkeypatch.setattr(pulling, "SILENCE_SECONDS", 0.3)
    released, head_read = asyncio.Event(), asyncio.Event()

    def decode_and_tell(*arguments):
        head_read.set()
        return decode_head(*arguments)

    monkeypatch.setattr(pulling, "decode_head", decode_and_tell)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = pulling.HEAD_BYTES
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n" % head)
        writer.write(heads[0] + b"\r\n")
        await writer.drain()
        await head_read.wait()
        writer.write(b"HTTP/1.1 500 X\r\n\r\n")
        await released.wait()
        writer.close()

    heads: list[bytes] = []
    async with giver(tmp_path) as first:
        holdings = first.worker.holdings
        entries = pulling.EntryFormat(holdings.kv_digest, 16, holdings.payload_bytes)
        heads.append(encode_head(pulling.Head(holdings.kv_digest, entries.entry_bytes, 10)))
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with taker(tmp_path, url) as second, asyncio.timeout(10):
        answer = await pull(second, url, PROMPT)
        assert answer["pulled_tokens"] == 0
        assert answer["reason"] in ("peer_hangs", "peer_down")
        released.set()
    server.close()


async def test_a_peer_cannot_send_the_puller_elsewhere(tmp_path):
    """Only named peers are asked, and only they see the token: a redirect is not followed."""
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        place = f"http://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}/secret"
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: {place}\r\nConnection: close\r\n\r\n".encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as elsewhere:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as peer:
            url = f"http://127.0.0.1:{peer.sockets[0].getsockname()[1]}"
            async with taker(tmp_path, url) as second:
                assert (await pull(second, url, PROMPT))["reason"] == "peer_error"
    assert len(asked) == 1


async def test_only_so_many_pulls_run_at_once(tmp_path):
    """The others wait: what comes in is memory, and each stored batch holds up a step."""
    asked: list[bytes] = []
    more, released = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if len(asked) == pulling.PULLS_AT_ONCE:
            more.set()
        await released.wait()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as peer:
        url = f"http://127.0.0.1:{peer.sockets[0].getsockname()[1]}"
        async with taker(tmp_path, url) as second, asyncio.TaskGroup() as pulls:
            for number in range(pulling.PULLS_AT_ONCE + 2):
                pulls.create_task(pull(second, url, [number, *PROMPT]))
            await more.wait()
            for _ in range(20):  # as many answers as would let another pull begin
                assert (await second.client.get("/health")).status == 200
            assert len(asked) == pulling.PULLS_AT_ONCE
            released.set()


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
