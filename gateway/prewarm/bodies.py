"""What is sent to warm a cache: the kept body with one token to generate, or with the worker to fetch blocks from."""

from __future__ import annotations

import re
from typing import Final

import msgspec

from gateway.wire import Endpoint

PULL_PATH: Final = "/v1/cache/pull"

_LEFT_OUT: Final = frozenset((
    "stream", "stream_options", "max_completion_tokens", "n", "best_of", "use_beam_search", "min_tokens", "echo",
    "logprobs", "top_logprobs", "prompt_logprobs", "response_format", "structured_outputs", "guided_json",
    "guided_regex", "guided_choice", "guided_grammar", "priority", "kv_transfer_params",
))  # fmt: skip
"""They change nothing of the prompt: they make an answer long, multiple or costly, do not go with one token, put it
before others, or speak of another worker's cache."""

_MEDIA: Final = re.compile(rb'"(?:image|video|audio)_(?:url|embeds|pil)"\s*:|"input_audio"\s*:')

_RAW: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ONE: Final = msgspec.Raw(b"1")


def carries_media(body: bytes) -> bool:
    """Whether a worker would have to fetch or encode more than text, which is no prefill and comes at each sending."""
    return _MEDIA.search(body) is not None


def one_token_body(body: bytes) -> bytes:
    """The same prompt, salt and share of the cache; one token, all at once."""
    fields = {name: value for name, value in _RAW.decode(body).items() if name not in _LEFT_OUT}
    fields["max_tokens"] = _ONE
    return msgspec.json.encode(fields)


def pull_body(body: bytes, source_url: str) -> bytes:
    """The same prompt for the bundled worker's `POST /v1/cache/pull`: bring its blocks from the worker at this URL."""
    return msgspec.json.encode({**_RAW.decode(body), "from": msgspec.Raw(msgspec.json.encode(source_url))})


def request_head(netloc: str, path: str, api_key: str | None, length: int) -> bytes:
    """The head of a request to a worker: nothing of any client is in it."""
    key = f"authorization: Bearer {api_key}\r\n" if api_key else ""
    lines = f"accept: application/json\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n{key}"
    return f"POST {path} HTTP/1.1\r\nhost: {netloc}\r\n{lines}\r\n".encode("latin-1")


def compute_path(base_path: str, endpoint: Endpoint) -> str:
    """Where the worker takes the prompt."""
    return base_path + endpoint.value
