"""Remembers whole prompts, so that one which comes again costs a hash of its text and no more.

The same prompt is sent again by retries, by a count of tokens before the request, by probes and by whoever asks many
times. What only begins like an earlier one is the PrefixMemo's.
"""

from __future__ import annotations

import marshal
from collections import OrderedDict
from collections.abc import Hashable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from xxhash import xxh3_128

from router.core import Prompt, PromptSource
from router.memo import BLOCK_BYTES, NODE_BYTES

_PLAIN = ["role", "content"]
_POINTER_BYTES = 8
_MARSHAL = 2
"""The last version that writes equal values as equal bytes, whoever else holds them."""


class Seen(NamedTuple):
    """A finished prompt, and the keys of the memo's nodes in which its chains end."""

    prompt: Prompt
    ends: tuple[bytes, ...]

    @property
    def size_bytes(self) -> int:
        """What it takes of the bound, about: its blocks may outlive the nodes they came from."""
        exact, key = self.prompt.exact_blocks, self.prompt.key_blocks
        unlike = len(key) if len(self.ends) > 1 else 1
        return NODE_BYTES + _POINTER_BYTES * (len(exact) + len(key)) + BLOCK_BYTES * (len(exact) + unlike)


class SeenPrompts:
    """Prompts by what they were made from, least recently used first, bounded in bytes; see PrefixMemo for `lock`."""

    def __init__(self, bound_bytes: int, lock: AbstractContextManager[Any] | None = None) -> None:
        self.bound_bytes = bound_bytes
        self.held_bytes = 0
        self._lock = nullcontext() if lock is None else lock
        self._seen: OrderedDict[Hashable, Seen] = OrderedDict()

    def __len__(self) -> int:
        return len(self._seen)

    def find(self, key: Hashable) -> Seen | None:
        """What was kept under `key`; now it is the newest."""
        with self._lock:
            seen = self._seen.get(key)
            if seen is not None:
                self._seen.move_to_end(key)
            return seen

    def keep(self, key: Hashable, seen: Seen) -> None:
        """Remember a prompt, whose lists nobody may change from now on."""
        with self._lock:
            if key not in self._seen:
                self._seen[key] = seen
                self.held_bytes += seen.size_bytes
            while self.held_bytes > self.bound_bytes:
                _, gone = self._seen.popitem(last=False)
                self.held_bytes -= gone.size_bytes


def source_digest(source: PromptSource) -> bytes | None:
    """16 bytes that differ wherever anything differs that a prompt is made from.

    None for token ids, which need no tokenising, and for values that JSON does not have.
    """
    digest = source.digest
    if digest is None:
        digest = _digest(source)
        object.__setattr__(source, "digest", digest)
    return digest


def _digest(source: PromptSource) -> bytes | None:
    if source.prompt is not None:
        if not isinstance(source.prompt, str):
            return None
        return xxh3_128(b"prompt" + source.prompt.encode("utf-8", "surrogatepass")).digest()
    digest = xxh3_128(b"chat+" if source.add_generation_prompt else b"chat-")
    add = digest.update
    try:
        if source.tools or source.template_arguments:
            add(_spelled((source.tools, dict(source.template_arguments))))
        for message in source.messages or ():
            if [*message] == _PLAIN and type(content := message["content"]) is type(role := message["role"]) is str:
                text = content.encode("utf-8", "surrogatepass")
                add(f"{len(role)} {role}{len(text)} ".encode("utf-8", "surrogatepass"))
                add(text)
            else:
                add(b"*" + _spelled(message))
    except ValueError:
        return None
    return digest.digest()


def _spelled(value: Any) -> bytes:
    """Bytes that are equal for equal values only; ValueError for what is no plain value."""
    return marshal.dumps(value, _MARSHAL)
