"""Lengths, codings, chunks and line ends that two readers could take for two different things."""

# ruff: noqa: E501 - tables

from __future__ import annotations

from tests.gateway.hostile.messages import (
    BODY,
    CHUNKED,
    LAST_CHUNK,
    LENGTH,
    ONE_CHUNK,
    Message,
    family,
    good,
    request,
)

N = len(BODY)

LENGTHS = [
    "", " ", f"+{N}", f"-{N}", "-0", f"0x{N:x}", f"{N} {N}", f"{N},{N}", f"{N}, {N}", f"{N};", f"{N}.0", f"{N}e0",
    f"{N}\x00", f"\x0b{N}", f"{N}\x0c", f"'{N}'", f'"{N}"', f"{N}_0", "9" * 20, "18446744073709551616", f"1844674407370955{N}",
    "NaN", "chunked", "\xb2", f"{N}\r\n {N}", f"{N}\r\ncontent-length: {N}", f"{N}\r\ncontent-length: {N + 1}",
    f"{N + 1}\r\ncontent-length: {N}", f"{N}\r\nContent-Length: 0", f"0\r\ncontent-length: {N}",
]  # fmt: skip

CODINGS = [
    "", "identity", "gzip", "gzip, chunked", "chunked, gzip", "chunked, chunked", "chunked, identity", "xchunked",
    "chunkedx", "chunk", "chunked;", "chunked;q=0", '"chunked"', "'chunked'", "chunked\x00", "\x0bchunked", "chunked\x0b",
    "chun ked", "ch\xfcnked", "\r\n chunked", "chunked\r\n\tx", "chunked\r\ntransfer-encoding: chunked",
    "chunked\r\ntransfer-encoding: identity", "identity\r\ntransfer-encoding: chunked", ", chunked", "chunked,",
]  # fmt: skip

ODD_NAMES = [
    "transfer-encoding : chunked", " transfer-encoding: chunked", "\ttransfer-encoding: chunked", "transfer-encoding\t: chunked",
    "transfer-encoding\x00: chunked", "transfer_encoding: chunked", "transfer-encoding\r\n: chunked", ": chunked",
    "transfer-encoding", "transfer-\r\n encoding: chunked", "transfer-enc\xf6ding: chunked", "content-length : 5", " content-length: 5",
    "content_length: 5", "content-length\x00: 5", "content length: 5", "(content-length): 5", "x@y: 1", "x[y]: 1", "x{y}: 1",
    "x=y: 1", "x,y: 1", "x;y: 1", 'x"y: 1', "x/y: 1", "x\\y: 1", "x?y: 1", "x<y>: 1", "\x7f: 1", "\x01: 1", "x\x1fy: 1",
]  # fmt: skip

BAD_VALUES = ["x: a\x00b", "x: a\x01b", "x: a\x0bb", "x: a\x0cb", "x: a\x1fb", "x: a\x7fb", "x: a\rb", "x: a\nb", "x: a\r\n b",
              "x: a\r\n\tb", "x: a\r\r\nb: c", "x: \r\n\r", "\r", "\n", "\x00", "x\r\ny: z", "no colon here"]  # fmt: skip

SIZES = [
    b"0x%x" % N, b"+%x" % N, b"-%x" % N, b" %x" % N, b"%x " % N, b"%x\t" % N, b"", b"g", b"%x_0" % N, b"f" * 17, b"1" + b"0" * 16,
    b"%x\n" % N, b"%x\r" % N, b"%x;\n" % N, b"%x\x00" % N, b"%x;a=\x00" % N, b"%x.0" % N, b"\xb2", b"%x,%x" % (N, N), b"0%b" % (b"0" * 40),
    b"%x;a\r" % N, b"%xh" % N, b"'%x'" % N, b"%x %x" % (N, N),
]  # fmt: skip

TRAILERS = [
    b"x_y: z",
    b"expect: 100-continue",
    b"host: b",
    b"authorization: Bearer shared-key",
    b"x: y",
]


def _chunks(*parts: bytes) -> bytes:
    return request(CHUNKED, body=b"".join(parts))


def _lone_line_feeds() -> list[bytes]:
    wire = good("x: y")
    ends = [position for position in range(len(wire) - N) if wire[position : position + 2] == b"\r\n"]
    return [wire[:position] + b"\n" + wire[position + 2 :] for position in ends]


MESSAGES: list[Message] = [
    *family("length", [request(f"content-length: {value}") for value in LENGTHS]),
    *family("coding", [request(f"transfer-encoding: {value}", body=ONE_CHUNK + LAST_CHUNK) for value in CODINGS]),
    *family("both", [request(*lines, body=ONE_CHUNK + LAST_CHUNK) for lines in ((LENGTH, CHUNKED), (CHUNKED, LENGTH),
                     ("content-length: 0", CHUNKED), (CHUNKED, "content-length: 0"), (CHUNKED, "content-length: "))]),
    *family("old chunked", [request(CHUNKED, body=ONE_CHUNK + LAST_CHUNK, version="HTTP/1.0")]),
    *family("name", [good(line) for line in ODD_NAMES]),
    *family("value", [good(line) for line in BAD_VALUES]),
    *family("line feed", _lone_line_feeds()),
    *family("carriage return", [good("x: y").replace(b"\r\n", b"\r"), good("x: y").replace(b"\r\n", b"\r\r\n")]),
    *family("chunk size", [_chunks(size + b"\r\n" + BODY + b"\r\n", LAST_CHUNK) for size in SIZES]),
    *family("chunk end", [_chunks(b"%x\r\n" % N, BODY, end, LAST_CHUNK) for end in (b"", b"\n", b"\r", b"x\r\n", b"\r\n\r\n", b"\x00\r\n")]),
    *family("last chunk", [_chunks(ONE_CHUNK, end) for end in (b"", b"0", b"0\r\n", b"0\r\n\r", b"0\n\n", b"00x\r\n\r\n", b"-0\r\n\r\n")]),
    *family("trailer", [_chunks(ONE_CHUNK, b"0\r\n" + line + b"\r\n\r\n") for line in TRAILERS], 1),
    *family("bad trailer", [_chunks(ONE_CHUNK, b"0\r\n" + line + b"\r\n\r\n") for line in (b"x", b" x: y", b"x: \x00", b"x : y", b"content-length: 5", b"transfer-encoding: chunked")]),
    *family("extension", [_chunks(b"%x;%b\r\n%b\r\n" % (N, extension, BODY), LAST_CHUNK)
                          for extension in (b"a", b"a=b", b'a="b"', b"a=b;c=d")], 1),
    *family("good", [good(), _chunks(ONE_CHUNK, LAST_CHUNK), good("x:"), good("x:   y  "), good("x: \xe9"), b"\r\n" + good(),
                     request(f"content-length: 0{N}"), _chunks(*[b"1\r\n%c\r\n" % byte for byte in BODY], LAST_CHUNK)], 1),
    *family("two", [good() + good(), _chunks(ONE_CHUNK, LAST_CHUNK) + good(), good() + b"\r\n" + good()], 2),
    *family("short", [request(f"content-length: {N - 1}"), request("content-length: 0"), request(), request(LENGTH, body=BODY[:-1])]),
    *family("long", [request(LENGTH, body=BODY + tail) for tail in (b"x", b"\x00", b"0\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")]),
    *family("hidden", [request("content-length: 5", body=good()), request(CHUNKED, body=b"0\r\n\r\nx" + good()),
                       request("content-length: 0", CHUNKED, body=b"0\r\n\r\n" + good())]),
    *family("hidden behind a good body", [good() + b"x" + good()]),
    *family("hidden in the open", [request("content-length: 0", body=good()), request(body=good()),
                                   request("content-length: 0", body=good(), method="GET", target="/v1/models")], 1),
]  # fmt: skip
