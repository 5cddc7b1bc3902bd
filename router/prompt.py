"""From a request's messages or prompt to the two chains that placement speaks.

The exact chain hashes the tokens that will be forwarded, full blocks only. The key chain hashes the folded prompt,
begins with a digest of the tools, takes in tool calls and the last partial block, and is never empty. Where folding
changed nothing and there is nothing else to tell apart, both are one computation.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple

from router.blocks import seed, tail_block
from router.core import Fold, Prompt, PromptSource
from router.encoders import pack
from router.fold_memo import FoldMemo
from router.memo import Node, PrefixMemo
from router.messages import Message, has_calls, with_calls_as_text
from router.normalise import Folded, FoldRules, fold_prompt
from router.prefix import Path, PrefixHasher, extended, opener_of, root
from router.seen_prompts import Seen, SeenPrompts, source_digest
from router.tokenise import BYTES_PER_TOKEN, LoadedModelText

MEMO_BYTES = 64 * 2**20
FOLD_SHARE = 16
"""The part of the memo's bound, in characters, that folded system texts may take on top of it."""

SEEN_SHARE = 8
"""The part of the memo's bound that whole prompts may take on top of it."""

CLOCK_SECONDS = 60.0
"""A template that prints the time is told whole minutes."""


class _Texts(NamedTuple):
    """The texts of both chains and the roots they stand behind; `key` is None where it is the exact one."""

    exact_root: Node
    exact: str
    key_root: Node
    key: str | None
    folds: tuple[Fold, ...]


class Asked(NamedTuple):
    """A prompt that is asked for: what it is made from, and what it is remembered by (None: it is not)."""

    source: PromptSource
    salt: str | None
    model: str
    adapter: str | None
    rules: FoldRules
    now: float | None
    seed: bytes
    identity: Hashable | None


@dataclass(frozen=True, slots=True)
class Draft:
    """A prompt whose text is known and whose unseen part waits to be tokenised."""

    builder: PromptBuilder
    exact: Path
    key: Path | None
    folds: tuple[Fold, ...]
    identity: Hashable | None

    @property
    def unseen_characters(self) -> int:
        """What `finish` has to tokenise: the cost to weigh before choosing a thread for it."""
        return max(path.unseen_characters for path in (self.exact, self.key) if path is not None)

    def finish(self) -> Prompt:
        """Tokenise what is unseen, hash it, remember it; safe in any thread if the builder was given a lock."""
        tokens_of: dict[str, bytes] = {}
        exact = self.builder.hasher.follow(self.exact, tokens_of)
        key = exact if self.key is None else self.builder.hasher.follow(self.key, tokens_of)
        return self.builder.prompt_of(exact, key, self.folds, self.identity)


class PromptBuilder:
    """Builds the prompts of one model.

    `block_tokens` is the size of a routing block; where bytes stand in, a token counts as BYTES_PER_TOKEN of them.
    Texts of earlier prompts are remembered within `memo_bytes`, per seed: tenants with different salts never share an
    entry. Without `lock` one thread at a time may use the builder; with a `threading.Lock`, any number.
    """

    def __init__(
        self,
        text: LoadedModelText,
        block_tokens: int,
        memo_bytes: int = MEMO_BYTES,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.text = text
        self.block_tokens = block_tokens
        self.estimates = text.tokeniser.name == "bytes"
        self.memo = PrefixMemo(memo_bytes, lock)
        self.folds = FoldMemo(memo_bytes // FOLD_SHARE, lock)
        self.seen = SeenPrompts(memo_bytes // SEEN_SHARE, lock)
        self._hash_tokens = block_tokens * (BYTES_PER_TOKEN if self.estimates else 1)
        self.hasher = PrefixHasher(text.tokeniser, opener_of(text), self._hash_tokens, self.memo)
        self._uses_clock = text.template.uses_clock

    def build(
        self,
        source: PromptSource,
        *,
        salt: str | None,
        model: str,
        adapter: str | None = None,
        rules: FoldRules,
        now: float | None = None,
    ) -> Prompt:
        """Both chains of `source`, seeded with `salt`, `model` and `adapter`.

        `now` (epoch seconds) matters only to a template that prints the date. Raises TemplateError when the template
        refuses the messages, ValueError when a token id is out of range.
        """
        asked = self.ask(source, salt, model, rules, adapter, now)
        draft = self.known(asked) or self.start(asked)
        return draft if isinstance(draft, Prompt) else draft.finish()

    def ask(
        self,
        source: PromptSource,
        salt: str | None,
        model: str,
        rules: FoldRules,
        adapter: str | None = None,
        now: float | None = None,
    ) -> Asked:
        """What `known` and `start` go by; costs a hash of the text, 50 µs a megabyte."""
        minute = now // CLOCK_SECONDS * CLOCK_SECONDS if self._uses_clock and now is not None else None
        parent, digest = seed(salt=salt, model=model, adapter=adapter), source_digest(source)
        identity = None if digest is None else (digest, parent, rules, minute)
        return Asked(source, salt, model, adapter, rules, minute, parent, identity)

    def known(self, asked: Asked) -> Prompt | None:
        """The prompt, if it was made before and is remembered."""
        seen = None if asked.identity is None else self.seen.find(asked.identity)
        if seen is None:
            return None
        self.memo.touch(seen.ends)
        return seen.prompt

    def start(self, asked: Asked) -> Draft | Prompt:
        """`build` up to its costly part, the tokenising. A prompt of token ids needs none: it comes out finished."""
        source, parent, rules = asked.source, asked.seed, asked.rules
        if source.prompt is None:
            tools = self.folds.tools(parent, source.tools, rules)
            key_parent = parent
            if extra := tools.digest:
                key_parent = seed(salt=asked.salt, model=asked.model, adapter=asked.adapter, extra=extra)
            folded = self.folds.messages(parent, source.messages or (), rules)
            texts = self._chat(source, folded, root(parent), root(key_parent), asked.now)
            return self._draft(texts._replace(folds=folded.folds + tools.folds), asked.identity)
        if isinstance(source.prompt, str):
            return self._draft(self._completion(source.prompt, parent, rules), asked.identity)
        return self._token_ids(source.prompt, parent)

    def prompt_of(self, exact: Node, key: Node, folds: tuple[Fold, ...], identity: Hashable | None) -> Prompt:
        """The Prompt whose chains end in these nodes, remembered."""
        exact_blocks = exact.all_blocks()
        key_blocks = exact_blocks.copy() if key is exact else key.all_blocks()
        if key.tail or not key_blocks:
            key_blocks.append(tail_block(key.last, key.tail))
        tokens, text_bytes = exact.tokens, None
        if self.estimates:
            tokens, text_bytes = -(-exact.tokens // BYTES_PER_TOKEN), exact.tokens
        prompt = Prompt(tokens, self.block_tokens, exact_blocks, key_blocks, folds, text_bytes=text_bytes)
        if identity is not None:
            self.seen.keep(identity, Seen(prompt, (exact.key,) if key is exact else (exact.key, key.key)))
        return prompt

    def _draft(self, texts: _Texts, identity: Hashable | None) -> Draft:
        exact = self.hasher.path(texts.exact_root, texts.exact)
        key = None if texts.key is None else self.hasher.path(texts.key_root, texts.key)
        return Draft(self, exact, key, texts.folds, identity)

    def _chat(self, source: PromptSource, folded: Folded, start: Node, key_start: Node, now: float | None) -> _Texts:
        messages = source.messages or ()
        exact = self._rendered(source, messages, source.tools, now)
        key_messages = self._telling_all(folded.messages if folded.changed else messages)
        same = key_messages is messages and key_start.key == start.key and not (now and self._uses_clock)
        key = None if same else self._rendered(source, key_messages, None, None)
        return _Texts(start, exact, key_start, key, folded.folds)

    def _telling_all(self, messages: Sequence[Message]) -> Sequence[Message]:
        """`messages`, with tool calls written into the text where the template would leave them out."""
        if not any(map(has_calls, messages)) or self.text.template.shows_tool_calls:
            return messages
        return [with_calls_as_text(message) for message in messages]

    def _rendered(
        self, source: PromptSource, messages: Sequence[Message], tools: Sequence[Message] | None, now: float | None
    ) -> str:
        return self.text.template.render(
            messages,
            tools,
            add_generation_prompt=source.add_generation_prompt,
            extra=source.template_arguments,
            now=now,
        )

    def _completion(self, text: str, parent: bytes, rules: FoldRules) -> _Texts:
        folded = fold_prompt(text, self.text.template.user_marker, rules)
        start = root(parent, self.text.prompt_prefix)
        return _Texts(start, text, start, folded.prompt if folded.changed else None, folded.folds)

    def _token_ids(self, ids: Sequence[int], parent: bytes) -> Prompt:
        """Token ids are hashed as they are: nothing folds, nothing is remembered, and they count exactly."""
        node = extended(root(parent), b"", pack(ids), self.block_tokens)
        key_blocks = [*node.blocks, tail_block(node.last, node.tail)] if node.tail or not node.blocks else node.blocks
        return Prompt(node.tokens, self.block_tokens, node.blocks, key_blocks)
