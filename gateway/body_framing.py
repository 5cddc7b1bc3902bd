"""Where a worker's answer ends: by length, by chunks, or by the connection's close. Pure; payload out, framing off."""

from __future__ import annotations

import re
from typing import Final, Protocol

CHUNK_LINE_LIMIT_BYTES: Final = 256
TRAILER_LIMIT_BYTES: Final = 8 * 1024
_CHUNK_SIZE: Final = re.compile(rb"[0-9A-Fa-f]{1,12}")


class MalformedBody(Exception):
    """The body breaks its own framing; the message says how and quotes nothing."""


class Framing(Protocol):
    """One body's end. `complete` is true once its last byte came; `excess` once more came than belongs to it."""

    complete: bool
    excess: bool

    def feed(self, data: bytes) -> bytes:
        """Take in bytes off the wire, cut anywhere; returns the payload among them. Raises `MalformedBody`."""
        ...

    def closed(self) -> bool:
        """The connection ended in an orderly way: whether the body is complete by that."""
        ...


class LengthFraming:
    """A body of a length known beforehand, in bytes."""

    __slots__ = ("complete", "excess", "remaining")

    def __init__(self, length: int) -> None:
        self.remaining = length
        self.complete = length == 0
        self.excess = False

    def feed(self, data: bytes) -> bytes:
        """Pass on what belongs to the body."""
        if len(data) > self.remaining:
            self.excess = True
            data = data[: self.remaining]
        self.remaining -= len(data)
        self.complete = self.remaining == 0
        return data

    def closed(self) -> bool:
        """Only a full body is complete."""
        return self.complete


class UntilCloseFraming:
    """A body that ends with its connection, as HTTP/1.0 has it."""

    __slots__ = ("complete", "excess")

    def __init__(self) -> None:
        self.complete = False
        self.excess = False

    def feed(self, data: bytes) -> bytes:
        """Everything belongs to the body."""
        return data

    def closed(self) -> bool:
        """The close is the end."""
        self.complete = True
        return True


class ChunkedFraming:
    """RFC 9112, section 7.1: sizes in hexadecimal, extensions and trailers read and dropped."""

    __slots__ = ("_in_trailer", "_remaining", "_tail", "_trailer_bytes", "complete", "excess")

    def __init__(self) -> None:
        self._tail = b""
        """The start of a size line, of a line end or of a trailer line that is not complete."""
        self._remaining = 0
        """Bytes of the current chunk still to come, its CRLF included; 0 between chunks."""
        self._in_trailer = False
        self._trailer_bytes = 0
        self.complete = False
        self.excess = False

    def feed(self, data: bytes) -> bytes:
        """Take the framing off."""
        if not (self._remaining or self._tail or self._in_trailer):
            size = len(data)
            line, begin = _SIZE_LINES[size] if size < _MOST_KNOWN_BYTES else _NO_LINE
            if begin and data.startswith(line) and data[-2:] == b"\r\n":
                return data[begin:-2]
            if begin := _one_whole_chunk(data):
                return data[begin:-2]
        if self._tail:
            data, self._tail = self._tail + data, b""
        payload: list[bytes] = []
        position = 0
        while position < len(data) and not self.complete:
            step = self._chunk(data, position, payload) if self._remaining else self._line(data, position)
            if step == position:
                self._tail = data[position:]
                break
            position = step
        else:
            self.excess = position < len(data)
        return payload[0] if len(payload) == 1 else b"".join(payload)

    def closed(self) -> bool:
        """Only the last chunk makes it complete."""
        return self.complete

    def _chunk(self, data: bytes, position: int, payload: list[bytes]) -> int:
        """Pass on what is here of the current chunk; returns where to go on."""
        wanted = self._remaining - 2
        if wanted > 0:
            piece = data[position : position + wanted]
            payload.append(piece)
            self._remaining -= len(piece)
            position += len(piece)
        if self._remaining > 2 or len(data) - position < 2:
            self._tail = data[position:]
            return len(data)
        if data[position : position + 2] != b"\r\n":
            raise MalformedBody("a chunk does not end where its size says")
        self._remaining = 0
        return position + 2

    def _line(self, data: bytes, position: int) -> int:
        """Read a size line or a trailer line; returns where to go on, `position` when it is not all here."""
        limit = TRAILER_LIMIT_BYTES if self._in_trailer else CHUNK_LINE_LIMIT_BYTES
        end = data.find(b"\n", position, position + limit)
        if end < 0:
            if len(data) - position >= limit:
                raise MalformedBody("a chunk's size line or a trailer is too long")
            return position
        if data[end - 1 : end] != b"\r" or end == position:
            raise MalformedBody("a line of the chunked framing does not end in CRLF")
        if self._in_trailer:
            self._trailer_line(end - 1 - position)
        else:
            self._size_line(data[position : end - 1])
        return end + 1

    def _size_line(self, line: bytes) -> None:
        digits = line.partition(b";")[0].rstrip(b" \t")
        # int() alone would take a sign, underscores, space and 0x.
        if not _CHUNK_SIZE.fullmatch(digits):
            raise MalformedBody("a chunk's size is not a number")
        size = int(digits, 16)
        self._in_trailer = size == 0
        self._remaining = size + 2 if size else 0

    def _trailer_line(self, length: int) -> None:
        self._trailer_bytes += length + 2
        if self._trailer_bytes > TRAILER_LIMIT_BYTES:
            raise MalformedBody("its trailers are too long")
        self.complete = length == 0


def _one_whole_chunk(data: bytes) -> int:
    """Where the payload begins when `data` is exactly one chunk, as a worker's event mostly is; else 0."""
    end = data.find(b"\r\n", 0, 16)
    if end < 1 or not data.endswith(b"\r\n") or not _CHUNK_SIZE.fullmatch(data, 0, end):
        return 0
    size = int(data[:end], 16)
    return end + 2 if size and len(data) == end + size + 4 else 0


def _size_lines(most_bytes: int) -> list[tuple[bytes, int]]:
    """By a whole chunk's length how it begins when its size is told in as few lower-case digits as can be."""
    lines = [_NO_LINE] * most_bytes
    for size in range(1, most_bytes):
        line = b"%x\r\n" % size
        if size + len(line) + 2 < most_bytes:
            lines[size + len(line) + 2] = line, len(line)
    return lines


_NO_LINE: Final = (b"", 0)
_MOST_KNOWN_BYTES: Final = 4096
_SIZE_LINES: Final = _size_lines(_MOST_KNOWN_BYTES)
