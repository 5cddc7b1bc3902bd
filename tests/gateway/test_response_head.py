"""A worker's head is taken at its word or not at all."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body_framing import ChunkedFraming, LengthFraming, UntilCloseFraming
from gateway.response_head import MalformedAnswer, framing_of, parse_head


def build_head(*lines: str, status: str = "HTTP/1.1 200 OK") -> bytes:
    return "\r\n".join((status, *lines)).encode("latin-1")


def test_a_plain_head_is_read() -> None:
    """Names in lower case, values without the space around them."""
    head = parse_head(build_head("Content-Type: text/event-stream; charset=utf-8 ", "X-Empty:", "content-length:\t5"))
    assert (head.status, head.keep_alive) == (200, True)
    assert head.field(b"content-type") == b"text/event-stream; charset=utf-8"
    assert (head.field(b"x-empty"), head.field(b"content-length"), head.field(b"none")) == (b"", b"5", None)


@pytest.mark.parametrize(
    ("status", "lines", "keeps"),
    [
        ("HTTP/1.1 200 OK", (), True),
        ("HTTP/1.1 200", (), True),
        ("HTTP/1.1 200 ", ("connection: close",), False),
        ("HTTP/1.1 200 OK", ("Connection: Keep-Alive, CLOSE",), False),
        ("HTTP/1.0 200 OK", (), False),
        ("HTTP/1.0 200 OK", ("connection: keep-alive",), True),
        ("HTTP/1.0 200 OK", ("connection: keep-alive", "transfer-encoding: chunked"), False),
    ],
)
def test_whether_a_connection_stays_is_read_from_version_and_field(
    status: str, lines: tuple[str, ...], keeps: bool
) -> None:
    """RFC 9112, section 9.3."""
    assert parse_head(build_head(*lines, status=status)).keep_alive is keeps


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"HTTP/2 200 OK",
        b"HTTP/1.2 200 OK",
        b"http/1.1 200 OK",
        b"HTTP/1.1  200 OK",
        b"HTTP/1.1 20 OK",
        b"HTTP/1.1 2000 OK",
        b"HTTP/1.1 000 OK",
        b"HTTP/1.1 200OK",
        b"HTTP/1.1 200 O\x00K",
        b"HTTP/1.1 200 OK\nx: y",
        b"<html>",
        build_head("no colon"),
        build_head(": empty name"),
        build_head("bad name: x"),
        build_head("name : x"),
        build_head("a: b", " folded"),
        build_head("a: b", "\tfolded"),
        build_head("a: b\x00c"),
        build_head("a: b\rc"),
        build_head("a: b\nc: d"),
        build_head("a: \x7f"),
        build_head("", "a: b"),
    ],
)
def test_a_malformed_head_is_refused(head: bytes) -> None:
    """Row A13: garbage is a fault, never a guess."""
    with pytest.raises(MalformedAnswer):
        parse_head(head)


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (("content-length: 5",), LengthFraming),
        (("content-length: 5", "content-length: 5"), LengthFraming),
        (("transfer-encoding: chunked",), ChunkedFraming),
        (("Transfer-Encoding: Chunked",), ChunkedFraming),
        ((), UntilCloseFraming),
    ],
)
def test_the_framing_follows_from_the_head(lines: tuple[str, ...], kind: type) -> None:
    """Exactly one way of ending."""
    assert isinstance(framing_of(parse_head(build_head(*lines))), kind)


@pytest.mark.parametrize(
    "lines",
    [
        ("content-length: 5", "transfer-encoding: chunked"),
        ("content-length: 5", "content-length: 6"),
        ("content-length: 5, 5",),
        ("content-length: +5",),
        ("content-length: -5",),
        ("content-length: 0x5",),
        ("content-length: 5.0",),
        ("content-length:",),
        ("content-length: 9999999999999999",),
        ("transfer-encoding: gzip, chunked",),
        ("transfer-encoding: chunked", "transfer-encoding: chunked"),
        ("transfer-encoding: identity",),
        ("transfer-encoding: xchunked",),
    ],
)
def test_two_ways_of_ending_are_refused(lines: tuple[str, ...]) -> None:
    """Row F1's other side: an answer must not smuggle a second one."""
    with pytest.raises(MalformedAnswer):
        framing_of(parse_head(build_head(*lines)))


@pytest.mark.parametrize("status", ["HTTP/1.1 204 No Content", "HTTP/1.1 304 Not Modified"])
def test_some_answers_have_no_body(status: str) -> None:
    """Whatever their fields say."""
    assert framing_of(parse_head(build_head("content-length: 5", status=status))).complete


@given(st.binary(max_size=120))
def test_any_bytes_are_a_head_or_a_fault(head: bytes) -> None:
    """Nothing else is ever raised."""
    try:
        framing_of(parse_head(b"HTTP/1.1 200 OK\r\n" + head))
        parse_head(head)
    except MalformedAnswer:
        pass
