"""Remembers how the system texts that open a conversation fold: every turn brings them again, and folding reads them.

Folding a message looks at no other but for the ids of tool calls, which system messages do not have; so the opening
and the rest are folded apart and put together.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import takewhile
from typing import Any

from router.core import Json
from router.messages import Message
from router.normalise import Folded, FoldRules, fold_messages

BOUND_CHARACTERS = 4 * 2**20
SHORTEST_CHARACTERS = 256
"""Below this folding costs less than looking it up."""

_PLAIN = frozenset({"role", "content"})
_SYSTEM_ROLES = frozenset({"system", "developer"})
_Opening = tuple[tuple[str, str], ...]


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
        self._known: OrderedDict[tuple[bytes, FoldRules, _Opening], Folded] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def fold(
        self,
        seed: bytes,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Json]] | None,
        rules: FoldRules,
    ) -> Folded:
        """What `fold_messages` gives for the same messages, tools and rules."""
        opening = tuple((message["role"], message["content"]) for message in takewhile(_opens, messages))
        if _characters(opening) < SHORTEST_CHARACTERS:
            return fold_messages(messages, tools, rules)
        length = len(opening)
        head = self._opening(seed, opening, messages[:length], rules)
        rest = fold_messages(messages[length:], tools, rules)
        return _joined(messages, length, head, rest)

    def _opening(self, seed: bytes, opening: _Opening, messages: Sequence[Message], rules: FoldRules) -> Folded:
        key = (seed, rules, opening)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
                return known
        folded = fold_messages(messages, None, rules)
        with self._lock:
            self._keep(key, folded)
        return folded

    def _keep(self, key: tuple[bytes, FoldRules, _Opening], folded: Folded) -> None:
        if key not in self._known:
            self._known[key] = folded
            self.held_characters += _characters(key[2])
        while self.held_characters > self.bound_characters:
            (_, _, opening), _ = self._known.popitem(last=False)
            self.held_characters -= _characters(opening)


def _opens(message: Message) -> bool:
    """Whether this is a system message of nothing but text."""
    return message.get("role") in _SYSTEM_ROLES and isinstance(message.get("content"), str) and message.keys() <= _PLAIN


def _characters(opening: _Opening) -> int:
    return sum(len(content) for _, content in opening)


def _joined(messages: Sequence[Message], length: int, head: Folded, rest: Folded) -> Folded:
    """The folding of all `messages`, of which `head` folds the first `length`; its texts may be an equal request's."""
    if not (head.changed or rest.changed):
        return Folded(messages, rest.tools, None, head.folds + rest.folds, changed=False)
    first = head.messages if head.changed else messages[:length]
    moved = tuple(fold if fold.message is None else fold._replace(message=fold.message + length) for fold in rest.folds)
    return Folded([*first, *rest.messages], rest.tools, None, head.folds + moved, changed=True)
