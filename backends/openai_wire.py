"""What a request body asks for: /v1/chat/completions and /v1/completions, read as vLLM reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from backends.api_errors import BadRequestError, invalid, with_parameter
from backends.cache_control import unmarked
from backends.cache_fields import NO_WISH, CacheWish, read_cache_wish
from backends.request_fields import Fields, are_integers, decode_object
from backends.sampling_fields import MAX_LOGPROBS, read_sampling, refuse_unsupported
from backends.types import SamplingParams
from router.core import Json, PromptSource

COMPLETION_DEFAULT_MAX_TOKENS = 16
"""What /v1/completions generates when nothing is asked, as OpenAI and vLLM."""

SALT_MAX_CHARACTERS = 128
SALT_FORBIDDEN = frozenset("@/\\\0")
"""vLLM ≥ 0.33; older versions only want a non-empty string."""


class Endpoint(Enum):
    """The two generating endpoints; the value is the prefix of the answer's id."""

    CHAT = "chatcmpl"
    COMPLETIONS = "cmpl"


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What the operator allows: alternatives to a token (None is no bound), and the names of the cache's partitions."""

    max_logprobs: int | None = MAX_LOGPROBS
    partitions: tuple[str, ...] = ("",)


DEFAULT_LIMITS = WireLimits()


@dataclass(frozen=True, slots=True)
class Call:
    """One request: `prompts` has one entry for a chat, one per batch item for completions.

    `model` None means whatever is served. `sampling.max_tokens` None means up to the model's length. `echo` repeats
    the prompt before the answer. `returns_token_ids` tells the ids of prompt and answer beside their text, and
    `names_tokens_by_id` writes `token_id:7` for a token's text in logprobs. `reports_reused`: KV events tell also
    of blocks that were cached before (vLLM's kv_cache_report_mode "full"). `adds_special_tokens`: what the tokeniser
    puts before a text is put before each prompt.
    """

    endpoint: Endpoint
    model: str | None
    prompts: tuple[PromptSource, ...]
    sampling: SamplingParams
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    cache_salt: str | None = None
    priority: int = 0
    wish: CacheWish = NO_WISH
    echo: bool = False
    returns_token_ids: bool = False
    names_tokens_by_id: bool = False
    reports_reused: bool = False
    adds_special_tokens: bool = False


def parse_call(endpoint: Endpoint, body: bytes, limits: WireLimits = DEFAULT_LIMITS) -> Call:
    """The call that `body` asks for; BadRequestError or InvalidBodyError when it cannot be understood or served."""
    fields = Fields(decode_object(body))
    return parse_chat(fields, limits) if endpoint is Endpoint.CHAT else parse_completion(fields, limits)


def parse_chat(fields: Fields, limits: WireLimits) -> Call:
    """A chat; its prompt is rendered later by the model's own template."""
    refuse_unsupported(fields)
    source = chat_source(fields)
    max_tokens = fields.integer("max_completion_tokens")
    if max_tokens is None:
        max_tokens = fields.integer("max_tokens")
    sampling = read_sampling(fields, max_tokens, _chat_logprobs(fields), max_logprobs=limits.max_logprobs)
    return _call(Endpoint.CHAT, fields, (source,), sampling, limits)


def parse_completion(fields: Fields, limits: WireLimits) -> Call:
    """A completion of a text, of token ids, or of a batch of either."""
    refuse_unsupported(fields)
    prompts = completion_prompts(fields.value("prompt"))
    max_tokens = fields.integer("max_tokens")
    if max_tokens is None:
        max_tokens = COMPLETION_DEFAULT_MAX_TOKENS
    echo, logprobs = fields.flag("echo", False), fields.integer("logprobs")
    sampling = read_sampling(
        fields, max_tokens, logprobs, max_logprobs=limits.max_logprobs, least_tokens=0 if echo else 1
    )
    if echo and logprobs is not None and sampling.prompt_logprobs is None:
        sampling = replace(sampling, prompt_logprobs=sampling.logprobs)
    sources = tuple(PromptSource(prompt=prompt) for prompt in prompts)
    return replace(_call(Endpoint.COMPLETIONS, fields, sources, sampling, limits), echo=echo)


def chat_source(fields: Fields) -> PromptSource:
    """Messages, tools and template arguments of a chat or of a /tokenize request."""
    extra = dict(fields.mapping("chat_template_kwargs") or {})
    documents = fields.sequence("documents")
    if documents is not None:
        extra["documents"] = documents
    tools = fields.sequence("tools")
    if tools is not None and not all(isinstance(tool, dict) for tool in tools):
        raise invalid("dict_type", "body.tools", "Input should be a list of objects")
    return PromptSource(
        messages=unmarked(_messages(fields.value("messages"))),
        tools=tools or None,
        add_generation_prompt=fields.flag("add_generation_prompt", True),
        template_arguments=extra,
    )


def completion_prompts(prompt: Json) -> tuple[str | Sequence[int], ...]:
    """A prompt field as a batch: text or token ids each. Empty prompts are refused, as vLLM does."""
    if isinstance(prompt, str):
        batch: tuple[str | Sequence[int], ...] = (prompt,)
    elif isinstance(prompt, list) and prompt and are_integers(prompt):
        batch = (prompt,)
    elif isinstance(prompt, list):
        batch = tuple(prompt)
    elif prompt is None:
        batch = ()
    else:
        raise invalid("string_type", "body.prompt", "Input should be a valid string or a list")
    if not batch or any(item in ("", []) for item in batch):
        raise BadRequestError("Either prompt or prompt_embeds must be provided and non-empty.", param="prompt")
    if not _same_kind(batch):
        raise invalid("list_type", "body.prompt", "Items should be all strings or all lists of integers")
    return batch


def _same_kind(batch: Sequence[Json]) -> bool:
    """Whether a batch is all texts, or all lists of token ids."""
    if all(isinstance(item, str) for item in batch):
        return True
    return all(isinstance(item, list) and are_integers(item) for item in batch)


def _call(
    endpoint: Endpoint,
    fields: Fields,
    prompts: tuple[PromptSource, ...],
    sampling: SamplingParams,
    limits: WireLimits,
) -> Call:
    stream = fields.flag("stream", False)
    _check_stream(fields, stream, sampling)
    options = fields.mapping("stream_options")
    usage = Fields(options or {})
    include_usage = usage.flag("include_usage", False)
    return Call(
        endpoint=endpoint,
        model=fields.text("model"),
        prompts=prompts,
        sampling=sampling,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=include_usage and usage.flag("continuous_usage_stats", False),
        cache_salt=read_cache_salt(fields.value("cache_salt")),
        priority=fields.integer("priority") or 0,
        wish=read_cache_wish(fields, limits.partitions),
        returns_token_ids=fields.flag("return_token_ids", False),
        names_tokens_by_id=fields.flag("return_tokens_as_token_ids", False),
        reports_reused=_reports_reused(fields),
        adds_special_tokens=fields.flag("add_special_tokens", endpoint is Endpoint.COMPLETIONS),
    )


def _reports_reused(fields: Fields) -> bool:
    mode = Fields(fields.mapping("vllm_xargs") or {}).value("kv_cache_report_mode")
    if mode not in (None, "full", "incremental"):
        place = "vllm_xargs.kv_cache_report_mode"
        raise BadRequestError(f"{place} must be full or incremental.", param=place)
    return bool(mode == "full")


def _check_stream(fields: Fields, stream: bool, sampling: SamplingParams) -> None:
    """BadRequestError for what comes only with, or only without, a stream."""
    if not stream and fields.mapping("stream_options") is not None:
        raise BadRequestError("Stream options can only be defined when `stream=True`.", param="stream_options")
    if stream and sampling.prompt_logprobs is not None:
        raise with_parameter("`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs")
    if stream and fields.flag("echo", False):
        raise with_parameter("`echo` is not available when `stream=True`.", "echo")


def read_cache_salt(salt: Json) -> str | None:
    """A salt as vLLM takes it, None without one; BadRequestError for any other."""
    if salt is None:
        return None
    if not isinstance(salt, str) or not salt:
        raise with_parameter("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > SALT_MAX_CHARACTERS or SALT_FORBIDDEN & set(salt):
        raise with_parameter(
            f"Parameter 'cache_salt' must have at most {SALT_MAX_CHARACTERS} characters and none of '@', '/', '\\' "
            "and NUL.",
            "cache_salt",
        )
    return salt


def _chat_logprobs(fields: Fields) -> int | None:
    """How many alternatives a chat wants beside each token; None when it wants no logprobs."""
    wanted = fields.flag("logprobs", False)
    top = fields.integer("top_logprobs")
    if not wanted and top:
        raise with_parameter("when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs")
    return (top or 0) if wanted else None


def _messages(messages: Json) -> list[Mapping[str, Json]]:
    if messages is None:
        raise invalid("missing", "body.messages", "Field required")
    if not isinstance(messages, list):
        raise invalid("list_type", "body.messages", "Input should be a valid list")
    if not messages:
        raise invalid("too_short", "body.messages", "List should have at least 1 item")
    for index, message in enumerate(messages):
        _check_message(message, f"body.messages.{index}")
    return messages


def _check_message(message: Json, location: str) -> None:
    if not isinstance(message, dict):
        raise invalid("dict_type", location, "Input should be a valid dictionary")
    if not isinstance(message.get("role"), str):
        raise invalid("missing", f"{location}.role", "Field required")
    content = message.get("content")
    if isinstance(content, list):
        for index, part in enumerate(content):
            _check_part(part, f"{location}.content.{index}")
    elif content is not None and not isinstance(content, str):
        raise invalid("string_type", f"{location}.content", "Input should be a valid string")


def _check_part(part: Json, location: str) -> None:
    """A part is text, in one of the spellings vLLM takes; this worker has no eyes or ears."""
    if isinstance(part, str):
        return
    if not isinstance(part, dict):
        raise invalid("dict_type", location, "Input should be a valid dictionary")
    kind = part.get("type", "text")
    if kind not in ("text", "input_text", "output_text", "refusal"):
        raise BadRequestError(f"{location}: this model takes only text parts.", param=location)
    if not isinstance(part.get("refusal" if kind == "refusal" else "text"), str):
        raise invalid("missing", f"{location}.text", "Field required")
