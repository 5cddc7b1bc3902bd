"""Answers that no worker should give: sixty of them, each with a mark that must never reach a caller as an answer."""

from __future__ import annotations

from collections.abc import Iterator

MARK = b"GARBAGE-d41d"
"""In the bodies: none of it may turn up in somebody else's answer."""

_OK = b"HTTP/1.1 200 OK\r\n"
_JSON = b"content-type: application/json\r\n"
_SSE = b"content-type: text/event-stream\r\n"
_CHUNKED = b"transfer-encoding: chunked\r\n"
_EVENT = b'data: {"id":"1","choices":[{"index":0,"delta":{"content":"' + MARK + b'"}}]}\n\n'


def _heads() -> Iterator[bytes]:
    """Heads that are none, or that nobody can go by."""
    yield b""
    yield b"\r\n\r\n"
    yield MARK
    yield MARK + b"\r\n\r\n"
    yield b"HTTP/9.9 200 OK\r\n\r\n" + MARK
    yield b"HTTP/1.1\r\n\r\n" + MARK
    yield b"HTTP/1.1 abc OK\r\n\r\n" + MARK
    yield b"HTTP/1.1 99999 OK\r\n\r\n" + MARK
    yield b"HTTP/1.1 -1 OK\r\n\r\n" + MARK
    yield b"HTTP/1.1 000 OK\r\n\r\n" + MARK
    yield b"ICY 200 OK\r\n\r\n" + MARK
    yield b"GET / HTTP/1.1\r\n\r\n" + MARK
    yield b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + MARK
    yield b"SSH-2.0-OpenSSH_9.6\r\n" + MARK
    yield _OK + b"x" * 200_000
    yield _OK + b"x-long: " + b"y" * 10_000_000 + b"\r\n\r\n"
    yield _OK + b"".join(b"x-%d: y\r\n" % number for number in range(20_000)) + b"\r\n"
    yield _OK + b"no colon here\r\n\r\n" + MARK
    yield _OK + b": no name\r\n\r\n" + MARK
    yield _OK + b"bad name: x\r\ncontent-length: 2\r\n\r\n{}"
    yield _OK + b"x: a\x00b\r\ncontent-length: 2\r\n\r\n{}"
    yield b"HTTP/1.1 100 Continue\r\n\r\n" * 50
    yield b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n" + MARK
    yield b"HTTP/1.1 103 Early Hints\r\n\r\n"


def _lengths() -> Iterator[bytes]:
    """Lengths that lie, contradict each other, or do not come true."""
    for length in (b"-1", b"+2", b"0x10", b"2, 3", b"9" * 40, b"", b"two", b"1e3"):
        yield _OK + _JSON + b"content-length: " + length + b"\r\n\r\n" + MARK
    yield _OK + _JSON + b"content-length: 2\r\ncontent-length: 3\r\n\r\n" + MARK
    yield _OK + _JSON + b"content-length: 1000\r\n\r\n" + MARK
    yield _OK + _JSON + _CHUNKED + b"content-length: 5\r\n\r\n" + MARK
    yield _OK + _JSON + b"transfer-encoding: gzip\r\n\r\n" + MARK
    yield _OK + _JSON + b"transfer-encoding: chunked, chunked\r\n\r\n" + MARK
    yield _OK + _JSON + b"transfer-encoding: x-chunked\r\n\r\n" + MARK


def _chunks() -> Iterator[bytes]:
    """Chunks of sizes that are none, or that are longer than what follows."""
    for size in (b"zz", b"-5", b"0x5", b"f" * 20, b"", b" 5", b"5 ", b"5\x00", b"g"):
        yield _OK + _SSE + _CHUNKED + b"\r\n" + size + b"\r\n" + MARK + b"\r\n0\r\n\r\n"
    yield _OK + _SSE + _CHUNKED + b"\r\n3\r\n" + MARK + b"\r\n0\r\n\r\n"
    yield _OK + _SSE + _CHUNKED + b"\r\nffff\r\n" + _EVENT
    yield _OK + _SSE + _CHUNKED + b"\r\n5\r\n12345"


def _bodies() -> Iterator[bytes]:
    """Bodies cut short: an event, a character, a JSON text."""
    cut = _EVENT[:-9]
    yield _OK + _SSE + _CHUNKED + b"\r\n%x\r\n%b\r\n" % (len(cut), cut)
    yield _OK + _SSE + b"\r\n" + cut
    yield _OK + _SSE + b"\r\n" + _EVENT
    yield _OK + _SSE + b"content-length: 4000\r\n\r\n" + _EVENT
    yield _OK + _SSE + _CHUNKED + b"\r\n%x\r\n%b" % (len(_EVENT), _EVENT)
    yield _OK + _SSE + _CHUNKED + b"\r\n8\r\ndata: \xe5\x8c"
    yield b"HTTP/1.0 200 OK\r\n" + _JSON + b'\r\n{"id": "' + MARK
    yield _OK + _JSON + b'content-length: 100\r\n\r\n{"id": "' + MARK
    yield _OK + b"content-length: 50\r\n\r\n<html>" + MARK
    yield b"HTTP/1.1 500 \r\ncontent-length: 500\r\n\r\n" + MARK


GARBAGE: tuple[bytes, ...] = (*_heads(), *_lengths(), *_chunks(), *_bodies())
