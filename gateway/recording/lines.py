"""Served requests as lines of a recording: JSON with block hashes that nothing outside the file can be joined with.

Every hash goes through BLAKE2b under a key of this file, tenant and model; the file's key is random and kept nowhere.
A line lists only the blocks that follow the longest beginning which the file already has, so that a conversation's
turns cost what is new in them.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import msgspec

from router.core import Prompt

FORMAT_VERSION: Final = 1
MARK: Final = "homing_recording"
"""The first line's field by which a recording is known."""

SALT_BYTES: Final = 32
HASH_BYTES: Final = 8
"""Of a block in a file: ten million blocks collide somewhere with a chance of 3 in a million."""

REMEMBERED_BLOCKS: Final = 2**18
"""Blocks remembered to be in the file; one that is forgotten is listed again, no more."""


class Served(NamedTuple):
    """One request as its bill knows it at the end.

    `at_seconds` is Unix time. `tenant` and `asked_model` (an adapter's name, perhaps) go into the hashes only; `model`
    is the base model, whose workers served it. What the worker did not say is None.
    """

    at_seconds: float
    tenant: str
    asked_model: str
    model: str
    prompt: Prompt
    key: bytes
    worker: str
    code: int
    prompt_tokens: int
    output_tokens: int | None
    ttft_seconds: float | None
    total_seconds: float
    cached_tokens: int | None


class LineWriter:
    """Lines of one file. `salt` is SALT_BYTES random bytes that nobody else ever sees."""

    def __init__(self, salt: bytes, sample: float, remembered_blocks: int = REMEMBERED_BLOCKS) -> None:
        self._salt = salt
        self._sample = sample
        self._keys: dict[tuple[str, str], bytes] = {}
        # Names that the file has, the younger and the older half.
        self._generation_blocks = remembered_blocks // 2
        self._young: set[str] = set()
        self._old: set[str] = set()

    def head(self, at_seconds: float) -> bytes:
        """The first line."""
        told = {MARK: FORMAT_VERSION, "at": round(at_seconds, 3), "sample": self._sample}
        return msgspec.json.encode(told) + b"\n"

    def line(self, served: Served) -> bytes:
        """One request's line."""
        prompt = served.prompt
        key = self._key(served.tenant, served.asked_model)
        after, exact = self._rest(prompt.exact_blocks, key)
        told: dict[str, Any] = {
            "at": round(served.at_seconds, 4),
            "model": served.model,
            "worker": served.worker,
            "code": served.code,
            "tokens": served.prompt_tokens,
            "output": served.output_tokens,
            "ttft": None if served.ttft_seconds is None else round(served.ttft_seconds, 4),
            "total": round(served.total_seconds, 4),
            "cached": served.cached_tokens,
            "block_tokens": prompt.block_tokens,
            "after": after,
            "exact": exact,
        }
        if prompt.key_blocks != prompt.exact_blocks:
            told["key_after"], told["key"] = self._rest(prompt.key_blocks, key)
        return msgspec.json.encode(told) + b"\n"

    def forget(self) -> None:
        """Lines were lost: nothing is known to be in the file any more."""
        self._young, self._old = set(), set()

    def _rest(self, blocks: Sequence[bytes], key: bytes) -> tuple[str, list[str]]:
        """The last block that the file has, "" for none, and the blocks after it, which it has from now on."""
        rest: list[str] = []
        after = ""
        for block in reversed(blocks):
            name = blake2b(block, digest_size=HASH_BYTES, key=key).hexdigest()
            if name in self._young or name in self._old:
                after = name
                break
            rest.append(name)
        rest.reverse()
        self._remember(after, rest)
        return after, rest

    def _remember(self, after: str, rest: list[str]) -> None:
        self._young.update(rest)
        if after:
            self._young.add(after)
        if len(self._young) > self._generation_blocks:
            self._young, self._old = set(), self._young

    def _key(self, tenant: str, model: str) -> bytes:
        """The key of a tenant's blocks of a model in this file."""
        key = self._keys.get((tenant, model))
        if key is None:
            scope = msgspec.msgpack.encode((tenant, model))
            key = self._keys[tenant, model] = blake2b(scope, key=self._salt, person=b"homing recording").digest()
        return key
