"""Text to chained block hashes, segment by segment, with the help of what earlier prompts came to.

A text is cut before the special token that opens messages. Such a token is matched before anything else looks at the
text, so the segments' tokens are the text's tokens (the tokeniser checks this when it is loaded), and a segment that
was seen behind the same prefix need not be looked at again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xxhash import xxh3_128_digest

from router.blocks import TOKEN_BYTES, chain
from router.memo import Node, PrefixMemo
from router.tokenise import LoadedModelText, Tokeniser

MAX_SEGMENTS = 4096
"""More cuts than any conversation needs; a text made of openers must not fill the memo."""


@dataclass(frozen=True, slots=True)
class Path:
    """A text in segments: `found` ends the ones that are known, `unseen` are the others and `keys` their nodes'."""

    found: Node
    unseen: Sequence[str]
    keys: Sequence[bytes]

    @property
    def unseen_characters(self) -> int:
        """How much text is to be tokenised."""
        return sum(map(len, self.unseen))


class PrefixHasher:
    """Tokenises and hashes texts for one model; see PrefixMemo for what threads may do."""

    def __init__(self, tokeniser: Tokeniser, opener: str | None, hash_tokens: int, memo: PrefixMemo) -> None:
        self._tokeniser, self._opener, self._hash_tokens, self._memo = tokeniser, opener, hash_tokens, memo

    def path(self, root: Node, text: str) -> Path:
        """Cut `text`, which stands behind `root`, and look up how much of it is known."""
        segments = cut(text, self._opener)
        keys, key = [], root.key
        for segment in segments:
            key = xxh3_128_digest(key + segment.encode("utf-8", "surrogatepass"))
            keys.append(key)
        found = self._memo.deepest(keys)
        if found is None:
            return Path(root, segments, keys)
        known = keys.index(found.key) + 1
        return Path(found, segments[known:], keys[known:])

    def follow(self, path: Path, tokens_of: dict[str, bytes]) -> Node:
        """The node at the end of `path`, remembered. `tokens_of` keeps the tokens of segments for a second chain."""
        node = path.found
        for segment, key in zip(path.unseen, path.keys, strict=True):
            tokens = tokens_of.get(segment)
            if tokens is None:
                tokens = tokens_of[segment] = self._tokeniser.encode(segment)
            node = extended(node, key, tokens, self._hash_tokens)
        if path.unseen:
            self._memo.keep(node)
        return node


def root(parent: bytes, prefix: bytes = b"") -> Node:
    """Where a chain starts: the `parent` of its first block, and packed tokens that stand before its text."""
    key = xxh3_128_digest(b"prefix" + parent + prefix) if prefix else parent
    return Node(key, None, (), parent, prefix, len(prefix) // TOKEN_BYTES)


def extended(node: Node, key: bytes, tokens: bytes, hash_tokens: int) -> Node:
    """The node after `node` and `tokens` (packed), in blocks of `hash_tokens`."""
    blocks, tail = chain(node.last, node.tail + tokens, hash_tokens)
    last = blocks[-1] if blocks else node.last
    return Node(key, node, tuple(blocks), last, tail, node.tokens + len(tokens) // TOKEN_BYTES)


def opener_of(text: LoadedModelText) -> str | None:
    """The special token that begins a user turn and before which it is safe to cut; None if there is none."""
    marker = text.template.user_marker or ""
    places = [(marker.index(token), -len(token), token) for token in text.tokeniser.cuts if token in marker]
    return min(places)[2] if places else None


def cut(text: str, opener: str | None) -> list[str]:
    """`text` in segments that each begin with `opener`, but for the first; none for an empty text."""
    if not text:
        return []
    if not opener:
        return [text]
    first, *others = text.split(opener, MAX_SEGMENTS)
    return [first, *(opener + other for other in others)] if first else [opener + other for other in others]
