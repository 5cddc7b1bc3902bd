"""Remembers how the system texts that open a conversation and its tools fold: every turn brings them again.

Folding a message looks at no other but for the ids of tool calls, which system messages do not have; so the opening
and the rest are folded apart and put together.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from typing import Any, NamedTuple, TypeVar

from xxhash import xxh3_128_digest

from router.core import Fold, Json
from router.messages import Message
from router.normalise import Folded, FoldRules, fold_messages, tools_digest_text

BOUND_CHARACTERS = 4 * 2**20
SHORTEST_CHARACTERS = 256
"""Below this folding costs less than looking it up."""

TOOLS_CHARACTERS = 512
"""What the remembered folding of tools counts for; their text is not kept."""

_PLAIN = frozenset({"role", "content"})
_SYSTEM_ROLES = frozenset({"system", "developer"})
_Opening = tuple[tuple[str, str], ...]
_Value = TypeVar("_Value")


class ToolsFold(NamedTuple):
    """What folded in tools, and a digest of their canonical form (empty where there are none)."""

    folds: tuple[Fold, ...]
    digest: bytes


NO_TOOLS = ToolsFold((), b"")


class FoldMemo:
    """Foldings by seed, rules and text, least recently used first, bounded in characters.

    The seed keeps tenants apart. As with PrefixMemo, pass a lock where several threads build prompts.
    """

    def __init__(
        self, bound_characters: int = BOUND_CHARACTERS, lock: AbstractContextManager[Any] | None = None
    ) -> None:
        self.bound_characters = bound_characters
        self.held_characters = 0
        self._lock = nullcontext() if lock is None else lock
        self._known: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def messages(self, seed: bytes, messages: Sequence[Message], rules: FoldRules) -> Folded:
        """What `fold_messages` gives for the same messages and rules, without tools."""
        opening = tuple((message["role"], message["content"]) for message in takewhile(_opens, messages))
        size = sum(len(content) for _, content in opening)
        if size < SHORTEST_CHARACTERS:
            return fold_messages(messages, None, rules)
        length = len(opening)
        head = self._known_or((seed, rules, opening), size, lambda: fold_messages(messages[:length], None, rules))
        return _joined(messages, length, head, fold_messages(messages[length:], None, rules))

    def tools(self, seed: bytes, tools: Sequence[Mapping[str, Json]] | None, rules: FoldRules) -> ToolsFold:
        """How `tools` fold, and their digest: equal for tools that differ in nothing but what `rules` fold."""
        if not tools:
            return NO_TOOLS
        spelled = xxh3_128_digest(json.dumps(tools, default=str).encode())
        return self._known_or((seed, rules, spelled), TOOLS_CHARACTERS, lambda: _fold_tools(tools, rules))

    def _known_or(self, key: Hashable, size: int, make: Callable[[], _Value]) -> _Value:
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                value: _Value = known[0]
                return value
        value = make()
        with self._lock:
            self._keep(key, value, size)
        return value

    def _keep(self, key: Hashable, value: object, size: int) -> None:
        if key not in self._known:
            self._known[key] = value, size
            self.held_characters += size
        while self.held_characters > self.bound_characters:
            _, (_, gone) = self._known.popitem(last=False)
            self.held_characters -= gone


def _opens(message: Message) -> bool:
    """Whether this is a system message of nothing but text."""
    return message.get("role") in _SYSTEM_ROLES and isinstance(message.get("content"), str) and message.keys() <= _PLAIN


def _fold_tools(tools: Sequence[Mapping[str, Json]], rules: FoldRules) -> ToolsFold:
    folded = fold_messages((), tools, rules)
    canonical = tools_digest_text(folded.tools or tools)
    return ToolsFold(folded.folds, xxh3_128_digest(canonical.encode("utf-8", "surrogatepass")))


def _joined(messages: Sequence[Message], length: int, head: Folded, rest: Folded) -> Folded:
    """The folding of all `messages`, of which `head` folds the first `length`; its texts may be an equal request's."""
    if not (head.changed or rest.changed):
        return Folded(messages, folds=head.folds + rest.folds)
    first = head.messages if head.changed else messages[:length]
    moved = tuple(fold if fold.message is None else fold._replace(message=fold.message + length) for fold in rest.folds)
    return Folded([*first, *rest.messages], folds=head.folds + moved, changed=True)
