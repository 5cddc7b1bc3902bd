"""Streams of named events: bytes as they came, and usage, first output, failure and the end noticed."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gateway.dialects.event_scanner as event_scanner
from gateway.dialects.anthropic import ANTHROPIC
from gateway.dialects.core import Dialect, StreamScanner
from gateway.dialects.responses import RESPONSES
from gateway.sse import EventTooLong
from gateway.wire import Usage
from tests.gateway.dialect_worker import message_events, named_event, recorded, response_events, response_object

STREAMS = {
    "responses": (RESPONSES, b"".join(response_events("one", "北京🙂")), Usage(40, 2, 32)),
    "messages": (ANTHROPIC, b"".join(message_events("one", "北京🙂")), Usage(40, 2, 32)),
}
both = pytest.mark.parametrize(("dialect", "stream", "usage"), list(STREAMS.values()), ids=list(STREAMS))


def scan(dialect: Dialect, *pieces: bytes) -> tuple[StreamScanner, bytes]:
    """Feed pieces; the scanner afterwards and everything that came out."""
    scanner = dialect.scanner(strip_usage=True)
    out = b"".join([scanner.feed(piece) for piece in pieces])
    return scanner, out + scanner.finish()


@both
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
def test_one_byte_at_a_time_gives_the_same_bytes(dialect: Dialect, stream: bytes, usage: Usage, line_end: bytes):
    """Cases C-03 and C-04; nothing is left out, whatever is asked of it."""
    stream = stream.replace(b"\n", line_end)
    scanner, out = scan(dialect, *[bytes([byte]) for byte in stream])
    assert out == stream
    assert (scanner.events, scanner.usage, scanner.done, scanner.failed) == (2, usage, True, False)


@given(st.sampled_from(sorted(STREAMS)), st.lists(st.integers(0, 2000), max_size=9))
def test_what_comes_out_ends_between_events(name: str, cuts: list[int]) -> None:
    """So that an error event can follow at any time."""
    dialect, stream, usage = STREAMS[name]
    scanner = dialect.scanner(strip_usage=False)
    edges = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    for a, b in itertools.pairwise(edges):
        out = scanner.feed(stream[a:b])
        assert out == b"" or out.endswith(b"\n\n")
    assert (scanner.events, scanner.usage, scanner.done) == (2, usage, True)


@both
def test_a_stream_that_is_cut_has_no_end(dialect: Dialect, stream: bytes, usage: Usage) -> None:
    """Case C-06: whatever is cut before its last event is not done."""
    scanner, _ = scan(dialect, stream[: stream.rindex(b"event: ")])
    assert (scanner.done, scanner.failed, scanner.has_content) == (False, False, True)


def test_output_is_what_counts_as_the_first_token() -> None:
    """Openings, pings and comments are none."""
    opening = b"".join(response_events()[:2]) + b": comment\n\n"
    assert scan(RESPONSES, opening)[0].has_content is False
    assert scan(ANTHROPIC, message_events()[0] + ANTHROPIC.heartbeat)[0].events == 0


@pytest.mark.parametrize(
    ("dialect", "event"),
    [
        (RESPONSES, named_event("response.failed", response=response_object("failed", error={"code": "x"}))),
        (RESPONSES, named_event("error", message="m", code="c")),
        (RESPONSES, b'data: {"type":"error","message":"m"}\n\n'),
        (ANTHROPIC, named_event("error", error={"type": "overloaded_error", "message": "m"})),
    ],
)
def test_an_error_event_is_a_failure_and_the_end(dialect: Dialect, event: bytes) -> None:
    """Case C-08; by the event's name, or by its type where it has none."""
    scanner, out = scan(dialect, event)
    assert (scanner.failed, scanner.done, out) == (True, True, event)


def test_an_answer_that_ran_into_its_limit_is_a_good_end() -> None:
    """`response.incomplete` has usage as a complete one has."""
    scanner, _ = scan(RESPONSES, *response_events("x", end="incomplete"))
    assert (scanner.done, scanner.failed, scanner.usage) == (True, False, Usage(40, 2, 32))


def test_what_is_no_json_passes_unread() -> None:
    """It is its reader's to judge."""
    stream = b"data: {oops\n\nevent: message_delta\ndata: [1]\n\nevent: \xff\ndata: {}\n\nevent: x\n\n"
    for dialect in (RESPONSES, ANTHROPIC):
        scanner, out = scan(dialect, stream)
        assert (out, scanner.events, scanner.usage) == (stream, 0, None)


def test_an_event_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded."""
    monkeypatch.setattr(event_scanner, "EVENT_LIMIT_BYTES", 100)
    with pytest.raises(EventTooLong):
        scan(ANTHROPIC, b"data: " + b"x" * 200)


@pytest.mark.parametrize(
    ("dialect", "body", "usage"),
    [
        (RESPONSES, recorded("responses"), Usage(33, 6, 0)),
        (ANTHROPIC, recorded("messages"), Usage(20, 6, 0)),
        (ANTHROPIC, b'{"usage":{"input_tokens":17,"cache_read_input_tokens":3,"output_tokens":6}}', Usage(20, 6, 3)),
        (ANTHROPIC, b'{"usage":{"input_tokens":5,"cache_creation_input_tokens":2}}', Usage(7, 0, None)),
        (RESPONSES, b'{"usage":{"input_tokens":5}}', Usage(5, 0, None)),
        (RESPONSES, b'{"usage":null}', None),
        (ANTHROPIC, b"{}", None),
        (ANTHROPIC, b"\xff", None),
        (RESPONSES, b"[", None),
    ],
)
def test_usage_of_a_whole_answer_is_read(dialect: Dialect, body: bytes, usage: Usage | None) -> None:
    """As vLLM and llama.cpp write it; Anthropic counts cached tokens beside the others."""
    assert dialect.read_usage(body) == usage
