"""An incremental scanner of server-sent events: whole events come out as they went in, and what matters is noticed.

Pure: no clock, no socket, no decoding of text. Bytes are held back only until the event they belong to is complete,
so whoever cuts the stream cuts it between events.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from gateway.wire import Usage, read_usage

EVENT_LIMIT_BYTES: Final = 32 * 1024 * 1024
"""Longest single event that is held; a worker that sends more without a border is at fault."""

BORDER: Final = re.compile(rb"\r?\n(?:\r\n|\n|\r(?=[^\n]))|\r\r\n?")
"""An event ends at an empty line, and lines end in LF, CRLF or CR (WHATWG HTML, section 9.2.5). A CR that ends the
bytes so far is waited on where a LF is likely to follow it."""

_LINE_END: Final = re.compile(rb"\r\n|\n|\r")
_DONE: Final = b"[DONE]"


class EventTooLong(Exception):
    """No event border within `EVENT_LIMIT_BYTES`."""


class _Delta(msgspec.Struct):
    content: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: Any = None
    function_call: Any = None


class _Choice(msgspec.Struct):
    text: Any = None
    delta: _Delta | None = None
    finish_reason: Any = None


class _Event(msgspec.Struct):
    choices: list[_Choice] | None = None
    error: Any = None
    object: Any = None
    usage: Any = None


_EVENT: Final = msgspec.json.Decoder(_Event)


class SseScanner:
    """Feed it a body's bytes; it returns the complete events among them.

    `events` counts events with output in them (heartbeats, usage and `[DONE]` are none). `has_content` turns true with
    the first one that carries output. With `strip_usage` the event that only carries usage is read and left out.
    """

    __slots__ = ("_held", "_strip_usage", "done", "events", "failed", "has_content", "usage")

    def __init__(self, *, strip_usage: bool) -> None:
        self._strip_usage = strip_usage
        self._held = b""
        self.events = 0
        self.has_content = False
        self.usage: Usage | None = None
        self.failed = False
        """An error event came by."""
        self.done = False
        """`[DONE]` came by."""

    def feed(self, data: bytes) -> bytes:
        """Take in the next bytes, cut anywhere; returns whole events, possibly none (`b""`)."""
        if (
            # The common case, seen at a glance: one whole event with a choice in it and no usage beside it.
            data.find(b"\n\n") == len(data) - 2
            and self.has_content
            and not self._held
            and data[:7] == b"data: {"
            and b'"choices":[{' in data
            and b'"usage":{' not in data
            and b"\r" not in data
        ):
            self.events += 1
            return data
        buffer = self._held + data if self._held else data
        end = len(buffer) if b"\r" not in buffer and buffer.endswith(b"\n\n") else last_border(buffer, len(self._held))
        ready, self._held = (buffer, b"") if end == len(buffer) else (buffer[:end], buffer[end:])
        if not ready:
            if len(self._held) > EVENT_LIMIT_BYTES:
                raise EventTooLong
            return ready
        events = ready.count(b"\n\n")
        if self.has_content and not _is_special(ready):
            self.events += events or len(BORDER.findall(ready))
            return ready
        return self._sift(ready)

    def finish(self) -> bytes:
        """The bytes after the last border, at the clean end of the body; mostly none."""
        rest, self._held = self._held, b""
        return self._sift(rest) if rest.strip() else rest

    def _sift(self, ready: bytes) -> bytes:
        """Look at each event by itself; used until the first content, and where something special may be."""
        kept = []
        start = 0
        for border in BORDER.finditer(ready):
            event = ready[start : border.end()]
            start = border.end()
            if self._note(event):
                kept.append(event)
        if start < len(ready) and self._note(ready[start:]):
            kept.append(ready[start:])
        return b"".join(kept)

    def _note(self, event: bytes) -> bool:
        """Take in one event; False when it is to be left out."""
        data = event_data(event)
        if data is None:
            return True
        if data == _DONE:
            self.done = True
            return True
        return self._note_json(data)

    def _note_json(self, data: bytes) -> bool:
        try:
            event = _EVENT.decode(data)
        except (msgspec.DecodeError, RecursionError):
            self.events += 1
            return True
        if event.choices:
            self.events += 1
            self.has_content = self.has_content or any(map(_has_output, event.choices))
            self.usage = self._usage_beside_choices(data) or self.usage
        elif event.error is not None or event.object == "error":
            self.failed = True
        elif event.usage is not None:
            self.usage = read_usage(data) or self.usage
            return event.choices is None or not self._strip_usage
        return True

    def _usage_beside_choices(self, data: bytes) -> Usage | None:
        """Some workers put the usage into the last chunk with a choice; it stays there."""
        return read_usage(data) if b'"usage":{' in data or b'"usage": {' in data else None


def event_data(event: bytes) -> bytes | None:
    """The data of one event, its lines joined by LF; None for comments and events without data."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE_END.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def last_border(buffer: bytes, already_seen: int) -> int:
    """Where the last complete event ends; 0 when none does. The first `already_seen` bytes hold no border."""
    if b"\r" not in buffer:
        return buffer.rfind(b"\n\n", max(already_seen - 1, 0)) + 2 if b"\n\n" in buffer else 0
    end = 0
    for border in BORDER.finditer(buffer, max(already_seen - 3, 0)):
        end = border.end()
    return end


def _is_special(ready: bytes) -> bool:
    """Whether something other than plain content may be among these events. A quote inside a JSON string is escaped,
    so `"error"` in generated text never matches."""
    return (
        _DONE in ready
        or b'"error"' in ready
        or b'"choices":[]' in ready
        or b'"choices": []' in ready
        or b'"usage":{' in ready
        or b'"usage": {' in ready
        or ready.startswith(b":")
    )


def _has_output(choice: _Choice) -> bool:
    delta = choice.delta
    if choice.text or choice.finish_reason:
        return True
    if delta is None:
        return False
    return bool(delta.content or delta.reasoning_content or delta.reasoning or delta.tool_calls or delta.function_call)
