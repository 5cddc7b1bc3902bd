"""The files of a recording: bounded in size and number, readable by nobody else, whole after every write."""

from __future__ import annotations

import gzip
import os
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Final

import msgspec

from gateway.recording.lines import MARK

_GZIP_MAGIC: Final = b"\x1f\x8b"
_HEAD_BYTES: Final = 4096


class RecordFile:
    """One file being written. Each write is a gzip member of its own where the path ends in .gz.

    What stands at the path already is moved to PATH.1 and so on; the oldest beyond `files` goes.
    """

    def __init__(self, path: Path, files: int) -> None:
        """OSError when it cannot be made."""
        _make_room(path, files)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o600)
        self._zipped = path.suffix == ".gz"
        self.written_bytes = 0

    def write(self, data: bytes) -> None:
        """Write all of `data` or, with an OSError, nothing."""
        packed = memoryview(gzip.compress(data, 6, mtime=0) if self._zipped else data)
        total = len(packed)
        try:
            while packed:
                packed = packed[os.write(self._descriptor, packed) :]
        except OSError:
            self._back_to(self.written_bytes)
            raise
        self.written_bytes += total

    def close(self) -> None:
        """Nothing is written after this."""
        with suppress(OSError):
            os.close(self._descriptor)

    def _back_to(self, size: int) -> None:
        with suppress(OSError):
            os.ftruncate(self._descriptor, size)
            os.lseek(self._descriptor, size, os.SEEK_SET)


def kept_paths(path: Path, files: int) -> list[Path]:
    """Where `files` files of a recording are kept, the one being written first."""
    return [path, *(path.with_name(f"{path.name}.{number}") for number in range(1, files))]


def is_recording(path: Path) -> bool:
    """Whether the file there begins as a recording does; an empty one may become one. OSError if it cannot be read."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if head[:2] == _GZIP_MAGIC:
        head = _unpacked(path)
    try:
        return not head or MARK in msgspec.json.decode(head.partition(b"\n")[0], type=dict)
    except msgspec.DecodeError:
        return False


def _unpacked(path: Path) -> bytes:
    try:
        with gzip.open(path) as unpacked:
            return unpacked.read(_HEAD_BYTES)
    except (gzip.BadGzipFile, EOFError, zlib.error):
        return b"damaged"


def _make_room(path: Path, files: int) -> None:
    """Give the file there and each older one the next number; the last one is written over."""
    if not os.path.lexists(path):
        # Nothing moves twice when the new file cannot be made and is tried again.
        return
    kept = kept_paths(path, files)
    for newer, older in reversed(list(pairwise(kept))):
        with suppress(FileNotFoundError):
            newer.replace(older)
    if files == 1:
        path.unlink(missing_ok=True)
