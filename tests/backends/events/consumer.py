"""A router's view of a worker's cache, written from the description of the wire alone: it knows nothing of our code.

What it goes by: frames are [topic, sequence u64 big-endian, msgpack]; a batch is an array [timestamp, events, rank];
an event is a map with a "type" or an array with its name first; a lower sequence number is a new process; a gap is
asked for again at the replay socket, in either framing; what cannot be had again makes the picture worthless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from typing import Any

import msgspec
import zmq

STORED = (
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
)
REMOVED = ("block_hashes", "medium")
FIELDS = {"BlockStored": STORED, "BlockRemoved": REMOVED, "AllBlocksCleared": ()}
END = (1 << 64) - 1
ATTENTION = (None, "GPU")

REPLAY_MILLISECONDS = 5000
"""How long a replay may keep silent between two answers."""


Missing = Callable[[int], list[tuple[int, bytes]]]
"""Fetches (sequence, payload) pairs from a number on."""


class IncompleteError(Exception):
    """Batches are missing that nobody has any more: ask for the whole cache again, or forget this worker."""


class Picture:
    """The blocks that one worker has cached, by its own hashes and by their tokens.

    Some workers tell of every copy of a block, stored and removed; then a block is gone when all copies are
    (`counts_copies`). Others tell only of the first and the last, and may repeat what they stored.
    """

    def __init__(self, *, counts_copies: bool = False) -> None:
        self.copies: Counter[Any] = Counter()
        self.names: dict[Any, bytes] = {}
        self.block_size: int | None = None
        self._counts_copies = counts_copies
        self._findable: Counter[bytes] = Counter()

    @property
    def hashes(self) -> set[Any]:
        """Cached in the memory that attention reads."""
        return set(self.copies)

    def clear(self) -> None:
        """Forget everything."""
        for kept in (self.copies, self.names, self._findable):
            kept.clear()

    def apply(self, batch: Sequence[Any]) -> None:
        """Carry out the events of one batch, in order."""
        for event in batch[1]:
            name, fields = read_event(event)
            if name == "BlockStored":
                self._store(fields)
            elif name == "BlockRemoved":
                self._remove(fields)
            elif name == "AllBlocksCleared":
                self.clear()

    def cached_tokens(self, tokens: Sequence[int], salt: str | None = None) -> int:
        """What a prompt will hit: whole blocks from its beginning, its last token never."""
        if not self.block_size:
            return 0
        hit, name = 0, root(None, salt)
        while hit + self.block_size < len(tokens):
            name = own_name(name, tokens[hit : hit + self.block_size])
            if not self._findable[name]:
                break
            hit += self.block_size
        return hit

    def _store(self, fields: dict[str, Any]) -> None:
        if fields.get("medium") not in ATTENTION:
            return
        size = self.block_size = fields["block_size"]
        parent, lora = fields["parent_block_hash"], fields.get("lora_name")
        extra = fields.get("extra_keys") or []
        salts = [key for key in (extra[0] if extra and extra[0] else ()) if key != lora]
        name = root(lora, salts[0] if salts else None) if parent is None else self.names.get(parent)
        for index, block in enumerate(fields["block_hashes"]):
            if name is not None:  # None: its parent was never told of
                name = own_name(name, fields["token_ids"][index * size : (index + 1) * size])
            self._add(block, name)

    def _add(self, block: Any, name: bytes | None) -> None:
        if not self.copies[block] and name is not None:
            self.names[block] = name
            self._findable[name] += 1
        self.copies[block] = self.copies[block] + 1 if self._counts_copies else 1

    def _remove(self, fields: dict[str, Any]) -> None:
        if fields.get("medium") not in ATTENTION:
            return
        for block in fields["block_hashes"]:
            copies = self.copies.pop(block, 0)  # 0: never heard of; the others still go
            if copies > 1:
                self.copies[block] = copies - 1
            elif copies and block in self.names:
                self._findable[self.names.pop(block)] -= 1


class Follower:
    """Applies batches in order, notices gaps and restarts.

    A lower number is a restart, and so is another payload under a number heard before: a new process may have counted
    past the old one's number. So whoever asks for what it missed asks for the last batch it heard as well.
    """

    def __init__(self, picture: Picture) -> None:
        self.picture = picture
        self.expected = 0
        self.epochs = 1
        self.repaired = 0
        self._last_payload: bytes | None = None

    def hear(self, sequence: int, payload: bytes, missing: Missing) -> None:
        """One published batch; `missing(first)` fetches (sequence, payload) pairs from `first` on, if it must."""
        if sequence < self.expected - 1 or self._is_foreign(sequence, payload):
            self._restart()
        if sequence > self.expected:
            self._repair(sequence, missing)
        if sequence == self.expected:
            self._apply(sequence, payload)

    def catch_up(self, missing: Missing) -> None:
        """Ask for what may have been published since, without waiting for another batch."""
        last = max(self.expected - 1, 0)
        batches = missing(last)
        if self._last_payload is not None and (not batches or batches[0] != (last, self._last_payload)):
            batches = missing(0)
        for sequence, payload in batches:
            self.hear(sequence, payload, missing)

    def _is_foreign(self, sequence: int, payload: bytes) -> bool:
        """Whether the last number heard stands for something else now."""
        return sequence == self.expected - 1 and payload != self._last_payload

    def _restart(self) -> None:
        """Another process speaks: nothing of what was known holds."""
        self.picture.clear()
        self.expected, self._last_payload = 0, None
        self.epochs += 1

    def _repair(self, sequence: int, missing: Missing) -> None:
        batches = dict(missing(max(self.expected - 1, 0)))
        if self.expected and self._is_foreign(self.expected - 1, batches.get(self.expected - 1, b"")):
            self._restart()
            batches = dict(missing(0))
        for number in range(self.expected, sequence):
            if number not in batches:
                self.picture.clear()
                raise IncompleteError(f"batch {number} is nowhere to be had")
            self._apply(number, batches[number])
            self.repaired += 1

    def _apply(self, sequence: int, payload: bytes) -> None:
        self.picture.apply(msgspec.msgpack.decode(payload))
        self.expected, self._last_payload = sequence + 1, payload


class Subscriber:
    """A follower on real sockets."""

    def __init__(
        self, endpoint: str, replay_endpoint: str, picture: Picture | None = None, *, topic: str = "", hwm: int = 0
    ) -> None:
        self.follower = Follower(picture or Picture())
        self._context = zmq.Context()
        self._replay_endpoint = replay_endpoint
        self.socket = self._context.socket(zmq.SUB)
        self.socket.set_hwm(hwm)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self.socket.connect(endpoint)

    @property
    def picture(self) -> Picture:
        return self.follower.picture

    def poll(self, milliseconds: int = 0) -> bool:
        """Take in everything that has come; whether there was anything."""
        heard = False
        while self.socket.poll(0 if heard else milliseconds):
            _topic, number, payload = self.socket.recv_multipart()
            self.follower.hear(int.from_bytes(number, "big"), payload, self.replay)
            heard = True
        return heard

    def catch_up(self) -> None:
        """Hear what was published since, from the replay socket."""
        self.follower.catch_up(self.replay)

    def replay(self, first: int) -> list[tuple[int, bytes]]:
        """What the replay socket has from `first` on."""
        asker = self._context.socket(zmq.DEALER)  # a REQ socket would hear only the first answer
        asker.set_hwm(0)
        try:
            asker.connect(self._replay_endpoint)
            asker.send_multipart([b"", first.to_bytes(8, "big")])
            return list(self._answers(asker))
        finally:
            asker.close(linger=0)

    @staticmethod
    def _answers(asker: zmq.Socket) -> Iterator[tuple[int, bytes]]:
        while asker.poll(REPLAY_MILLISECONDS):
            *_, number, payload = asker.recv_multipart()  # the topic before them is newer than 0.25
            sequence = int.from_bytes(number, "big")
            if sequence == END:
                return
            yield sequence, payload
        raise TimeoutError("the replay has no end")

    def close(self) -> None:
        self._context.destroy(linger=0)


def read_event(event: Any) -> tuple[str, dict[str, Any]]:
    """The name and the fields of an event in either encoding; fields and positions that are not known are left."""
    if isinstance(event, dict):
        return event["type"], event
    name, *values = event
    return name, dict(zip(FIELDS.get(name, ()), values, strict=False))


def root(lora: str | None, salt: str | None) -> bytes:
    """The name that first blocks follow."""
    return repr((lora, salt)).encode()


def own_name(parent: bytes, tokens: Sequence[int]) -> bytes:
    """This router's own name of a block."""
    return sha256(parent + repr(list(tokens)).encode()).digest()
