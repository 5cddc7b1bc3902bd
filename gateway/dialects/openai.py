"""The OpenAI dialect of chat completions and completions."""

from __future__ import annotations

from typing import Final

from gateway.dialects.core import Dialect, StreamScanner
from gateway.errors import GatewayError
from gateway.sse import SseScanner
from gateway.wire import Usage, read_usage


class OpenAi:
    """Errors as `{"error": {...}}`, streams that end in `[DONE]`, `usage` in the last chunk."""

    heartbeat = b": heartbeat\n\n"

    def id_lines(self, request_id: str) -> bytes:
        """`x-request-id`."""
        return f"x-request-id: {request_id}\r\n".encode("ascii")

    def error_status(self, error: GatewayError) -> int:
        """As the error table has it."""
        return error.status

    def error_body(self, error: GatewayError, request_id: str) -> bytes:
        """`{"error": {"message", "type", "param", "code"}}`; the request's id is in the header only."""
        del request_id
        return error.openai_body()

    def in_band_event(self, error: GatewayError, request_id: str) -> bytes:
        """A data event with the error; no `[DONE]` follows it."""
        del request_id
        return error.in_band_event()

    def scanner(self, *, strip_usage: bool) -> StreamScanner:
        """Chunks with `choices`."""
        return SseScanner(strip_usage=strip_usage)

    def read_usage(self, body: bytes) -> Usage | None:
        """`usage.prompt_tokens` and its neighbours."""
        return read_usage(body)

    def rephrased(self, status: int, body: bytes, request_id: str) -> tuple[int, bytes] | None:
        """Workers speak OpenAI's dialect: what they say passes byte for byte."""
        del status, body, request_id
        return None


OPENAI: Final[Dialect] = OpenAi()
