"""What the gateway reads of a request and of its usage, and how the forwarded body is made.

A body is parsed once, strictly. Values the gateway has no opinion on are never read for meaning: when a field has to
be added, the top level is taken apart as raw bytes and put together again, so every value travels byte-exact.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Set
from typing import Annotated, Final

import msgspec

from gateway.body_fields import DECIDED, MAX_DEPTH, Asked, Fields, hint, optional, read_fields, required_text
from gateway.dialects.anthropic_requests import read_messages
from gateway.dialects.openai_requests import read_chat, read_completion, read_embedding
from gateway.dialects.responses_request import read_response
from gateway.dialects.tokenising_requests import read_count, read_detokenise, read_tokenise
from router.core import Json, PromptSource

__all__ = ["DECIDED", "MAX_DEPTH", "Call", "Endpoint", "Usage", "forward_body", "parse_call", "read_usage"]

PARTITION: Final = "cache_partition"
"""The key of `vllm_xargs` that names a share of a worker's cache."""


class Endpoint(enum.Enum):
    """The endpoints that reach a worker; the value is the path."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    EMBEDDINGS = "/v1/embeddings"
    COUNT_TOKENS = "/v1/messages/count_tokens"
    TOKENIZE = "/tokenize"
    DETOKENIZE = "/detokenize"

    def __init__(self, path: str) -> None:
        self.path = path
        """The value; an Enum's own is a function in Python, too."""
        self.caches = path not in ("/v1/messages/count_tokens", "/tokenize", "/detokenize")
        """Whether its prompts go through a worker's cache: salted, placed by prefix, charged to a share of it."""

    __hash__ = object.__hash__  # an Enum's own is a function in Python, and every request asks several tables


_READERS: Final[dict[Endpoint, Callable[[Fields], Asked]]] = {
    Endpoint.CHAT: read_chat,
    Endpoint.COMPLETIONS: read_completion,
    Endpoint.RESPONSES: read_response,
    Endpoint.MESSAGES: read_messages,
    Endpoint.EMBEDDINGS: read_embedding,
    Endpoint.COUNT_TOKENS: read_count,
    Endpoint.TOKENIZE: read_tokenise,
    Endpoint.DETOKENIZE: read_detokenise,
}

TEXT_FIELDS: Final[dict[Endpoint, str]] = {
    Endpoint.COMPLETIONS: "prompt",
    Endpoint.RESPONSES: "input",
    Endpoint.EMBEDDINGS: "input",
}
"""The field that a prompt's text stands in, where it is not `messages`."""

REPORTING: Final = frozenset((Endpoint.CHAT, Endpoint.COMPLETIONS))
"""Endpoints whose streams tell usage only when asked to."""

OUTPUT_FIELDS: Final[dict[Endpoint, str]] = {
    Endpoint.CHAT: "max_tokens",
    Endpoint.COMPLETIONS: "max_tokens",
    Endpoint.RESPONSES: "max_output_tokens",
    Endpoint.MESSAGES: "max_tokens",
}
"""The field that bounds an answer's tokens, where there is one."""

COMPLETION_TOKENS: Final = 16
"""What OpenAI's API gives to a completion that says nothing of its length."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One request as it was asked.

    `stream` is true only where answers can be streams. `include_usage` is what the caller wants to see
    on a stream, not what the worker is asked for. `session` is the body's placement hint (`prompt_cache_key`, else
    `session_id`). `partition` is `vllm_xargs.cache_partition`, which is not the caller's to choose. `batch` means
    `source` is only the first of several prompts. `body` is the decoded body, byte for byte.
    """

    endpoint: Endpoint
    model: str
    source: PromptSource
    stream: bool
    include_usage: bool
    body: bytes
    batch: bool = False
    max_tokens: int | None = None
    cache_salt: str | None = None
    user: str | None = None
    session: str | None = None
    partition: str | None = None
    names: Set[str] | None = None
    """The top level's fields, as they were sent; None where nobody has looked."""

    @property
    def raw(self) -> dict[str, msgspec.Raw]:
        """The top level with every value as the bytes it came in; made anew on each use."""
        return _RAW.decode(self.body)

    @property
    def caches(self) -> bool:
        """Whether its prompt goes through a worker's cache."""
        return self.endpoint.caches

    @property
    def text_field(self) -> str:
        """Where the caller put the prompt's text."""
        return TEXT_FIELDS.get(self.endpoint, "messages")

    @property
    def hides_usage(self) -> bool:
        """Whether the usage on its stream is there for the gateway alone."""
        return self.stream and not self.include_usage and self.endpoint in REPORTING


TokenCount = Annotated[int, msgspec.Meta(ge=0, le=2**31)]
"""A worker's count of tokens. A usage with a number that is none is passed over; budgets must not have it."""


class Usage(msgspec.Struct, frozen=True):
    """What a worker reports of one request, in tokens; `cached_tokens` is None where it says nothing about it."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None


_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_encode: Final = msgspec.json.Encoder().encode
_NULL: Final = msgspec.Raw(b"null")
_USAGE_ASKED: Final = {"include_usage": True}
_SELDOM: Final = frozenset(("stream_options", "cache_salt", "prompt_cache_key", "session_id", "vllm_xargs"))
"""Fields that most bodies have none of: one look is enough for all."""


def parse_call(endpoint: Endpoint, body: bytes) -> Call:
    """Read `body`; raises `InvalidRequest` (400), with the field at fault as `param`, for anything that cannot be."""
    fields = read_fields(body)
    asked = _READERS[endpoint](fields)
    plain = _SELDOM.isdisjoint(fields)
    stream_options = {} if plain else optional(fields, "stream_options", dict) or {}
    return Call(
        endpoint=endpoint,
        model=required_text(fields, "model", "name the model to ask"),
        source=asked.source,
        batch=asked.batch,
        stream=(optional(fields, "stream", bool) or False) and endpoint in OUTPUT_FIELDS,
        include_usage=bool(stream_options) and (optional(stream_options, "include_usage", bool) or False),
        max_tokens=asked.max_tokens,
        cache_salt=None if plain else optional(fields, "cache_salt", str),
        user=asked.user,
        session=None if plain else hint(fields, "prompt_cache_key") or hint(fields, "session_id"),
        partition=None if plain else optional(optional(fields, "vllm_xargs", dict) or {}, PARTITION, str),
        body=body,
        names=fields.keys(),
    )


def forward_body(
    call: Call,
    *,
    salt: str | None,
    ask_usage: bool,
    partition: str | None = None,
    most_output_tokens: int | None = None,
) -> bytes:
    """The body for the worker: the caller's own bytes when nothing differs, else the top level re-encoded.

    `salt` becomes `cache_salt` (None removes one), `ask_usage` turns `stream_options.include_usage` on where streams
    tell usage only then, `partition` becomes `vllm_xargs.cache_partition`, `most_output_tokens` the bound of an answer
    whose caller gave none; a request that no cache serves gets none of this. Nothing else changes, and every other
    value keeps its bytes and its place.
    """
    if not call.endpoint.caches:
        return call.body
    salted = salt == call.cache_salt
    asked = not ask_usage or call.include_usage or call.endpoint not in REPORTING
    placed = partition is None and call.partition is None
    bound = None if says_output(call) else output_bound(call.endpoint, most_output_tokens)
    if salted and asked and placed and bound is None:
        return call.body
    added: dict[str, Json] = {} if salted else {"cache_salt": salt}
    if not asked:
        added["stream_options"] = _USAGE_ASKED
    only_adds = placed and bound is None and (salted or salt is not None)
    if only_adds and call.names is not None and call.names.isdisjoint(added):
        return _with_fields(call.body, added)
    fields = call.raw
    if not salted:
        _put(fields, "cache_salt", salt)
    if not asked:
        asked_options = fields.get("stream_options", _NULL)
        options: dict[str, object] = {} if asked_options == _NULL else {**_RAW.decode(asked_options)}
        if "include_usage" in options:
            # It says nothing without `include_usage`, and would speak to a caller who refused.
            options.pop("continuous_usage_stats", None)
        _put(fields, "stream_options", {**options, "include_usage": True})
    if not placed:
        given = fields.get("vllm_xargs", _NULL)
        extra = {} if given == _NULL else _RAW.decode(given)
        _put(extra, PARTITION, partition)
        _put(fields, "vllm_xargs", extra or None)
    if bound is not None:
        _put(fields, OUTPUT_FIELDS[call.endpoint], bound)
    return _encode(fields)


def _with_fields(body: bytes, added: Mapping[str, Json]) -> bytes:
    """An object's text with fields that it has none of at its end: one copy, where taking it apart reads it again."""
    end = body.rindex(b"}")
    return b"".join((memoryview(body)[:end], b",", _encode(added)[1:], body[end + 1 :]))


def says_output(call: Call) -> bool:
    """Whether its answer has a bound that every engine heeds: a completion's `max_completion_tokens` few do."""
    if call.max_tokens is None or call.endpoint is not Endpoint.COMPLETIONS or call.names is None:
        return call.max_tokens is not None
    return "max_completion_tokens" not in call.names or call.raw.get("max_tokens", _NULL) != _NULL


def output_bound(endpoint: Endpoint, most_output_tokens: int | None) -> int | None:
    """What an answer of unsaid length may have; a completion keeps the few tokens that its API promises."""
    if most_output_tokens is None or endpoint not in OUTPUT_FIELDS:
        return None
    return min(most_output_tokens, COMPLETION_TOKENS) if endpoint is Endpoint.COMPLETIONS else most_output_tokens


def read_usage(answer: bytes) -> Usage | None:
    """The usage block of a JSON answer or of one stream event's JSON; None where there is none to read."""
    try:
        usage = _ANSWER.decode(answer).usage
    except (msgspec.DecodeError, RecursionError):
        return None
    return usage.counted() if usage is not None else None


class UsageDetails(msgspec.Struct):
    """What is told of a prompt's tokens."""

    cached_tokens: TokenCount | None = None


class UsageBlock(msgspec.Struct):
    """A usage block with OpenAI's names; other APIs have names of their own for its fields."""

    prompt_tokens: TokenCount = 0
    completion_tokens: TokenCount = 0
    prompt_tokens_details: UsageDetails | None = None

    def counted(self) -> Usage:
        """What it says."""
        details = self.prompt_tokens_details
        return Usage(self.prompt_tokens, self.completion_tokens, details.cached_tokens if details else None)


class _Answer(msgspec.Struct):
    usage: UsageBlock | None = None


_ANSWER: Final = msgspec.json.Decoder(_Answer)


def _put(fields: dict[str, msgspec.Raw], name: str, value: Json) -> None:
    if value is None:
        fields.pop(name, None)
    else:
        fields[name] = msgspec.Raw(_encode(value))
