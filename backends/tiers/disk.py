"""The disk tier: a file per block in a bounded folder that outlives the process; what was not used for longest goes."""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from backends.hashing import BlockKey
from backends.tiers.breaker import Breaker
from backends.tiers.disk_files import BlockFiles
from backends.tiers.entry import BrokenEntryError, EntryFormat, Named
from backends.tiers.interface import FetchState
from backends.tiers.tier import STORAGE_MEDIUM, Payload, TierCounters, TierNews, TierStats

logger = logging.getLogger("homing.worker")


class _File(NamedTuple):
    """`key` is None for a file from an earlier run that nobody asked for yet."""

    size_bytes: int
    key: BlockKey | None


class DiskTier:
    """At most `limit_bytes` of files. What is there is known from memory alone, so a look-up never touches the disk.

    One thread looks up, one loads, one stores; the index has a lock that nobody holds while waiting for the disk.
    """

    name = "disk"

    def __init__(
        self, files: BlockFiles, entries: EntryFormat, limit_bytes: int, news: TierNews, clock: Callable[[], float]
    ) -> None:
        self.counters = TierCounters()
        self.used_bytes = 0
        self._files = files
        self._entries = entries
        self._limit_bytes = limit_bytes
        self._news = news
        self._breaker = Breaker(clock)
        self._index: OrderedDict[bytes, _File] = OrderedDict()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Take stock of the folder; OSError when it cannot be made or read. What is over the limit is removed."""
        self._files.make_folder()
        self._delete_set_aside()
        for found in sorted(self._files.scan(), key=lambda found: found.used_seconds):
            if found.size_bytes == self._entries.entry_bytes:
                self._index[found.name] = _File(found.size_bytes, None)
                self.used_bytes += found.size_bytes
            else:
                self.counters.broken += 1
                self._files.remove(found.name)
        self._make_room(0)

    def lookup(self, name: bytes) -> FetchState:
        """PENDING or MISS."""
        return FetchState.PENDING if name in self._index else FetchState.MISS

    def holds(self, name: bytes) -> bool:
        """Whether it is here, or had no chance now: the disk failed a moment ago."""
        return name in self._index or self._breaker.resting

    def load(self, blocks: Sequence[Named]) -> Iterator[Payload]:
        """Read and verify; a file that is not whole, or not this block's, is removed."""
        for block in blocks:
            payload = self._read(block) if block.name in self._index else None
            if payload is None:
                return
            self.counters.loads += 1
            self.counters.load_bytes += len(payload)
            self._used(block)
            yield payload

    def _read(self, block: Named) -> Payload | None:
        try:
            return self._entries.open(block, self._files.read(block.name, self._entries.entry_bytes))
        except BrokenEntryError:
            self.counters.broken += 1
        except FileNotFoundError:
            pass  # whoever shares the folder removed it
        except OSError:
            self.counters.failed_loads += 1
        self._forget(block.name)
        return None

    def _used(self, block: Named) -> None:
        with self._lock:
            found = self._index.get(block.name)
            if found is None:
                return
            self._index.move_to_end(block.name)
            if found.key is None:
                self._index[block.name] = found._replace(key=block.key)
                self._news.stored(block.key, STORAGE_MEDIUM)
        with suppress(OSError):
            self._files.used(block.name)

    def _forget(self, name: bytes) -> None:
        """Out of the index and off the disk; a file that cannot be removed is not asked for again in this run."""
        with self._lock:
            gone = self._index.pop(name, None)
            if gone is not None:
                self.used_bytes -= gone.size_bytes
                if gone.key is not None:
                    self._news.removed(gone.key, STORAGE_MEDIUM)
        with suppress(OSError):
            self._files.remove(name)

    def store(self, block: Named, payload: Payload) -> None:
        """Write a file; where the disk is full or refuses, nothing happens and the disk is left alone for a while."""
        size = self._entries.entry_bytes
        if block.name in self._index:
            return
        if size > self._limit_bytes:
            self.counters.failed_stores += 1
            return
        try:
            self._make_room(size)
            self._files.write(block.name, self._entries.seal(block, payload), payload)
        except OSError:
            self.counters.failed_stores += 1
            self._breaker.failed()
            return
        self._breaker.worked()
        with self._lock:
            self._index[block.name] = _File(size, block.key)
            self.used_bytes += size
            self._news.stored(block.key, STORAGE_MEDIUM)
        self.counters.stores += 1
        self.counters.store_bytes += len(payload)

    def _make_room(self, size_bytes: int) -> None:
        while self.used_bytes + size_bytes > self._limit_bytes and self._index:
            with self._lock:
                oldest = next(iter(self._index), None)
            if oldest is not None:
                self._files.remove(oldest)  # raises on a disk that refuses, before the file is forgotten
                self._forget(oldest)
                self.counters.evicted += 1

    def touch(self, name: bytes) -> None:
        """It is the last one to go now."""
        with self._lock:
            if name in self._index:
                self._index.move_to_end(name)

    def reset(self) -> None:
        """Forget everything; the files are set aside, so that no restart finds half of them, and deleted by and by."""
        with self._lock:
            self._index.clear()
            self.used_bytes = 0
        try:
            self._files.set_aside()
            self._delete_set_aside()
        except OSError as error:
            logger.warning("Files of the disk tier could not be removed (%s); a restart finds them", error.strerror)
        self._news.cleared(STORAGE_MEDIUM)

    def _delete_set_aside(self) -> None:
        """In a thread of its own: it takes 0.6 ms a file, and nobody needs to wait for it."""
        threading.Thread(target=self._files.delete_set_aside, name="disk reset", daemon=True).start()

    def stats(self) -> TierStats:
        """Now."""
        counters = replace(self.counters)
        return TierStats(self.name, STORAGE_MEDIUM, len(self._index), self.used_bytes, self._limit_bytes, counters)

    def check_integrity(self) -> None:
        """AssertionError when the index and the folder differ. Nobody may be writing meanwhile."""
        with self._lock:
            there = {found.name: found.size_bytes for found in self._files.scan()}
            indexed = {name: file.size_bytes for name, file in self._index.items()}
            if there != indexed or sum(indexed.values()) != self.used_bytes or self.used_bytes > self._limit_bytes:
                raise AssertionError(
                    f"{len(there)} files on disk, {len(indexed)} in the index, {self.used_bytes} bytes counted"
                )
