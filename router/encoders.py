"""Three ways to turn text into packed tokens: fastokens, tokenizers, bytes; and the check that the first two agree.

Measured on two cores, SmolLM2's vocabulary, random words: fastokens 0.1–0.4 µs a token, tokenizers 0.8 µs. Of
tokenizers, `encode` holds the GIL and `encode_batch_fast` does not; fastokens lets go of it in every call.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tokenizers import Tokenizer

CHECK_TEXTS = (
    "",
    " ",
    "Hello, world! It's the user's turn; they'll say I'VE done.",
    "two  spaces,   three,    four\t\ttabs \n\n\n lines \r\n end   ",
    "1234567890 3.14159 1,000,000 0x7f v2.1.100 2025-11-03T14:05:09",
    "北京的天气怎么样？ 東京は晴れです。 서울은 어때요? Москва. Ünïcödé e\u0301 ﬁ ２０２５",
    "🙂🙃 👩‍👩‍👧‍👦 🇩🇪 \u200b\u00a0\u2028 \x00\x07 \ufeff",
    "def f(x):\n    return {'a': [x ** 2, -1.5e-3]}  # done\n\tif x != 0 and y<=z: pass\n",
    '{"name": "get_weather", "arguments": {"city": "Bergen", "days": 3}}\\n\\u0041',
    "<|im_start|>user\n<|im_end|><|endoftext|> <think></think> [INST] <s> </s> <|eot_id|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
)
"""What both libraries must encode alike before fastokens is used."""


def pack(ids: Iterable[int]) -> bytes:
    """Token ids as little-endian u32 bytes; ValueError for an id outside 0…2³²−1."""
    values = array("I")
    try:
        values.extend(ids)
    except OverflowError as error:
        raise ValueError("a token id must be between 0 and 4294967295") from error
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def clean(text: str) -> str:
    """`text` with lone surrogates, which no UTF-8 can carry, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


class BytesTokeniser:
    """Every UTF-8 byte is a token. Stands in where no tokeniser is at hand; counts are then estimates."""

    name = "bytes"
    digest = "bytes/1"
    vocabulary_size = 256

    def __init__(self, special: Iterable[str] = ()) -> None:
        self.special = frozenset(special)
        self.cuts = self.special
        """Any place is a good cut between bytes; these are the ones a template uses."""

    def encode(self, text: str) -> bytes:
        """The bytes of `text`, each as a little-endian u32."""
        return text.encode("utf-8", "surrogatepass").decode("latin-1").encode("utf-32-le")

    def decode(self, ids: Sequence[int]) -> str:
        """The text whose bytes `ids` are; anything above 255 and broken UTF-8 become U+FFFD."""
        return b"".join(bytes((i,)) if i < 256 else b"\xff" for i in ids).decode("utf-8", "replace")

    def token_count(self, text: str) -> int:
        """Bytes of `text`."""
        return len(text.encode("utf-8", "surrogatepass"))


class LibraryTokeniser:
    """A model's own tokeniser through `tokenizers` or `fastokens`, whichever was chosen by `library_tokeniser`."""

    def __init__(self, tokenizer: Tokenizer, fast: Any | None, digest: str) -> None:
        self.name = "tokenizers" if fast is None else "fastokens"
        self.digest = digest
        self.vocabulary_size = tokenizer.get_vocab_size(with_added_tokens=True)
        added = tokenizer.get_added_tokens_decoder()
        self.special = frozenset(token.content for token in added.values() if token.special)
        self._decoder: Any = tokenizer if fast is None else fast
        self._encode = _through_tokenizers(tokenizer) if fast is None else _through_fastokens(fast)
        self.cuts = _cuts(self, added)

    def encode(self, text: str) -> bytes:
        """Tokens of `text`: special tokens in it are recognised, none are added. Releases the GIL while it works."""
        return self._encode(clean(text))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        text: str = self._decoder.decode(list(ids), skip_special_tokens=False)
        return text

    def token_count(self, text: str) -> int:
        """How many tokens `text` has."""
        return len(self.encode(text)) // 4


def _through_tokenizers(tokenizer: Tokenizer) -> Callable[[str], bytes]:
    return lambda text: pack(tokenizer.encode_batch_fast([text], add_special_tokens=False)[0].ids)


def _through_fastokens(fast: Any) -> Callable[[str], bytes]:
    return lambda text: bytes(fast.encode_batch_flat([text])[0])


def library_tokeniser(tokenizer: Tokenizer, digest: str, *, allow_fastokens: bool = True) -> LibraryTokeniser:
    """`tokenizer` made faster by fastokens where that library is installed and agrees with it on CHECK_TEXTS."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    fast = _fastokens(tokenizer) if allow_fastokens else None
    return LibraryTokeniser(tokenizer, fast, digest)


def bos_prefix(tokenizer: Tokenizer) -> bytes:
    """What the tokeniser itself puts before a plain prompt (a BOS token, or nothing), packed."""
    bare = tokenizer.encode("a", add_special_tokens=False).ids
    dressed = tokenizer.encode("a", add_special_tokens=True).ids
    starts = (at for at in range(len(dressed)) if dressed[at : at + len(bare)] == bare)
    return pack(dressed[: next(starts, 0)])


def _fastokens(tokenizer: Tokenizer) -> Any | None:
    try:
        from fastokens import Tokenizer as FastTokenizer

        fast = FastTokenizer.from_json_str(tokenizer.to_str())
        fast.no_truncation()
        fast.no_padding()
        return fast if agrees(tokenizer, fast) else None
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:  # noqa: BLE001 - a panic in the native code is no Exception, and any failure means: not this one
        return None


def agrees(tokenizer: Tokenizer, fast: Any) -> bool:
    """Whether both give the same tokens and the same text back for CHECK_TEXTS and for every special token."""
    specials = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:256]
    texts = [*CHECK_TEXTS, "x".join(specials), " \n ".join(specials), "".join(CHECK_TEXTS)]
    for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False), strict=True):
        if fast.encode_batch_flat([text])[0] != pack(encoding.ids):
            return False
        if fast.decode(encoding.ids, skip_special_tokens=False) != tokenizer.decode(encoding.ids, False):
            return False
    return True


def _cuts(tokeniser: LibraryTokeniser, added: Mapping[int, Any]) -> frozenset[str]:
    """Special tokens before which a text may be cut without changing its tokens.

    They are matched as written, before anything else looks at the text, and eat nothing to their left.
    """
    candidates = [t.content for t in added.values() if t.special and not (t.normalized or t.lstrip or t.single_word)]
    matched_first = [t.content for t in added.values() if not t.normalized]
    clear = [token for token in candidates if not any(_hides(other, token) for other in matched_first)]
    return frozenset(clear) if clear and _cutting_is_harmless(tokeniser, clear[:4]) else frozenset()


def _hides(other: str, token: str) -> bool:
    """Whether an occurrence of `other` that starts earlier could swallow the beginning of `token`."""
    if other == token:
        return False
    return token in other[1:] or any(token.startswith(other[start:]) for start in range(1, len(other)))


def _cutting_is_harmless(tokeniser: LibraryTokeniser, tokens: Sequence[str]) -> bool:
    pieces = [f"{token}{text}" for token in tokens for text in CHECK_TEXTS]
    return tokeniser.encode("".join(pieces)) == b"".join(map(tokeniser.encode, pieces))
