"""The head of a worker's answer, read strictly (RFC 9112): what is ambiguous is refused, never guessed at."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

from gateway.body_framing import ChunkedFraming, Framing, LengthFraming, UntilCloseFraming

HEAD_LIMIT_BYTES: Final = 64 * 1024
"""Longest head, status line included."""

_KEPT_HEADS: Final = 256
_KEPT_BYTES: Final = 1024
"""Heads that are remembered, and how long one may be: a worker's repeat themselves, its clock's seconds aside."""

_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [\t -~\x80-\xff]*)?")
_FIELD: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t -~\x80-\xff]*?)[ \t]*")
_LENGTH: Final = re.compile(rb"[0-9]{1,15}")
_BODILESS: Final = frozenset((204, 304))

PASSED_ON: Final = frozenset((b"content-type", b"content-encoding", b"retry-after", b"retry-after-ms"))
"""Header fields of a worker's answer that reach the client."""


class MalformedAnswer(Exception):
    """The worker's bytes are not one well-formed answer; the message says what is wrong and quotes nothing."""


@dataclass(frozen=True)
class ResponseHead:
    """Status, header fields (names in lower case, in order), and whether the connection may serve again after it.

    What is made of it is kept with it: the heads of a worker's answers are mostly one that is remembered.
    """

    status: int
    fields: tuple[tuple[bytes, bytes], ...]
    keep_alive: bool

    def field(self, name: bytes) -> bytes | None:
        """The first value of a field, or None."""
        return next((value for key, value in self.fields if key == name), None)

    @cached_property
    def content_type(self) -> bytes:
        """In lower case; empty where there is none."""
        return (self.field(b"content-type") or b"").lower()

    @cached_property
    def length(self) -> int | None:
        """Of the body, None where another end is told; raises `MalformedAnswer` as `framing_of` does."""
        return _length_of(self)

    @cached_property
    def chunked(self) -> bool:
        """Whether it has a transfer coding, which `length` holds to be chunked."""
        return self.field(b"transfer-encoding") is not None

    @cached_property
    def passed_on(self) -> bytes:
        """The lines that reach the client; everything else is the worker's own business."""
        return b"".join([name + b": " + value + b"\r\n" for name, value in self.fields if name in PASSED_ON])


def parse_head(head: bytes) -> ResponseHead:
    """Read a head without its final empty line; raises `MalformedAnswer`."""
    return _known_head(head) if len(head) <= _KEPT_BYTES else _parsed(head)


def _parsed(head: bytes) -> ResponseHead:
    status_line, *lines = head.split(b"\r\n")
    match = _STATUS_LINE.fullmatch(status_line)
    if match is None:
        raise MalformedAnswer("its status line is not HTTP/1.x")
    fields = tuple(_field(line) for line in lines)
    connection = b",".join(value for name, value in fields if name == b"connection").lower()
    if match[1] == b"1":
        persistent = b"close" not in connection
    else:  # in HTTP/1.0 there are no chunks: whoever sends some may mean another end (RFC 9112, section 6.1)
        persistent = b"keep-alive" in connection and all(name != b"transfer-encoding" for name, _ in fields)
    return ResponseHead(int(match[2]), fields, persistent)


_known_head: Final = lru_cache(_KEPT_HEADS)(_parsed)


def framing_of(head: ResponseHead) -> Framing:
    """How the body ends; raises `MalformedAnswer` unless exactly one way is named (or none: at the close)."""
    length = head.length
    if length is not None:
        return LengthFraming(length)
    return ChunkedFraming() if head.chunked else UntilCloseFraming()


def _length_of(head: ResponseHead) -> int | None:
    codings = [value.lower() for name, value in head.fields if name == b"transfer-encoding"]
    lengths = {value for name, value in head.fields if name == b"content-length"}
    if codings and lengths:
        raise MalformedAnswer("it has both a transfer-encoding and a content-length")
    if codings and codings != [b"chunked"]:
        raise MalformedAnswer("its transfer-encoding is not exactly chunked")
    if len(lengths) > 1 or not all(_LENGTH.fullmatch(length) for length in lengths):
        raise MalformedAnswer("its content-length is not one number")
    if head.status in _BODILESS:
        return 0
    return int(lengths.pop()) if lengths else None


def _field(line: bytes) -> tuple[bytes, bytes]:
    match = _FIELD.fullmatch(line)
    if match is None:
        raise MalformedAnswer("a header line is not `name: value`")
    return match[1].lower(), match[2]
