"""What clients can do to the gateway: idle by the thousand, not read, be slow, send too much, inflate, leave.

    python bench/connections.py [--json FILE] [--only NAME]

starts `homing serve` before a worker of this process and prints each figure beside its bar; exits 1 where one is
missed. Latencies of good traffic are compared with a control of the same process and minute, slice by slice. Needs
about 11,000 open files (`ulimit -Hn`) and two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gzip
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench.connection_stage import LIMIT_BYTES, Figure, Here, line, p99, quiet, reached, stage
from bench.live.processes import ROOT
from bench.raw_http import Client, deaf_socket, good_traffic, head, request
from gateway.bodies import zstd

IDLE, STALLED, SLOW, LEAVERS = 10_000, 100, 1_000, 100
SLICES, SLICE_SECONDS = 7, 3.0
GIGABYTE = 2**30
BOMB_BYTES = 256 * 2**20
BOMBS = 5


async def idle(here: Here) -> list[Figure]:
    """Ten thousand connections that have asked once and are kept."""
    wire = head("", "/v1/models", "GET")

    async def hold(count: int) -> list[Client]:
        clients = []
        for _ in range(count // 100):
            some = await asyncio.gather(*(Client.connect(here.port) for _ in range(100)))
            await asyncio.gather(*(client.ask(wire) for client in some))
            clients += some
        return clients

    for client in await hold(500):
        client.close()
    await asyncio.sleep(0.5)
    before = here.rss_kib()
    clients = await hold(IDLE)
    await asyncio.sleep(0.5)
    each = (here.rss_kib() - before) / IDLE
    served = [await client.ask(wire) for client in clients[:: IDLE // 100]]
    for client in clients:
        client.close()
    await asyncio.sleep(1.0)
    return [
        Figure(f"{IDLE:,} idle connections: memory each", each, 12.0, "KiB"),
        Figure("  of 100 of them asked again: not answered", sum(status != 200 for status in served), 0, ""),
    ]


@asynccontextmanager
async def stalled(here: Here) -> AsyncIterator[float]:
    """A hundred clients that ask for long streams and read nothing; yields KiB each."""
    before = here.rss_kib()
    deaf = [deaf_socket(here.port) for _ in range(STALLED)]
    try:
        for each in deaf:
            each.sendall(request("flood", stream=True))
        await quiet(lambda: here.worker.sent)
        yield (here.rss_kib() - before) / STALLED
    finally:
        for each in deaf:
            each.close()


async def stalled_readers(here: Here) -> list[Figure]:
    """What they hold, and what good traffic feels of them."""
    each: list[float] = []

    @asynccontextmanager
    async def beside() -> AsyncIterator[None]:
        async with stalled(here) as kib:
            each.append(kib)
            yield

    figures = await against_control(here, f"{STALLED} stalled readers", beside)
    return [Figure(f"{STALLED} stalled readers: memory each", max(each), 1024.0, "KiB"), *figures]


async def slow_clients(here: Here) -> list[Figure]:
    """A thousand that send heads and bodies a byte or a line a second."""
    return await against_control(here, f"{SLOW:,} slowloris", lambda: slowloris(here.port))


@asynccontextmanager
async def slowloris(port: int) -> AsyncIterator[None]:
    """They live in a process of their own, which good traffic does not share."""
    arguments = (sys.executable, "-m", "bench.raw_http", str(port), str(SLOW))
    child = await asyncio.create_subprocess_exec(*arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    assert child.stdout is not None
    await child.stdout.readline()
    try:
        yield
    finally:
        child.kill()
        await child.wait()


async def against_control(
    here: Here, what: str, beside: Callable[[], AbstractAsyncContextManager[None]]
) -> list[Figure]:
    """Good traffic alone and beside something, in turn; p99 as the median of the slices' ratios."""
    ratios, errors = [], 0
    for _ in range(SLICES):
        await quiet(lambda: here.worker.sent)
        alone, failed = await good_traffic(here.port, SLICE_SECONDS)
        async with beside():
            pressed, more = await good_traffic(here.port, SLICE_SECONDS)
        errors += failed + more
        ratios.append(p99(pressed) / p99(alone))
        print(f"    {what}: p99 {p99(alone) * 1e3:.2f} ms alone, {p99(pressed) * 1e3:.2f} ms beside", file=sys.stderr)
    return [
        Figure(f"{what}: good p99, times the control", statistics.median(ratios), 1.2, "x"),
        Figure(f"{what}: errors of good traffic", errors, 0, ""),
    ]


async def gigabyte(here: Here) -> list[Figure]:
    """Bodies of 1 GB, by their length and in chunks: what the gateway reads of them."""
    declared = await read_of_flood(here, f"content-length: {GIGABYTE}\r\n", b"x" * 65536)
    chunked = await read_of_flood(here, "transfer-encoding: chunked\r\n", b"10000\r\n" + b"x" * 65536 + b"\r\n")
    bar = LIMIT_BYTES / 1024 + 64
    return [
        Figure("1 GB body, declared: read of it", declared / 1024, bar, "KiB"),
        Figure("1 GB body, chunked: read of it", chunked / 1024, bar, "KiB"),
    ]


async def read_of_flood(here: Here, framing: str, piece: bytes) -> float:
    """Bytes of a body without end that the gateway has read, when its client stops sending at the answer.

    What waits in the gateway's socket is not read, so it is taken off; for that the gateway has to be asked while it
    leaves the connection open, and not once a client that was stuck in sending hears of the close.
    """
    client = await Client.connect(here.port)
    own_port = client.writer.get_extra_info("sockname")[1]
    client.writer.write(head(framing))
    sending = asyncio.create_task(flood(client, piece))
    status = int((await client.reader.readuntil(b"\r\n\r\n"))[9:12])
    sending.cancel()
    await asyncio.sleep(0.3)
    acked, unread = acknowledged(client), waiting_in_socket(here.port, own_port)
    client.writer.transport.abort()
    if status != 413:
        raise SystemExit(f"a body of 1 GB was answered with {status}")
    wire_share = 65536 / len(piece)
    return (acked - unread) * wire_share


async def flood(client: Client, piece: bytes) -> None:
    """A gigabyte in pieces, as fast as they are taken."""
    with contextlib.suppress(ConnectionError):
        for _ in range(GIGABYTE // len(piece)):
            client.writer.write(piece)
            await client.writer.drain()


def acknowledged(client: Client) -> int:
    """Bytes that the other side's kernel has taken: tcpi_bytes_acked of Linux's tcp_info."""
    info = client.writer.get_extra_info("socket").getsockopt(6, 11, 256)
    return int.from_bytes(info[120:128], sys.byteorder)


def waiting_in_socket(local: int, remote: int) -> int:
    """Bytes that the gateway's socket for this client holds and the gateway has not read."""
    for told in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = told.split()
        if (fields[1][-4:], fields[2][-4:]) == (f"{local:04X}", f"{remote:04X}"):
            return int(fields[4].partition(":")[2], 16)
    return 0


async def bombs(here: Here) -> list[Figure]:
    """Small bodies that inflate to much: how long nobody else is answered meanwhile, the least of several times."""
    plain = bytes(BOMB_BYTES)
    packed = {"gzip": gzip.compress(plain, 6), "zstd": zstd.compress(plain)}
    figures = []
    for encoding, bomb in packed.items():
        worst = [await longest_wait(here, encoding, bomb) for _ in range(BOMBS)]
        name = f"{encoding} bomb of {len(bomb) // 1024:,} KiB for {BOMB_BYTES // 2**20} MiB: loop stalls"
        figures.append(Figure(name, min(worst) * 1e3, 20.0, "ms"))
    return figures


async def longest_wait(here: Here, encoding: str, bomb: bytes) -> float:
    """Seconds of the slowest /livez while the bomb is taken in, less the quickest."""
    looker, thrower = await Client.connect(here.admin), await Client.connect(here.port)
    wire = b"GET /livez HTTP/1.1\r\nhost: bench\r\n\r\n"
    thrower.writer.write(head(f"content-length: {len(bomb)}\r\ncontent-encoding: {encoding}\r\n") + bomb)
    answered = asyncio.create_task(thrower.reader.readuntil(b"\r\n\r\n"))
    waits = []
    while not answered.done() or len(waits) < 20:
        began = time.monotonic()
        await looker.ask(wire)
        waits.append(time.monotonic() - began)
    if (await answered)[9:12] != b"413":
        raise SystemExit("a bomb was not answered with 413")
    looker.close()
    thrower.close()
    return max(waits) - min(waits)


async def leavers(here: Here) -> list[Figure]:
    """Clients that leave while the worker thinks: when it hears of it."""
    late = []
    for _ in range(LEAVERS):
        client = await Client.connect(here.port)
        began, ended = here.worker.silent, len(here.worker.left_at)
        client.writer.write(request("silent"))
        await reached(lambda began=began: here.worker.silent > began)
        left = time.monotonic()
        client.close()
        await reached(lambda ended=ended: len(here.worker.left_at) > ended)
        late.append(here.worker.left_at[-1] - left)
    return [Figure(f"{LEAVERS} clients that leave: worker hears of it, p99", p99(late) * 1e3, 100.0, "ms")]


CHECKS: dict[str, Callable[[Here], Awaitable[list[Figure]]]] = {
    "idle": idle,
    "stalled": stalled_readers,
    "slow": slow_clients,
    "gigabyte": gigabyte,
    "bombs": bombs,
    "leave": leavers,
}


async def run(names: list[str]) -> list[Figure]:
    """Each check on a gateway of its own, whose memory nobody has used yet."""
    figures = []
    for name in names:
        async with stage() as here:
            for figure in await CHECKS[name](here):
                figures.append(figure)
                print(line(figure), flush=True)
    return figures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--only", choices=CHECKS, action="append", help="only this one; may be given several times")
    arguments = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    figures = asyncio.run(run(arguments.only or list(CHECKS)))
    if arguments.json is not None:
        told = {"cores": os.cpu_count(), "figures": [figure._asdict() for figure in figures]}
        arguments.json.write_text(json.dumps(told, indent=1))
    return int(any(figure.value > figure.bar for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
