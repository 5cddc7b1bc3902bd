"""The bad network and the failing worker do what they say: without that, no row means anything."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.faults.attempts import read_attempts
from tests.faults.client import Client, load
from tests.faults.proxy import FaultProxy, fault_proxy
from tests.faults.stage import FaultWorker, until


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


async def there_and_back(proxy: FaultProxy, data: bytes, seconds: float = 2.0) -> tuple[bytes, float]:
    """What comes back of what is sent, and after how long all of it had."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    began, got = time.monotonic(), b""
    writer.write(data)
    try:
        async with asyncio.timeout(seconds):
            while len(got) < len(data) and (piece := await reader.read(65536)):
                got += piece
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return got, time.monotonic() - began


async def test_the_network_is_as_bad_as_it_is_told() -> None:
    """Delay, throttle, cut, swallow, reset: each by itself, and none when told so."""
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server, fault_proxy("127.0.0.1", server.sockets[0].getsockname()[1]) as proxy:
        assert (await there_and_back(proxy, b"hello"))[0] == b"hello"
        proxy.delay_seconds = 0.1
        got, seconds = await there_and_back(proxy, b"late")
        assert got == b"late"
        assert seconds >= 0.2
        proxy.delay_seconds, proxy.bytes_per_second = 0.0, 1_000_000.0
        got, seconds = await there_and_back(proxy, b"x" * 300_000)
        assert len(got) == 300_000
        assert seconds >= 0.15
        proxy.bytes_per_second, proxy.cut_after_bytes = None, 3
        assert (await there_and_back(proxy, b"hello"))[0] == b"hel"
        proxy.cut_after_bytes, proxy.blackhole = None, True
        assert (await there_and_back(proxy, b"hello", 0.2))[0] == b""
        proxy.blackhole, proxy.refuse = False, True
        assert (await there_and_back(proxy, b"hello", 0.5))[0] == b""
        proxy.refuse = False
        assert (await there_and_back(proxy, b"hello"))[0] == b"hello"


@pytest.mark.parametrize(
    ("mode", "ends"),
    [("ok", "done"), ("rst0", "reset"), ("fin0", "fin"), ("rst", "reset"), ("fin", "fin"), ("error", "refused"),
     ("429", "refused"), ("stall", "gone"), ("hang", "gone"), ("garbage", "fin")],
)  # fmt: skip
async def test_the_worker_fails_as_it_is_told_and_says_so(tmp_path: Path, mode: str, ends: str) -> None:
    """Asked directly: how the client sees it end, and how the log tells it."""
    worker = FaultWorker("w", tmp_path)
    await worker.start()
    try:
        state = await worker.set(mode=mode)
        assert state["mode"] == mode
        (answer,) = await load(Client(worker.port, seconds=0.3), 1, stream=True)
        assert answer.ok == (mode == "ok")
        assert answer.body.count(b"data: ") == {"ok": 6, "rst": 3, "fin": 3, "stall": 3}.get(mode, 0)

        async def over() -> bool:
            return not (await worker.state())["live"]

        await until(over)
    finally:
        await worker.stop()
    (attempt,) = read_attempts(tmp_path)
    assert (attempt.nonce, attempt.why) == (answer.nonce, ends)
