"""Row A13: answers that no worker should give are a 502 or an error event, and nothing of them reaches anybody else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress

import pytest

from tests.gateway.running_gateway import Answer, Running, build_request, running_gateway
from tests.gateway.scripted_worker import DONE, event, ordinary, raw, scripted_worker, until

MARK = b"GARBAGE-7e"
OK = b"HTTP/1.1 200 OK\r\n"
JSON = b"content-type: application/json\r\n"
EVENTS = b"content-type: text/event-stream\r\n"
CHUNKED = b"transfer-encoding: chunked\r\n"
END = b"\r\n"


def _heads() -> Iterator[bytes]:
    """Heads that are none, or that nobody can go by."""
    for line in (b"", MARK, b"HTTP/2 200 OK", b"HTTP/1.1", b"HTTP/1.1 20 OK", b"HTTP/1.1 0200 OK", b"http/1.1 200 OK",
                 b"HTTP/1.1  200 OK", b"ICY 200 OK", b"POST / HTTP/1.1", b"HTTP/1.1 200 \x00OK"):  # fmt: skip
        yield line + END + JSON + END + MARK
    for field in (b"no colon", b": no name", b"a name: x", b"x: a\x00b", b"x: a\rb", b" x: folded", b"x\x7f: y"):
        yield OK + JSON + field + END + b"content-length: 2\r\n\r\n{}"
    yield OK + b"x: " + b"y" * 10_000_000 + END + END
    yield OK + b"x: y\r\n" * 20_000 + END
    yield b"HTTP/1.1 100 Continue\r\n\r\n" * 5000 + OK + JSON + b"content-length: 2\r\n\r\n{}"
    yield b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n" + MARK
    yield b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"


def _bodies() -> Iterator[bytes]:
    """Lengths that lie, codings nobody speaks, chunks of sizes that are none, and pages that are no answers."""
    for length in (b"-1", b"+2", b"0x2", b"2, 3", b"9" * 30, b"two", b"2\r\ncontent-length: 3"):
        yield OK + JSON + b"content-length: " + length + END + END + b"{}" + MARK
    for coding in (b"gzip", b"chunked, chunked", b"xchunked", b"chunked\r\ncontent-length: 2", b"identity"):
        yield OK + JSON + b"transfer-encoding: " + coding + END + END + b"2\r\n{}\r\n0\r\n\r\n"
    for size in (b"zz", b"-5", b"0x5", b"f" * 20, b"", b" 5", b"5 x", b"5\x00"):
        yield OK + JSON + CHUNKED + END + size + END + MARK + b"\r\n0\r\n\r\n"
    yield OK + JSON + CHUNKED + END + b"3\r\n" + MARK + b"\r\n0\r\n\r\n"
    yield OK + JSON + CHUNKED + END + b"5\n" + MARK
    yield OK + JSON + CHUNKED + END + b"2;" + b"x" * 100_000 + b"\r\n{}\r\n0\r\n\r\n"
    yield OK + JSON + b"content-length: 1000\r\n\r\n{" + MARK
    yield OK + JSON + CHUNKED + END + b"ffff\r\n" + MARK
    for kind in (b"text/html", b"text/plain; charset=utf-8", b"application/octet-stream", b"image/png"):
        yield OK + b"content-type: " + kind + b"\r\ncontent-length: 9\r\n\r\n" + b"<p>" + MARK[:6]
    yield b"HTTP/1.0 200 OK\r\n" + JSON + END + b'{"id": "' + MARK


def _streams() -> Iterator[bytes]:
    """Streams that are cut: in an event, in a character, before their end."""
    cut = event(MARK.decode())[:-9]
    for piece in (cut, b"data: \xe5\x8c", b"\x00" * 50, b"<html>" + MARK):
        yield OK + EVENTS + CHUNKED + END + b"%x\r\n%b\r\n" % (len(piece), piece)
        yield b"HTTP/1.0 200 OK\r\n" + EVENTS + END + piece
        yield OK + EVENTS + b"content-length: 4000\r\n\r\n" + piece
    yield OK + EVENTS + CHUNKED + END + b"ffffff\r\n" + event(MARK.decode())


ANSWERS = (*_heads(), *_bodies(), *_streams())


async def ask_as(running: Running, *, stream: bool) -> Answer | None:
    """The answer; None where the connection broke before a whole head, or was reset within the answer."""
    with suppress(ConnectionError, asyncio.IncompleteReadError):
        return await running.ask(stream=stream)
    return None


def is_told(answer: Answer | None) -> bool:
    """An error with a status, an error event and no `[DONE]`, or a connection that broke: never a whole answer."""
    if answer is None or not answer.whole:
        return True
    if answer.status >= 500:
        return True
    return b'"error"' in answer.body and DONE not in answer.body


def test_there_are_sixty_of_them() -> None:
    """The corpus is what it says."""
    assert len(set(ANSWERS)) >= 60


async def test_garbage_is_told_as_such_and_its_connection_is_never_used_again() -> None:
    """After each a good answer follows, on a connection of its own, with nothing in it of what went before."""
    # Sent and left open is the harder half: the gateway must be the one to close.
    async with scripted_worker() as worker, running_gateway(worker, first_byte=0.2, idle=0.2) as running:
        for number, garbage in enumerate(ANSWERS):
            worker.scripts = [raw(garbage, close=number % 4 < 2)]
            answer = await ask_as(running, stream=number % 2 == 0)
            assert is_told(answer), garbage[:200]
            used = {exchange.connection for exchange in worker.exchanges}
            fresh = await running.ask()
            assert (fresh.status, MARK in fresh.body) == (200, False), garbage[:200]
            assert worker.exchanges[-1].connection not in used
            await until(running.settled)
            running.gateway.attempts.retries.acceptance.accepted()
            clear_idle(running)


def clear_idle(running: Running) -> None:
    """Let the good connection go, so that the next answer is again the first on its own."""
    for connections in running.gateway._upstream._idle.values():
        for connection in tuple(connections):
            connection.abort()


@pytest.mark.parametrize(
    "name", [b"set-cookie", b"server", b"x-internal", b"location", b"via", b"x-request-id", b"link"]
)
async def test_a_workers_own_header_fields_stay_with_the_gateway(name: bytes) -> None:
    """An allow-list: cookies, names and addresses of workers are nobody's business."""
    wire = OK + JSON + name + b": " + MARK + END + b"content-length: 2\r\n\r\n{}"
    async with scripted_worker(raw(wire)) as worker, running_gateway(worker) as running:
        client = await running.connect()
        await client.send(build_request())
        _, fields = await client.head()
        assert MARK.decode() not in " ".join(fields.values())
        client.close()


async def test_bytes_after_an_answer_are_in_nobody_elses() -> None:
    """A second answer that nobody asked for, behind the first or later, ends the connection."""
    first = OK + JSON + b"content-length: 2\r\n\r\n{}"
    second = OK + JSON + b"content-length: 20\r\n\r\n" + b'{"x": "' + MARK + b'"}'
    async with scripted_worker() as worker, running_gateway(worker) as running:
        worker.scripts = [raw(first + second, close=False)]
        assert (await running.ask()).body == b"{}"
        worker.script = ordinary
        for _ in range(3):
            assert MARK not in (await running.ask()).body
        assert worker.exchanges[0].connection != worker.exchanges[1].connection
