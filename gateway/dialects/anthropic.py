"""Anthropic's dialect: errors with their own types, events by name, cached tokens counted beside the others."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.anthropic_kinds import anthropic_kind
from gateway.dialects.core import Dialect, StreamScanner, worker_message
from gateway.dialects.event_scanner import EventScanner
from gateway.errors import GatewayError
from gateway.wire import TokenCount, Usage


class _UsageBlock(msgspec.Struct):
    input_tokens: TokenCount | None = None
    output_tokens: TokenCount | None = None
    cache_read_input_tokens: TokenCount | None = None
    cache_creation_input_tokens: TokenCount | None = None


class _Message(msgspec.Struct):
    usage: _UsageBlock | None = None


class _Event(msgspec.Struct):
    message: _Message | None = None
    usage: _UsageBlock | None = None


_FAULT: Final = "api_error"
_SERVERS_FAULT: Final = 500
_MESSAGE: Final = msgspec.json.Decoder(_Message)
_EVENT: Final = msgspec.json.Decoder(_Event)


class MessagesScanner(EventScanner):
    """`content_block_delta` is output, `message_stop` the end; usage comes at the start and at the end."""

    OUTPUT = b"content_block_delta"

    def __init__(self) -> None:
        super().__init__()
        self._counted = _UsageBlock()

    def note(self, name: str, data: bytes) -> None:
        """Take in one event."""
        if name == "content_block_delta":
            self.output()
        elif name == "message_stop":
            self.ended(failed=False)
        elif name == "error":
            self.ended(failed=True)
        elif name in ("message_start", "message_delta"):
            event = _EVENT.decode(data)
            self._count(event.usage or (event.message.usage if event.message else None))

    def _count(self, usage: _UsageBlock | None) -> None:
        """Later figures are totals: they take the place of earlier ones."""
        if usage is None:
            return
        for name in _UsageBlock.__struct_fields__:
            if getattr(usage, name) is not None:
                setattr(self._counted, name, getattr(usage, name))
        self.usage = _usage(self._counted)


class Anthropic:
    """Errors as `{"type": "error", …}` with the request's id, 529 for 503, streams that end in `message_stop`."""

    heartbeat = b'event: ping\ndata: {"type": "ping"}\n\n'

    def error_status(self, error: GatewayError) -> int:
        """As the error table has it; 529 says overloaded."""
        return anthropic_kind(error.status).status

    def error_body(self, error: GatewayError, request_id: str) -> bytes:
        """`{"type": "error", "error": {"type", "message"}, "request_id"}`."""
        return msgspec.json.encode(self._told(error, request_id))

    def in_band_event(self, error: GatewayError, request_id: str) -> bytes:
        """An `error` event; no `message_stop` follows it. A shutdown and a broken worker are both `api_error`."""
        told = self._told(error, request_id, in_band=True)
        return b"event: error\ndata: " + msgspec.json.encode(told) + b"\n\n"

    def id_lines(self, request_id: str) -> bytes:
        """Anthropic's SDKs read `request-id`."""
        return f"x-request-id: {request_id}\r\nrequest-id: {request_id}\r\n".encode("ascii")

    def scanner(self, *, strip_usage: bool) -> StreamScanner:
        """Named events; usage is part of every stream."""
        del strip_usage
        return MessagesScanner()

    def read_usage(self, body: bytes) -> Usage | None:
        """`usage.input_tokens` and its neighbours."""
        try:
            usage = _MESSAGE.decode(body).usage
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None
        return _usage(usage) if usage is not None else None

    def rephrased(self, status: int, body: bytes, request_id: str) -> tuple[int, bytes] | None:
        """A worker's error in Anthropic's shape and types: vLLM answers in OpenAI's, or with its own types."""
        kind = anthropic_kind(status)
        message = worker_message(body) or "The model server refused the request."
        told = {"type": "error", "error": {"type": kind.type, "message": message}, "request_id": request_id}
        return kind.status, msgspec.json.encode(told)

    def _told(self, error: GatewayError, request_id: str, *, in_band: bool = False) -> dict[str, object]:
        kind = _FAULT if in_band and error.status >= _SERVERS_FAULT else anthropic_kind(error.status).type
        return {"type": "error", "error": {"type": kind, "message": error.message}, "request_id": request_id}


def _usage(usage: _UsageBlock) -> Usage:
    """Anthropic counts as input what was neither read from the cache nor put into it."""
    read, created = usage.cache_read_input_tokens, usage.cache_creation_input_tokens
    return Usage((usage.input_tokens or 0) + (read or 0) + (created or 0), usage.output_tokens or 0, read)


ANTHROPIC: Final[Dialect] = Anthropic()
