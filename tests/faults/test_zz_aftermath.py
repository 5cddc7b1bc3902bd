"""Rows Z-…: what the whole suite left behind: no key or prompt anywhere, no request that was made twice at once."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.faults.attempts import Ran, attempts_of, by_nonce, overlaps, read_attempts
from tests.faults.client import CANARY_KEY, CANARY_PROMPT, KEYS, load, load_while
from tests.faults.row import results_directory
from tests.faults.stage import Stage

CANARIES = (CANARY_KEY.encode(), CANARY_PROMPT.encode(), *(key.encode() for key in KEYS.values()))
PIECE_BYTES = 1 << 20


def files_of(*directories: Path) -> Iterable[Path]:
    for directory in directories:
        yield from (path for path in directory.rglob("*") if path.is_file())


def size_of(path: Path) -> int:
    return path.stat().st_size


def canaries_in(path: Path) -> list[bytes]:
    """Which of them a file holds; read piece by piece, for logs of gigabytes."""
    found, rest = set(), b""
    with path.open("rb") as source:
        while piece := source.read(PIECE_BYTES):
            found |= {canary for canary in CANARIES if canary in rest + piece}
            rest = piece[-64:]
    return sorted(found)


async def provoke(stage: Stage) -> None:
    """Everything that makes a gateway speak: faults, refusals, malformed heads and bodies, on debug level."""
    workers = await stage.start_workers(2)
    with stage.redis() as redis:
        redis.start()
        monitor = await _monitor(redis.port, stage.directory / "redis-monitor")
        gateway = await stage.gateway(redis={"url": redis.url}, limits={"body_bytes": 20_000})
        client = stage.client(gateway)
        for mode in ("ok", "rst0", "rst", "error", "429", "garbage"):
            for worker in workers:
                await worker.set(mode=mode)
            await load(client, 30, at_once=8)
        for bad in (
            b"{",
            b"null",
            CANARY_PROMPT.encode(),
            b'{"model":"' + CANARY_PROMPT.encode() + b'"}',
            b"x" * 30_000,
        ):
            await client.ask(body=bad)
        await client.ask(body=b'{"model":"m","messages":[{"role":"user","content":"' + CANARY_PROMPT.encode() + b'"}')
        stranger = stage.client(gateway, f"{CANARY_KEY}-unknown")
        await stranger.ask()
        for line in (f"Bearer {CANARY_KEY}\x00", f"Basic {CANARY_KEY}", f"{CANARY_KEY} {CANARY_PROMPT}", "Bearer"):
            await _malformed(stage, gateway.port, f"authorization: {line}\r\n")
        await _malformed(stage, gateway.port, f"x-{CANARY_PROMPT}: {CANARY_KEY}\r\n" * 200)
        for worker in workers:
            await worker.kill()
        await load(client, 20)
        await gateway.metrics()
        (stage.directory / "readyz").write_text(str(await gateway.readyz()))
        monitor.cancel()


async def _monitor(port: int, path: Path) -> asyncio.Task[None]:
    """What Redis is told, written down as it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"MONITOR\r\n")

    async def write() -> None:
        with path.open("wb") as sink:
            while data := await reader.read(PIECE_BYTES):
                sink.write(data)
                sink.flush()
        writer.close()  # held until here: a writer that nobody holds closes its connection

    return asyncio.create_task(write())


async def _malformed(stage: Stage, port: int, field: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{field}content-length: 2\r\n\r\n{{}}".encode())
    with suppress(OSError, TimeoutError):
        answer = await asyncio.wait_for(reader.read(PIECE_BYTES), 5)
        with (stage.directory / "error-bodies").open("ab") as sink:
            sink.write(answer)
    writer.close()


@pytest.mark.row("Z-G6", smoke=True, seconds=240)
async def test_no_key_and_no_prompt_is_in_anything_that_was_written(stage: Stage) -> None:
    """Logs, metrics, error bodies, readiness, what Redis was told: of this test, and of the whole suite before it."""
    await provoke(stage)
    results = results_directory()
    places = [stage.directory, *([results] if results else [])]
    paths = [path for path in {*files_of(*places)} if path.suffix != ".pytest"]
    hits = {str(path): found for path in paths if (found := canaries_in(path))}
    size = sum(map(size_of, paths)) / 1024 / 1024
    assert any(path.stat().st_size for path in files_of(stage.directory) if path.name.startswith("redis-monitor"))
    stage.row.holds(f"{len(hits)} of {len(paths)} files ({size:.0f} MiB) have a canary in them {hits or ''}", not hits)


@pytest.mark.row("Z-A3", smoke=True, seconds=240)
async def test_no_request_was_ever_made_twice_at_once(stage: Stage) -> None:
    """By the workers' own logs: of a load with every fault in it, and of the whole suite before it."""
    workers = await stage.start_workers(4, first_seconds=0.01, gap_seconds=0.005)
    gateway = await stage.gateway(timeouts={"first_byte_seconds": 0.3, "idle_seconds": 0.3})
    client, over = stage.client(gateway), False

    async def trouble() -> None:
        turn = 0
        while not over:
            turn += 1
            mode = ("rst0", "fin0", "hang", "rst", "stall", "error", "garbage")[turn % 7]
            await workers[turn % 4].set(mode=mode, share=0.5)
            await asyncio.sleep(0.1)
            await workers[turn % 4].set(mode="ok")

    troubling = asyncio.create_task(trouble())
    stop_at = asyncio.get_running_loop().time() + stage.row.size(15, 2)
    await load_while(client, lambda: asyncio.get_running_loop().time() < stop_at, at_once=16, stream=True)
    over = True
    await troubling
    attempts = read_attempts(results_directory() or stage.directory)
    retried = sum(len(tries) > 1 for tries in by_nonce(attempts).values())
    found = overlaps(attempts)
    longest = f", {1e6 * max(found):.0f} µs the longest" if found else ""
    stage.row.holds(f"{len(found)} overlaps in {len(attempts)} attempts, {retried} retried{longest}", not found)


def test_an_overlap_is_found_where_there_is_one() -> None:
    """Two attempts at a request, one beginning before the other's end; a kill and a freeze end what runs. What never
    ended runs on."""

    def line(t: float, **fields: object) -> dict:
        return {"t": t, "nonce": "a", "salt": None, **fields}

    def another(began: float) -> list[Ran]:
        return attempts_of([line(began, begin=1), line(4.0, end=1, why="done")], "other")

    one = attempts_of([line(1.0, begin=1), line(3.0, end=1, why="gone")], "one")
    assert overlaps([*one, *another(2.5)]) == [0.5]
    assert overlaps([*one, *another(3.0)]) == []
    assert overlaps([*attempts_of([line(1.0, begin=1)], "one"), *another(3.0)]) == [1.0]
    killed = attempts_of([line(1.0, begin=1), line(2.1, begin=2), {"t": 2.0, "died": True}, line(2.2, begin=3)], "one")
    assert [(run.ended, run.why) for run in killed] == [(2.0, "died"), (2.1, "died"), (math.inf, None)]
