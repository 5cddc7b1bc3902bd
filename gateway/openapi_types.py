"""The shapes of requests and answers as the OpenAPI document tells them: what the gateway reads, and what is always
there.

Every object may have more fields: they pass as they come. The readers in gateway/dialects/ decide; these say it to
people and tools, and schemathesis says where the two differ.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

Json = dict[str, Any]
Name = Annotated[str, Meta(min_length=1, description="A model or adapter of `/v1/models`.")]
Tokens = Annotated[int, Meta(ge=0)]
Hint = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=256,
        pattern="^[ -~]+$",
        description="Requests with the same hint are placed alike; it never changes who shares a cache.",
    ),
]
TokenIds = Annotated[list[Annotated[int, Meta(ge=0, lt=2**32)]], Meta(min_length=1)]
Text = Annotated[
    str | Annotated[list[str | Annotated[int, Meta(ge=0, lt=2**32)] | TokenIds], Meta(min_length=1)],
    Meta(description="A text, token ids, or several of one kind."),
]


class StreamOptions(Struct):
    """How a stream ends."""

    include_usage: bool | None = None


class Asks(Struct, kw_only=True):
    """What requests with a cache behind them have in common."""

    model: Name
    cache_salt: Annotated[str | None, Meta(description="Narrows whom the cache is shared with; it never widens.")] = (
        None
    )
    prompt_cache_key: Hint | None = None
    session_id: Hint | None = None


class Message(Struct):
    """One message; a worker reads the rest of it."""

    role: str
    content: str | list[Json] | None = None


Messages = Annotated[list[Message], Meta(min_length=1)]


class ChatRequest(Asks, kw_only=True):
    """A chat to go on with."""

    messages: Messages
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: list[Json] | None = None
    max_tokens: Tokens | None = None
    max_completion_tokens: Tokens | None = None
    user: str | None = None


class CompletionRequest(Asks, kw_only=True):
    """A text, or several, to go on with."""

    prompt: Text
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Tokens | None = None
    user: str | None = None


class EmbeddingRequest(Asks, kw_only=True):
    """Texts to embed."""

    input: Text
    user: str | None = None


class ResponseItem(Struct):
    """A message of the input; calls, their outputs and other items pass too."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Json]
    type: Literal["message"] = "message"


class ResponseRequest(Asks, kw_only=True):
    """A response to make; answers are not kept, so `previous_response_id` and `background` are refused."""

    input: str | Annotated[list[ResponseItem], Meta(min_length=1)]
    instructions: str | None = None
    stream: bool | None = None
    tools: list[Json] | None = None
    max_output_tokens: Tokens | None = None
    user: str | None = None


class Metadata(Struct):
    """Whom the caller asks for."""

    user_id: str | None = None


class MessagesRequest(Asks, kw_only=True):
    """Anthropic's chat to go on with."""

    messages: Messages
    max_tokens: Tokens
    system: str | list[Json] | None = None
    stream: bool | None = None
    tools: list[Json] | None = None
    metadata: Metadata | None = None


class CountRequest(Struct):
    """Anthropic's chat to count."""

    model: Name
    messages: Messages
    system: str | list[Json] | None = None


class TokenizeRequest(Struct):
    """A text to tokenise; `messages` in its place give the tokens of a chat."""

    model: Name
    prompt: str


class DetokenizeRequest(Struct):
    """Tokens to turn into text."""

    model: Name
    tokens: list[Annotated[int, Meta(ge=0, lt=2**32)]]


class ChatAnswer(Struct):
    """A chat's or a completion's answer, as the worker gave it."""

    choices: list[Json]
    usage: Json | None = None


class EmbeddingAnswer(Struct):
    """Vectors, as the worker gave them."""

    data: list[Json]
    usage: Json | None = None


class ResponseAnswer(Struct):
    """A response, as the worker gave it."""

    id: str
    output: list[Json]
    status: str
    usage: Json | None = None


class MessageAnswer(Struct):
    """Anthropic's message, as the worker gave it."""

    content: list[Json]
    stop_reason: str | None
    usage: Json


class CountAnswer(Struct):
    """Tokens counted."""

    input_tokens: int


class TokenizeAnswer(Struct):
    """Tokens of a text."""

    tokens: list[int]


class DetokenizeAnswer(Struct):
    """Text of tokens."""

    prompt: str


class ModelAnswer(Struct):
    """One model or adapter."""

    id: str
    object: Literal["model"]
    max_model_len: int | None


class ModelList(Struct):
    """What this key may ask for."""

    object: Literal["list"]
    data: list[ModelAnswer]


class StreamEvent(Struct):
    """One server-sent event: the worker's own, or one that tells of a failure after the head."""

    data: str
    event: str | None = None


class OpenAiError(Struct):
    """What is wrong, and where."""

    message: str
    type: str
    param: str | None = None
    code: str | int | None = None


class OpenAiErrorAnswer(Struct):
    """An error as OpenAI's clients read it."""

    error: OpenAiError


class AnthropicError(Struct):
    """What is wrong."""

    type: str
    message: str


class AnthropicErrorAnswer(Struct):
    """An error as Anthropic's clients read it."""

    type: Literal["error"]
    error: AnthropicError
    request_id: str
