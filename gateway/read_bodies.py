"""Remembers how whole bodies read, so that one which comes again is not parsed again, however large it is.

Retries, evaluations, health checks and counts of tokens before a request send the same bytes again; a further turn of
a conversation does not, and is parsed. A body is found by a digest and believed only if its bytes are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from xxhash import xxh3_64_intdigest

from gateway.wire import Call, Endpoint, parse_call

BOUND_BYTES: Final = 16 * 2**20
LARGEST_BYTES: Final = 2**20
PARSED_FACTOR: Final = 2
"""What a body and its values take together, in bodies' lengths; text makes up most of both."""

CALL_BYTES: Final = 4096
"""What a call takes beside its text."""

Whose = bytes | str
"""Who may learn, by how long it takes, that a body has come before: nobody but who sent it."""


class ReadBodies:
    """Calls by whose they are, endpoint and body; the least recently used go first. Belongs to one thread."""

    def __init__(self, bound_bytes: int = BOUND_BYTES) -> None:
        self._bound_bytes = bound_bytes
        self._held_bytes = 0
        self._calls: OrderedDict[tuple[Whose, Endpoint, int], Call] = OrderedDict()

    def __len__(self) -> int:
        return len(self._calls)

    def read(self, whose: Whose, endpoint: Endpoint, body: bytes) -> Call:
        """`parse_call(endpoint, body)`, whose errors are not remembered; nobody may change what the call holds."""
        place, calls = (whose, endpoint, xxh3_64_intdigest(body)), self._calls
        call = calls.get(place)
        if call is not None and call.body == body:
            calls.move_to_end(place)
            return call
        call = parse_call(endpoint, body)
        if len(body) <= LARGEST_BYTES:
            self._keep(place, call)
        return call

    def _keep(self, place: tuple[Whose, Endpoint, int], call: Call) -> None:
        gone = self._calls.pop(place, None)
        self._held_bytes += _size_bytes(call) - (0 if gone is None else _size_bytes(gone))
        self._calls[place] = call
        while self._held_bytes > self._bound_bytes:
            self._held_bytes -= _size_bytes(self._calls.popitem(last=False)[1])

    def check_integrity(self) -> None:
        """Raise AssertionError unless sizes add up within the bound."""
        held = sum(map(_size_bytes, self._calls.values()))
        if held != self._held_bytes or held > self._bound_bytes:
            raise AssertionError(f"remembered bodies take {held} bytes, counted as {self._held_bytes}")


def _size_bytes(call: Call) -> int:
    return CALL_BYTES + PARSED_FACTOR * len(call.body)
