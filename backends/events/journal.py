"""From what happens to blocks in a step to the events that tell it: chains in one event, in program order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backends.events.wire import GPU, BlockHash, Cleared, Event, Removed, Stored
from backends.hashing import TOKEN_BYTES, BlockKey, RootKey, unpack

HASH_BITS = 64


class _Run:
    """Blocks that will be told in one event: a chain that was stored, or a row that was removed."""

    __slots__ = ("gone", "keys", "medium", "parents")

    def __init__(self, medium: str, *, gone: bool) -> None:
        self.medium = medium
        self.gone = gone
        self.keys: list[BlockKey] = []
        self.parents: list[BlockKey | None] = []


class EventJournal:
    """A `Journal` (backends/journal.py) that keeps the events of a step until `flush` gives them to `publish`.

    Engine thread only. `tiers` takes the same news of slower media. Hashes are u64 (the low 64 bits of the digest),
    as vLLM's, or whole digests with `whole_hashes`.
    """

    def __init__(self, publish: Callable[[Sequence[Event]], None], *, whole_hashes: bool = False) -> None:
        self._publish = publish
        self._whole_hashes = whole_hashes
        self._pending: list[_Run | None] = []  # None: everything was cleared
        self._adapters: dict[bytes, str] = {}
        self.tiers = TierEvents(self)

    def stored(self, key: BlockKey, block_id: int) -> None:  # noqa: ARG002 - the protocol's
        """The block continues the chain before it, or starts another event."""
        self._note_adapter(key)
        self.append_stored(key, GPU)

    def overwritten(self, key: BlockKey, block_id: int) -> None:
        """Nothing: what matters is whether a copy stays."""

    def removed(self, key: BlockKey) -> None:
        """The last copy is gone."""
        self.append_removed(key, GPU)
        self._adapters.pop(key.digest, None)

    def cleared(self) -> None:
        """Everything is gone from the pool."""
        self._pending.append(None)
        self._adapters.clear()
        self.tiers.repeat()

    def repeat(self, keys: Sequence[BlockKey]) -> None:
        """Tell again that these blocks, in chain order, are here: for routers that came late (vLLM's mode "full")."""
        for key in keys:
            self.append_stored(key, GPU)

    def flush(self) -> None:
        """Publish what the step did, as one batch; nothing when it did nothing."""
        if self._pending:
            pending, self._pending = self._pending, []
            self._publish([Cleared() if run is None else self._event(run) for run in pending])

    def append_stored(self, key: BlockKey, medium: str) -> None:
        """`key` can be had from `medium`."""
        last = self._pending[-1] if self._pending else None
        if last is None or last.gone or last.medium != medium or last.keys[-1] is not key.parent:
            last = _Run(medium, gone=False)
            self._pending.append(last)
        last.keys.append(key)
        # Noted now: the parent object of a key may be exchanged for an equal one later.
        last.parents.append(key.parent)

    def append_removed(self, key: BlockKey, medium: str) -> None:
        """`key` can no longer be had from `medium`."""
        last = self._pending[-1] if self._pending else None
        if last is None or not last.gone or last.medium != medium:
            last = _Run(medium, gone=True)
            self._pending.append(last)
        last.keys.append(key)

    def _note_adapter(self, key: BlockKey) -> None:
        """vLLM names the adapter in every block; ours is in the root, which a long chain is far from."""
        parent = key.parent
        if isinstance(parent, RootKey):
            adapter = parent.adapter
        else:
            adapter = self._adapters.get(parent.digest) if self._adapters and parent is not None else None
        if adapter is not None:
            self._adapters[key.digest] = adapter

    def _event(self, run: _Run) -> Event:
        hashes = [self._hash(key.digest) for key in run.keys]
        if run.gone:
            return Removed(hashes, run.medium)
        first, parent = run.keys[0], run.parents[0]
        at_start = isinstance(parent, RootKey)
        adapter = parent.adapter if isinstance(parent, RootKey) else self._adapters.get(first.digest)
        named: list[str] = [] if adapter is None else [adapter]
        extra_keys: list[list[str] | None] = [named or None] * len(hashes)
        if isinstance(parent, RootKey) and parent.cache_salt is not None:
            extra_keys[0] = [*named, parent.cache_salt]
        return Stored(
            hashes,
            None if at_start or parent is None else self._hash(parent.digest),
            unpack(b"".join(key.tokens for key in run.keys)).tolist(),
            len(first.tokens) // TOKEN_BYTES,
            adapter,
            extra_keys,
            run.medium,
        )

    def _hash(self, digest: bytes) -> BlockHash:
        return digest if self._whole_hashes else int.from_bytes(digest[-HASH_BITS // 8 :], "big")


class TierEvents:
    """What tiers keep, in the same batches. A medium that is cleared has its blocks removed one by one.

    vLLM's AllBlocksCleared names no medium, and takes the others' blocks with it. So these are told again after one.
    """

    def __init__(self, journal: EventJournal) -> None:
        self._journal = journal
        self._kept: dict[str, dict[bytes, BlockKey]] = {}

    def stored(self, key: BlockKey, medium: str) -> None:
        """The block can be loaded from `medium`, "CPU" or "STORAGE"."""
        self._kept.setdefault(medium, {})[key.digest] = key
        self._journal.append_stored(key, medium)

    def repeat(self) -> None:
        """Tell again of everything that is kept."""
        for medium, kept in self._kept.items():
            for key in kept.values():
                self._journal.append_stored(key, medium)

    def removed(self, key: BlockKey, medium: str) -> None:
        """It no longer can."""
        if self._kept.get(medium, {}).pop(key.digest, None) is not None:
            self._journal.append_removed(key, medium)

    def cleared(self, medium: str) -> None:
        """Nothing can be loaded from `medium` any more."""
        for key in self._kept.pop(medium, {}).values():
            self._journal.append_removed(key, medium)
