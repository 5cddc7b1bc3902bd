"""Rows E1, A14 and E3: clients that leave in every phase, leave all at once, or do not read."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tests.faults.attempts import Ran, attempts_of, by_nonce
from tests.faults.client import Client, body_of, failed, leave, load, new_nonce, quantile
from tests.faults.slices import ROUNDS, Slices, visit
from tests.faults.stage import GatewayProcess, Stage, until

SETTLE_SECONDS = 0.3
STALLED = 100
ENDLESS_TOKENS = 5_000
"""Of 20 kB each: far more than the kernel's buffers between worker and client take."""


async def many_leave(stage: Stage, client: Client, after_seconds: float, count: int) -> dict[str, float]:
    """So many clients, streams and not, by a close and by a reset; when each left."""
    left = {}

    async def one(number: int) -> None:
        nonce = new_nonce()
        left[nonce] = await leave(
            client, asyncio.sleep(after_seconds), stream=number % 2 == 0, abort=number % 4 > 1, nonce=nonce
        )

    for first in range(0, count, 10):
        await asyncio.gather(*(one(number) for number in range(first, first + 10)))
    return left


async def cancelled(stage: Stage, gateway: GatewayProcess, left: dict[str, float]) -> tuple[int, list[float]]:
    """Of those who left, whose attempts all ended, and how long after the leaving the last of them did."""

    async def nothing_open() -> bool:
        return await gateway.metric("homing_requests_in_flight") == 0

    def tries_of_those() -> dict[str, list[Ran]]:
        tries = by_nonce(run for worker in stage.workers for run in attempts_of(_lines(stage, worker.name)))
        return {nonce: tries.get(nonce, []) for nonce in left}

    await until(nothing_open, seconds=5)
    await asyncio.sleep(SETTLE_SECONDS)
    with suppress(AssertionError):  # a busy worker writes down late what ended in time; what never ends is counted
        await until(lambda: all(run.why is not None for runs in tries_of_those().values() for run in runs), every=0.1)
    ended = tries_of_those()
    closed = [nonce for nonce, runs in ended.items() if all(run.why is not None for run in runs)]
    after = [max((run.ended - left[nonce] for run in ended[nonce]), default=0.0) for nonce in closed]
    return len(closed), after


def _lines(stage: Stage, name: str) -> list[dict]:
    return [line for line in stage.attempts() if line["worker"] == name]


async def show(stage: Stage, gateway: GatewayProcess, phase: str, left: dict[str, float]) -> bool:
    closed, after = await cancelled(stage, gateway, left)
    p99 = 1000 * quantile(after, 0.99)
    stage.row.note(f"{phase} {closed} of {len(left)}, p99 {p99:.0f} ms")
    return closed == len(left) and p99 <= (100 if stage.row.full else 1000)


@pytest.mark.row("E1", smoke=True, seconds=180)
async def test_a_client_that_leaves_ends_its_request_in_every_phase(stage: Stage) -> None:
    """Before the first byte and in mid-stream; in full also while connecting, backing off, and queued."""
    workers = await stage.start_workers(2, mode="hang")
    gateway = await stage.gateway(timeouts={"first_byte_seconds": 20})
    client = stage.client(gateway)
    count, met = stage.row.size(200, 20), True
    met &= await show(stage, gateway, "before the first byte", await many_leave(stage, client, 0.05, count))
    for worker in workers:
        await worker.set(mode="ok", tokens=200, gap_seconds=0.02)
    met &= await show(stage, gateway, "mid-stream", await many_leave(stage, client, 0.1, count))
    if stage.row.full:
        for worker in workers:
            await worker.set(mode="rst0", first_seconds=0.02)
        met &= await show(stage, gateway, "backing off", await many_leave(stage, client, 0.03, count))
    stage.row.holds("everything given back", met)


@pytest.mark.row("E1c")
async def test_a_client_that_leaves_while_a_worker_is_connected_to_is_given_up(stage: Stage) -> None:
    """A worker whose listen queue is full: connecting to it takes its whole time, and nobody waits for it."""
    await stage.start_workers(1)
    gateway = await stage.gateway(timeouts={"connect_seconds": 10}, probes={"timeout_seconds": 30})
    client = stage.client(gateway)
    await load(client, 4)
    (worker,) = stage.workers
    await worker.stop()
    with full_queue(worker.port) as fillers:
        left = await many_leave(stage, client, 0.1, 20)
        began = time.monotonic()

        async def nothing_open() -> bool:
            return await gateway.metric("homing_requests_in_flight") == 0

        await until(nothing_open, seconds=15, every=0.005)
        took = 1000 * (time.monotonic() - began)
    stage.row.holds(
        f"{len(left)} given up {took:.0f} ms after the last left ({len(fillers)} fill the queue)", took <= 100
    )


class full_queue:
    """A listening port that completes no more connections: its backlog is taken up."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __enter__(self) -> list[socket.socket]:
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", self._port))
        self._listener.listen(0)
        self._fillers = []
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", self._port))
            self._fillers.append(filler)
        return self._fillers

    def __exit__(self, *_: object) -> None:
        for each in (*self._fillers, self._listener):
            each.close()


@pytest.mark.row("E1q")
async def test_a_client_that_leaves_the_queue_is_never_sent_on(stage: Stage) -> None:
    """Every place is taken: who leaves while he waits for one costs no worker anything."""
    workers = await stage.start_workers(1, mode="hang")
    gateway = await stage.gateway(timeouts={"first_byte_seconds": 30}, models={"m": {"max_in_flight": 2}})
    client = stage.client(gateway)
    holding = [asyncio.create_task(client.ask(stream=True)) for _ in range(2)]

    async def full() -> bool:
        return (await workers[0].state())["live"] == 2

    await until(full)
    left = await many_leave(stage, client, 0.1, 20)
    await asyncio.sleep(0.1)
    waiting = await gateway.metric("homing_requests_in_flight") - 2
    await workers[0].set(mode="ok")
    await workers[0].restart()
    await asyncio.gather(*holding)
    await asyncio.sleep(1.0)
    sent = sum(line.get("nonce") in left and "begin" in line for line in stage.attempts())
    stage.row.holds(f"{waiting:.0f} of 20 still wait 100 ms later, {sent} sent to a worker", waiting == 0 and not sent)


@pytest.mark.row("E2")
async def test_a_half_closed_client_counts_as_gone(stage: Stage) -> None:
    """A FIN looks the same from who leaves and from who only says no more: the worker is freed, as for who left."""
    workers = await stage.start_workers(1, mode="hang")
    gateway = await stage.gateway(timeouts={"first_byte_seconds": 20})
    client, left = stage.client(gateway), {}
    for number in range(20):
        nonce = new_nonce()
        body = body_of(nonce, stream=number % 2 == 0)
        _, writer = await client.open()
        writer.write(client.head(len(body)) + body)
        begun = number + 1

        async def here(begun: int = begun) -> bool:
            return (await workers[0].state())["begun"] == begun

        await until(here)
        writer.write_eof()
        left[nonce] = time.monotonic()
    stage.row.holds("given back", await show(stage, gateway, "half-closed", left))


async def all_leave(stage: Stage, client: Client, count: int = 200) -> None:
    """So many streams whose clients leave at the same moment."""
    gone = asyncio.Event()
    leaving = [
        asyncio.create_task(leave(client, gone.wait(), stream=True, abort=False, nonce=new_nonce()))
        for _ in range(count)
    ]

    async def all_here() -> bool:
        return sum([(await worker.state())["live"] for worker in stage.workers]) == count

    await until(all_here, seconds=20)
    gone.set()
    await asyncio.gather(*leaving)


@pytest.mark.row("A14p", seconds=180)
async def test_paced_cancels_end_two_of_four_engines_that_die_of_one_at_most(stage: Stage) -> None:
    """200 leave at once with `cancels_per_second` set: two engines die, the others answer to the end; and where no
    engine dies, how long it takes until all is given up."""
    workers = await stage.start_workers(4, mode="die_on_abort", tokens=100, gap_seconds=0.05)
    gateway = await stage.gateway(faults={"cancels_per_second": 20})
    client = stage.client(gateway)
    await all_leave(stage, client)
    await asyncio.sleep(3.0)
    dead = [worker for worker in workers if not worker.alive]
    good = await load(client, 100, at_once=8)
    for worker in workers:  # before they start: the first gateway may still have a cancel for one
        worker.behaviour.update(mode="ok", tokens=400)
    await asyncio.gather(*(worker.restart() for worker in workers))
    hardy = await stage.gateway(faults={"cancels_per_second": 20})
    await all_leave(stage, stage.client(hardy))

    async def all_given_up() -> bool:
        return sum([(await worker.state())["live"] for worker in workers]) == 0

    took = await until(all_given_up, seconds=20)
    stage.row.holds(
        f"{len(dead)} of 4 died, {len(good) - len(failed(good))} of 100 answered by the others; 200 at four engines "
        f"that live are given up in {took:.1f} s",
        len(dead) <= 2 and not failed(good) and took <= 5,
    )


@pytest.mark.row("A14", seconds=180)
async def test_engines_that_die_of_those_who_leave_are_used_again_at_once(stage: Stage) -> None:
    """200 leave at once, and every engine dies of it; a supervisor starts them again: how soon all is well."""
    workers = await stage.start_workers(4, mode="die_on_abort", tokens=200, gap_seconds=0.05)
    client = stage.client(await stage.gateway())
    await all_leave(stage, client)
    await asyncio.sleep(1.0)
    dead = [worker for worker in workers if not worker.alive]
    for worker in dead:
        worker.behaviour.update(mode="ok", tokens=5, gap_seconds=0.0)
    await asyncio.gather(*(worker.start() for worker in dead))
    began, good = time.monotonic(), 0
    while good < 20:
        good = good + 1 if (await client.ask()).ok else 0
    took = time.monotonic() - began
    stage.row.holds(
        f"{len(dead)} of 4 died, twenty good answers in a row {took:.1f} s after they were back", took <= 2.5
    )


@asynccontextmanager
async def stalled_readers(gateway: GatewayProcess, client: Client, count: int) -> AsyncIterator[None]:
    """So many clients that ask for a stream and read nothing of it."""
    stalled = []
    try:
        for _ in range(count):
            raw = socket.socket()
            stalled.append(raw)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            raw.setblocking(False)
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", gateway.port))
            body = body_of(new_nonce(), stream=True)
            await asyncio.get_running_loop().sock_sendall(raw, client.head(len(body)) + body)
        yield
    finally:
        for raw in stalled:
            raw.close()


@pytest.mark.row("E3", seconds=240)
async def test_readers_that_stall_cost_little_and_slow_nobody(stage: Stage) -> None:
    """A hundred clients that read nothing of a long stream, beside a hundred good ones: memory, and their p99."""
    workers = await stage.start_workers(2)
    gateway = await stage.gateway(timeouts={"first_byte_seconds": 20, "idle_seconds": 20})
    client, slices, each = stage.client(gateway), Slices(), []

    async def set_both(**behaviour: int) -> None:
        await asyncio.gather(*(worker.set(**behaviour) for worker in workers))

    async def all_stall() -> bool:
        return sum([(await worker.state())["live"] for worker in workers]) == STALLED

    async def all_left() -> bool:
        return await gateway.metric("homing_requests_in_flight") == 0

    await visit([client])
    for _ in range(ROUNDS):
        slices.calm.append(await visit([client]))
        before = rss_bytes(gateway.pid)
        await set_both(tokens=ENDLESS_TOKENS, pad_bytes=20_000)
        async with stalled_readers(gateway, client, STALLED):
            await until(all_stall, seconds=30)
            await asyncio.sleep(1.0)  # until nothing moves any more
            await set_both(tokens=5, pad_bytes=0)
            each.append((rss_bytes(gateway.pid) - before) / 1024 / 1024 / STALLED)
            slices.hit.append(await visit([client]))
            assert await all_stall(), "they would not be those who stall"
        await until(all_left)
    stage.row.holds(
        f"{max(each):.2f} MiB each; the others: {slices}",
        max(each) <= 1.0 and slices.ratio <= 1.2 and not slices.errors,
    )


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * 4096
