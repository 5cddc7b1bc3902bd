"""What one worker is known to hold, told by its KV events and kept in our own exact chain.

Worker hashes are opaque, so every block is hashed again from its tokens (router/blocks.py), and removals find it by
the worker's name for it. Three rules make the picture right for every engine:

- Copies in GPU memory are counted, since vLLM tells of each. Only a run told from the start of its chain counts
  nothing twice: engines that repeat what a request found cached (mode `full`) do it from the start, and a real second
  copy of a whole prompt is made only by a request that reads no cache. Where that errs, a block is thought gone early.
- Other media keep one copy. A block that left the GPU and is in a tier is still a hit, and counts as one.
- A block is of use only if its whole prefix is held. That is kept up to date here (`rooted`), so a match is a binary
  search whatever the worker evicts first.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from router.blocks import TOKEN_BYTES, chain, seed
from router.cache_events import DISK, GPU, MEDIA, CacheEvent, Removed, Stored, WorkerHash, read_extra

BOUND_BLOCKS = 262_144
"""Most blocks of one worker that are kept, about 80 MB; 4 million tokens in blocks of 16."""

_COPY = 4
_TIERS = {GPU: 0, MEDIA["CPU"]: 1, DISK: 2}
"""`held` counts GPU copies in steps of `_COPY`; the two bits below say which tiers have the block."""


class _Block:
    """One block of the worker's. `name` is our hash of the last full routing block, `tail` the tokens after it."""

    __slots__ = ("children", "held", "name", "parent", "rooted", "tail")

    def __init__(self, name: bytes, tail: bytes, parent: WorkerHash | None) -> None:
        self.name = name
        self.tail = tail
        self.parent = parent
        # Nearly all blocks have one child: a set for each would take more memory than everything else.
        self.children: WorkerHash | set[WorkerHash] | None = None
        self.held = 0
        self.rooted = False


class KnownBlocks:
    """One cache of one worker, for prompts of `model` hashed in routing blocks of `block_tokens` tokens.

    A worker's own block may be smaller, if it divides the routing block; `foreign_block_tokens` is one that does not.
    `awaited` names blocks whose arrival somebody waits for: those that came are appended to `arrived`. `absent` counts
    removals of blocks that are not here, `orphans` blocks whose parent was never told, `refused` those beyond the
    bound. `stored_blocks` and `removed_blocks` count what was told.
    """

    def __init__(self, model: str, block_tokens: int, bound_blocks: int = BOUND_BLOCKS) -> None:
        self.block_tokens = block_tokens
        self.bound_blocks = bound_blocks
        self.awaited: Container[bytes] = ()
        self.arrived: list[bytes] = []
        self.foreign_block_tokens: int | None = None
        self.stored_blocks = self.removed_blocks = self.absent = self.orphans = self.refused = 0
        self._model = model
        self._blocks: dict[WorkerHash, _Block] = {}
        self._findable: dict[bytes, int] = {}
        self._held = 0

    def __len__(self) -> int:
        """How many of the worker's blocks it holds, on any medium."""
        return self._held

    def match(self, chain: Sequence[bytes]) -> int:
        """Length in routing blocks of the longest held prefix of `chain`."""
        findable = self._findable
        if not chain or chain[0] not in findable:
            return 0
        if chain[-1] in findable:
            return len(chain)
        held, missing = 0, len(chain) - 1  # indices of blocks that are, and are not, held
        while missing - held > 1:
            middle = (held + missing) >> 1
            if chain[middle] in findable:
                held = middle
            else:
                missing = middle
        return missing

    def apply(self, events: Sequence[CacheEvent]) -> None:
        """Carry out the events of one batch, in order."""
        for event in events:
            if isinstance(event, Stored):
                self._store(event)
            elif isinstance(event, Removed):
                self._remove(event)
            else:
                self.clear()

    def clear(self) -> None:
        """Forget everything that is held."""
        self._blocks = {}
        self._findable = {}
        self._held = 0

    def check_integrity(self) -> None:
        """Raise AssertionError unless counts, links and what can be found agree."""
        blocks = self._blocks
        if sum(1 for block in blocks.values() if block.held) != self._held:
            raise AssertionError("the count of held blocks is wrong")
        findable: dict[bytes, int] = {}
        for key, block in blocks.items():
            parent = None if block.parent is None else blocks[block.parent]
            if parent is not None and key not in _children(parent):
                raise AssertionError("a block is not its parent's child")
            if not block.held and block.children is None:
                raise AssertionError("a block is kept that nobody needs")
            if block.rooted != (block.held > 0 and (parent is None or parent.rooted)):
                raise AssertionError("a block's prefix is said to be held and is not, or the other way round")
            if block.rooted and not block.tail:
                findable[block.name] = findable.get(block.name, 0) + 1
        if findable != self._findable:
            raise AssertionError("what can be found is not what is held")

    # Stored

    def _store(self, event: Stored) -> None:
        tier = _TIERS[event.medium]
        self.stored_blocks += len(event.block_hashes)
        if not event.tokens:
            self._store_again(event, tier)
        elif self.block_tokens % event.block_tokens:
            self.foreign_block_tokens = event.block_tokens
        elif event.parent is not None and event.parent not in self._blocks:
            self.orphans += len(event.block_hashes)
        else:
            self._store_run(event, tier)

    def _store_again(self, event: Stored, tier: int) -> None:
        """A tier took blocks that were told with their tokens before."""
        for key in event.block_hashes:
            block = self._blocks.get(key)
            if block is None:
                self.orphans += 1
            else:
                self._hold(key, block, tier, again=True)

    def _store_run(self, event: Stored, tier: int) -> None:
        step = event.block_tokens * TOKEN_BYTES
        parent, at_start = event.parent, event.parent is None
        for index, key in enumerate(event.block_hashes):
            block = self._blocks.get(key)
            if block is None:
                if len(self._blocks) >= self.bound_blocks:
                    self.refused += len(event.block_hashes) - index
                    return
                block = self._new(event, index, parent, event.tokens[index * step : (index + 1) * step])
                self._blocks[key] = block
                if parent is not None:
                    _adopt(self._blocks[parent], key)
            self._hold(key, block, tier, again=at_start)
            parent = key

    def _new(self, event: Stored, index: int, parent: WorkerHash | None, tokens: bytes) -> _Block:
        keys = event.extra_keys[index] if index < len(event.extra_keys) else None
        if parent is None:
            extra = read_extra(keys, event.adapter, first=True)
            salt = event.salt if event.salt is not None else extra.salt
            name, tail = seed(salt=salt, model=self._model, adapter=event.adapter), b""
        else:
            before = self._blocks[parent]
            extra = read_extra(keys, event.adapter, first=False)
            name, tail = before.name, before.tail
        if extra.others:
            # An image's placeholder tokens are anybody's: no prompt of text alone may find what follows them.
            name = seed(salt=None, model=self._model, extra=name + repr(extra.others).encode())
        full, rest = chain(name, tail + tokens, self.block_tokens)
        return _Block(full[-1] if full else name, rest, parent)

    def _hold(self, key: WorkerHash, block: _Block, tier: int, *, again: bool) -> None:
        before = block.held
        if tier:
            block.held |= tier
        elif before < _COPY or not again:
            block.held += _COPY
        if not before:
            self._held += 1
            if block.parent is None or self._blocks[block.parent].rooted:
                self._root(key)
        if not block.tail and block.name in self.awaited:
            self.arrived.append(block.name)

    def _root(self, key: WorkerHash) -> None:
        """The block's prefix is held, and so is that of what is held behind it."""
        waiting = [key]
        while waiting:
            block = self._blocks[waiting.pop()]
            block.rooted = True
            if not block.tail:
                self._findable[block.name] = self._findable.get(block.name, 0) + 1
            waiting += [child for child in _children(block) if self._blocks[child].held]

    # Removed

    def _remove(self, event: Removed) -> None:
        tier = _TIERS[event.medium]
        for key in event.block_hashes:
            self.removed_blocks += 1
            block = self._blocks.get(key)
            if block is None or not (block.held & tier if tier else block.held >= _COPY):
                self.absent += 1
                continue
            block.held -= tier or _COPY
            if not block.held:
                self._held -= 1
                if block.rooted:
                    self._unroot(key)
                self._prune(key, block)

    def _unroot(self, key: WorkerHash) -> None:
        waiting = [key]
        while waiting:
            block = self._blocks[waiting.pop()]
            block.rooted = False
            if not block.tail:
                left = self._findable[block.name] - 1
                if left:
                    self._findable[block.name] = left
                else:
                    del self._findable[block.name]
            waiting += [child for child in _children(block) if self._blocks[child].rooted]

    def _prune(self, key: WorkerHash, block: _Block) -> None:
        """Drop a block that is not held, unless held ones behind it need its name; then its parents, likewise."""
        while not block.held and block.children is None:
            del self._blocks[key]
            if block.parent is None:
                return
            parent = self._blocks[block.parent]
            _disown(parent, key)
            key, block = block.parent, parent


def _children(block: _Block) -> Iterator[WorkerHash]:
    children = block.children
    if isinstance(children, set):
        yield from children
    elif children is not None:
        yield children


def _adopt(parent: _Block, key: WorkerHash) -> None:
    children = parent.children
    if children is None:
        parent.children = key
    elif isinstance(children, set):
        children.add(key)
    else:
        parent.children = {children, key}


def _disown(parent: _Block, key: WorkerHash) -> None:
    children = parent.children
    if isinstance(children, set):
        children.discard(key)
        if not children:
            parent.children = None
    else:
        parent.children = None
