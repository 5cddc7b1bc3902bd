"""Named server-sent events, as the Responses and the Messages API stream them: passed on whole, noticed by name."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar, Final

import msgspec

from gateway.sse import BORDER, EVENT_LIMIT_BYTES, EventTooLong, event_data, last_border
from gateway.wire import Usage

_NAME: Final = re.compile(rb"(?:^|[\r\n])event: ?([^\r\n]*)")


class _Named(msgspec.Struct):
    type: str = ""


_NAMED: Final = msgspec.json.Decoder(_Named)


class EventScanner(ABC):
    """Feed it a body's bytes; it returns the complete events among them, every byte as it came.

    `events` counts events with output in them; `has_content` turns true with the first. `done` says that an event came
    after which nothing follows, well or not; `failed` that it told of a failure.
    """

    OUTPUT: ClassVar[bytes]
    """How the names of events with output in them end."""

    def __init__(self) -> None:
        self._held = b""
        self.events = 0
        self.has_content = False
        self.usage: Usage | None = None
        self.failed = False
        self.done = False

    def feed(self, data: bytes) -> bytes:
        """Take in the next bytes, cut anywhere; returns whole events, possibly none. Raises `sse.EventTooLong`."""
        if not self._held and self._is_one_output(data):
            self.output()
            return data
        buffer = self._held + data if self._held else data
        end = last_border(buffer, len(self._held))
        ready, self._held = buffer[:end], buffer[end:]
        if not ready and len(self._held) > EVENT_LIMIT_BYTES:
            raise EventTooLong
        start = 0
        for border in BORDER.finditer(ready):
            self._look_at(ready[start : border.end()])
            start = border.end()
        if start < len(ready):
            self._look_at(ready[start:])
        return ready

    def finish(self) -> bytes:
        """The bytes after the last border, at the clean end of the body; mostly none."""
        rest, self._held = self._held, b""
        if rest.strip():
            self._look_at(rest)
        return rest

    def _is_one_output(self, data: bytes) -> bool:
        """The common case, seen at a glance: one whole event, named as output is."""
        return (
            data.startswith(b"event: ")
            and data.endswith(b"\n\n")
            and b"\r" not in data
            and data.find(b"\n\n") == len(data) - 2
            and data.endswith(self.OUTPUT, 0, data.find(b"\n"))
        )

    def _look_at(self, event: bytes) -> None:
        name = _NAME.search(event)
        data = event_data(event)
        if data is None:
            return
        try:
            self.note(name[1].decode() if name else _NAMED.decode(data).type, data)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            # Not ours to judge: its reader may make sense of it.
            return

    def output(self) -> None:
        """An event with output in it came by."""
        self.events += 1
        self.has_content = True

    def ended(self, *, failed: bool) -> None:
        """The last event came by."""
        self.done = True
        self.failed = self.failed or failed

    @abstractmethod
    def note(self, name: str, data: bytes) -> None:
        """Take in one event with data. May raise what msgspec raises: then the event says nothing."""
