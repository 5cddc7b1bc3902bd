"""The Responses API as OpenAI's SDKs read it: events by name, usage in the last, errors in two shapes at once."""

from __future__ import annotations

from typing import Final

import msgspec

from gateway.dialects.core import Dialect, StreamScanner
from gateway.dialects.event_scanner import EventScanner
from gateway.dialects.openai import OpenAi
from gateway.errors import GatewayError
from gateway.wire import TokenCount, Usage, UsageBlock, UsageDetails

_GOOD_ENDS: Final = frozenset(("response.completed", "response.incomplete"))
_BAD_ENDS: Final = frozenset(("response.failed", "error"))


class _UsageBlock(UsageBlock):
    prompt_tokens: TokenCount = msgspec.field(default=0, name="input_tokens")
    completion_tokens: TokenCount = msgspec.field(default=0, name="output_tokens")
    prompt_tokens_details: UsageDetails | None = msgspec.field(default=None, name="input_tokens_details")


class _Response(msgspec.Struct):
    usage: _UsageBlock | None = None


class _Event(msgspec.Struct):
    response: _Response | None = None


_RESPONSE: Final = msgspec.json.Decoder(_Response)
_EVENT: Final = msgspec.json.Decoder(_Event)


class ResponsesScanner(EventScanner):
    """`response.….delta` is output; completed, incomplete, failed and error are ends."""

    OUTPUT = b".delta"

    def note(self, name: str, data: bytes) -> None:
        """Take in one event."""
        if name.endswith(".delta"):
            self.output()
        elif name in _GOOD_ENDS or name in _BAD_ENDS:
            self.ended(failed=name in _BAD_ENDS)
            self.usage = _usage(_EVENT.decode(data).response) or self.usage


class Responses(OpenAi):
    """OpenAI's errors; streams of named events that end in `response.completed` or one of its kin."""

    def in_band_event(self, error: GatewayError, request_id: str) -> bytes:
        """An `error` event: its fields at the top, where the API has them, and in `error`, where SDKs look too.

        openai-python raises only for the second. Our own number of the event is not known here: 0.
        """
        del request_id
        told = {"code": error.code, "message": error.message, "param": error.param}
        body = {"type": "error", "sequence_number": 0, **told, "error": {"type": error.type, **told}}
        return b"event: error\ndata: " + msgspec.json.encode(body) + b"\n\n"

    def scanner(self, *, strip_usage: bool) -> StreamScanner:
        """Named events; usage is never left out, since it is part of the answer."""
        del strip_usage
        return ResponsesScanner()

    def read_usage(self, body: bytes) -> Usage | None:
        """`usage.input_tokens` and its neighbours."""
        try:
            return _usage(_RESPONSE.decode(body))
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return None


def _usage(response: _Response | None) -> Usage | None:
    return response.usage.counted() if response is not None and response.usage is not None else None


RESPONSES: Final[Dialect] = Responses()
