"""The files of the disk tier: where a block's file is, how it is written whole or not at all, what lies there at start.

    <root>/<model>_<12 hex of the config digest>/<hhh>/<hh>/<64 hex>.kv

A file is written under a temporary name and renamed when it is complete, so a process killed at any moment leaves
whole files and temporary ones. Nothing is flushed to the device (no fsync): after a power failure a renamed file may
lack its content, which its checksums tell, and a cache may lose what it held. That saves the wait for the device.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_BLOCK_FILE = re.compile(r"([0-9a-f]{64})\.kv\Z")
_TEMPORARY_FILE = re.compile(r"[0-9a-f]{64}\.([0-9]+)\.tmp\Z")
_UNFIT_FOR_A_FILE_NAME = re.compile(r"[^A-Za-z0-9._-]+")


class FoundFile(NamedTuple):
    """A block's file as the start finds it; `used_seconds` is its time of modification."""

    name: bytes
    size_bytes: int
    used_seconds: float


class BlockFiles:
    """The folder of one model and config below `root`. Methods raise OSError."""

    def __init__(self, root: Path, model: str, config_digest: str) -> None:
        self.folder = root / f"{_UNFIT_FOR_A_FILE_NAME.sub('-', model).strip('.-') or 'model'}_{config_digest}"

    def make_folder(self) -> None:
        """Make it, for this user alone: K/V hold what prompts said."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def path(self, name: bytes) -> Path:
        """Where the block of this name is."""
        digits = name.hex()
        return self.folder / digits[:3] / digits[3:5] / f"{digits}.kv"

    def read(self, name: bytes, expected_bytes: int) -> bytes:
        """The file's content, at most one byte more than expected."""
        with self.path(name).open("rb", buffering=0) as file:
            return file.read(expected_bytes + 1)

    def write(self, name: bytes, *parts: bytes | memoryview) -> None:
        """Write the whole file or nothing."""
        path = self.path(name)
        if not path.parent.is_dir():
            self.make_folder()
            path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            with temporary.open("wb", buffering=0) as file:
                for part in parts:
                    _write_all(file.fileno(), part)
            temporary.replace(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise

    def used(self, name: bytes) -> None:
        """Note the use, for the order in which a later start finds the files."""
        os.utime(self.path(name))

    def remove(self, name: bytes) -> None:
        """Remove the file; the folders stay."""
        self.path(name).unlink(missing_ok=True)

    def scan(self) -> Iterator[FoundFile]:
        """Every block's file; what a dead process was writing is removed, what is not ours is left alone.

        What another worker on the same folder removes meanwhile is not there.
        """
        for first in _entries(self.folder):
            for second in _entries(first.path) if first.is_dir(follow_symlinks=False) else ():
                for entry in _entries(second.path) if second.is_dir(follow_symlinks=False) else ():
                    if match := _BLOCK_FILE.match(entry.name):
                        with suppress(FileNotFoundError):
                            if entry.is_file(follow_symlinks=False):
                                status = entry.stat(follow_symlinks=False)
                                yield FoundFile(bytes.fromhex(match[1]), status.st_size, status.st_mtime)
                    elif (match := _TEMPORARY_FILE.match(entry.name)) and not _is_at_work(int(match[1])):
                        with suppress(OSError):
                            Path(entry.path).unlink()

    def set_aside(self) -> None:
        """Make the folder empty at once; `delete_set_aside` does the long part."""
        aside = self.folder.with_name(f".{self.folder.name}.{os.getpid()}.{os.urandom(4).hex()}.gone")
        with suppress(FileNotFoundError):
            self.folder.rename(aside)

    def delete_set_aside(self) -> None:
        """Delete what was set aside, also by a process that ended before it had."""
        for path in self.folder.parent.glob(f".{self.folder.name}.*.gone"):
            shutil.rmtree(path, ignore_errors=True)


def _entries(folder: Path | str) -> Iterator[os.DirEntry[str]]:
    """What is in a folder; nothing when it cannot be read."""
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries


def _write_all(descriptor: int, part: bytes | memoryview) -> None:
    """A full disk may take a part of what it is given."""
    view = memoryview(part)
    while view:
        view = view[os.write(descriptor, view) :]


def _is_at_work(process_id: int) -> bool:
    """Whether another process of this id runs. Our own id in a file found at start is a dead namesake's."""
    if process_id == os.getpid():
        return False
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
