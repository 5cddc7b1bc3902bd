"""The lines of a trace file: JSON objects, plain or gzipped, and errors that name file and line."""

from __future__ import annotations

import gzip
import json
import os
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

MOST_TOKENS = 10**8
"""Of one prompt; beyond that a trace is broken, or made to fill memory."""

MOST_LINE_BYTES = 2**26
"""No request takes a line so long; what does is no trace, and may have no end."""

_GZIP_MAGIC = b"\x1f\x8b"


class TraceError(ValueError):
    """A trace cannot be read; the message names the file, the line where there is one, and what is wrong."""


class Line(NamedTuple):
    """One object of a trace file and where it stands."""

    path: Path
    number: int
    row: Mapping[str, Any]

    def error(self, what: str) -> TraceError:
        """An error about this line."""
        return TraceError(f"{self.path}, line {self.number}: {what}")

    def number_of(self, name: str, most: float = MOST_TOKENS) -> float:
        """A field that must be a number from 0 to `most`; a number in quotes is one, too."""
        try:
            value = float(self.row[name])
        except KeyError:
            raise self.error(f"`{name}` is missing") from None
        except (TypeError, ValueError, OverflowError):
            raise self.error(f"`{name}` is no number") from None
        if not 0 <= value <= most:
            raise self.error(f"`{name}` is {value:g}, it must be from 0 to {most:g}")
        return value

    def count_of(self, name: str, most: int = MOST_TOKENS) -> int:
        """The same for a whole number."""
        value = self.number_of(name, most)
        if value != int(value):
            raise self.error(f"`{name}` is {value:g}, it must be a whole number")
        return int(value)

    def list_of(self, name: str) -> list[Any]:
        """A field that must be a list."""
        value = self.row.get(name)
        if not isinstance(value, list):
            raise self.error(f"`{name}` is {'no list' if name in self.row else 'missing'}")
        return value


def read_lines(path: Path, *, may_be_cut: bool = False) -> Iterator[Line]:
    """Every object of the file; blank lines are passed over. TraceError for what cannot be read.

    A trace is read several times over, which pipes and devices cannot be. With `may_be_cut` a last line without its
    end is left out: whoever wrote it was killed, or is still writing.
    """
    if os.path.exists(path) and not os.path.isfile(path):  # they never raise
        raise TraceError(f"{path}: this is no file; write what comes from it to one first")
    try:
        with _opened(path) as lines:
            for number, text in enumerate(_texts(lines, may_be_cut), 1):
                if len(text) == MOST_LINE_BYTES:
                    raise TraceError(f"{path}, line {number}: it is longer than {MOST_LINE_BYTES} bytes")
                if text.strip() and not (may_be_cut and not text.endswith(b"\n")):
                    yield Line(path, number, _object(path, number, text))
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or f"the file is damaged ({error})"
        raise TraceError(f"{path}: {reason}") from error


def first_line(path: Path) -> Line:
    """The first object, by which a format is known."""
    line = next(read_lines(path), None)
    if line is None:
        raise TraceError(f"{path}: the file is empty")
    return line


def _texts(lines: IO[bytes], may_be_cut: bool) -> Iterator[bytes]:
    """The file's lines as they stand; a gzip stream that breaks off ends them where that is no fault."""
    try:
        yield from iter(lambda: lines.readline(MOST_LINE_BYTES), b"")
    except EOFError:
        if not may_be_cut:
            raise


def _opened(path: Path) -> IO[bytes]:
    with path.open("rb") as file:
        zipped = file.read(2) == _GZIP_MAGIC
    return cast(IO[bytes], gzip.open(path, "rb")) if zipped else path.open("rb")


def _object(path: Path, number: int, text: bytes) -> dict[str, Any]:
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        raise TraceError(f"{path}, line {number}: this is no JSON") from None
    if not isinstance(row, dict):
        raise TraceError(f"{path}, line {number}: a JSON object is wanted")
    return row
