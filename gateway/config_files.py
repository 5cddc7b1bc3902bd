"""Which files a configuration depends on, and whether they have changed and come to rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from gateway.keys import key_files, split_end
from gateway.secrets import SecretError
from gateway.settings import Config

MOST_RESTLESS_LOOKS = 8
"""Files that change at every look are read all the same after so many."""


class FileStamp(NamedTuple):
    """One file as the system knows it; None of everything where it is not there.

    `target` is the path with every link followed: Kubernetes changes a mounted Secret by one link, `..data`.
    `turned_ns` changes with the rights, too: what could not be read is read when it may be.
    """

    path: str
    target: str
    inode: int | None = None
    size_bytes: int | None = None
    changed_ns: int | None = None
    turned_ns: int | None = None


Stamp = tuple[FileStamp, ...]


def referenced_files(config: Config) -> tuple[Path, ...]:
    """Every `file:PATH` that stands in the configuration, each once, in the order written."""
    return tuple(dict.fromkeys(_references(msgspec.to_builtins(config))))


def stamp_of(paths: tuple[Path, ...]) -> Stamp:
    """How these files, and the files in these folders, are now. Never raises."""
    return tuple(_stamp(path) for given in paths for path in _with_files(given))


def merged(before: Stamp, after: Stamp) -> Stamp:
    """How the files of `after` were when they were read: as in `before`, where they are in it."""
    known = {stamp.path: stamp for stamp in before}
    return tuple(known.get(stamp.path, stamp) for stamp in after)


class Rest:
    """Says when files have changed and have come to rest, from one stamp after another.

    A file that somebody is writing is not read half-way: two looks in a row must see the same.
    """

    def __init__(self, read: Stamp) -> None:
        """`read` is how the files were when they were read."""
        self._read = self._seen = read
        self._restless_looks = 0

    def to_be_read(self, stamp: Stamp) -> bool:
        """Take in the next look; whether the files should be read now."""
        at_rest, self._seen = stamp == self._seen, stamp
        if stamp == self._read:
            self._restless_looks = 0
            return False
        self._restless_looks += 1
        if not at_rest and self._restless_looks < MOST_RESTLESS_LOOKS:
            return False
        self.was_read(stamp)
        return True

    def was_read(self, stamp: Stamp) -> None:
        """The files were read when they were so."""
        self._read = self._seen = stamp
        self._restless_looks = 0


def _references(data: Any) -> Iterator[Path]:
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    for each in inside:
        yield from _references(each)
    if isinstance(data, str) and data.startswith("file:"):
        try:
            yield Path(split_end(data)[0].removeprefix("file:"))
        except SecretError:  # not a key, but something else that looks like one with an end
            yield Path(data.removeprefix("file:"))


def _with_files(path: Path) -> Iterator[Path]:
    yield path
    if os.path.isdir(path):
        with suppress(SecretError):
            yield from key_files(path)


def _stamp(path: Path) -> FileStamp:
    target = ""
    try:
        target = os.path.realpath(path)
        found = os.stat(target)
    except (OSError, ValueError):
        return FileStamp(str(path), target)
    return FileStamp(str(path), target, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
