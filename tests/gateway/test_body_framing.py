"""Where a body ends, for every way of saying so and every way of cutting it."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.body_framing import ChunkedFraming, Framing, LengthFraming, MalformedBody, UntilCloseFraming


def build_chunked(*chunks: bytes, trailer: bytes = b"", extension: bytes = b"") -> bytes:
    """A body in chunks."""
    framed = b"".join(b"%x%b\r\n%b\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    return framed + b"0\r\n" + trailer + b"\r\n"


def feed_all(framing: Framing, *pieces: bytes) -> bytes:
    return b"".join([framing.feed(piece) for piece in pieces])


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(place, len(data)) for place in places), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 400), max_size=10))
def test_chunks_come_apart_wherever_they_are_cut(chunks: list[bytes], places: list[int]) -> None:
    """Payload is the chunks' sum, and the end is noticed with the last byte, not before."""
    framing = ChunkedFraming()
    wire = build_chunked(*chunks, trailer=b"x-digest: 1\r\n", extension=b";ext=1")
    assert feed_all(framing, *cut(wire[:-1], places)) == b"".join(chunks)
    assert not framing.complete
    framing.feed(wire[-1:])
    assert framing.complete
    assert not framing.excess


def test_one_byte_at_a_time_is_enough_for_chunks() -> None:
    """The hardest cut."""
    framing = ChunkedFraming()
    wire = build_chunked(b"hello", b"x" * 300)
    assert feed_all(framing, *[bytes([byte]) for byte in wire]) == b"hello" + b"x" * 300
    assert framing.complete


@pytest.mark.parametrize(
    "wire",
    [
        b"g\r\nx",
        b"+5\r\nhello\r\n",
        b"-1\r\n",
        b"0x5\r\nhello\r\n",
        b"1_0\r\n",
        b" 5\r\nhello\r\n",
        b"\r\n",
        b";ext\r\n",
        b"5\nhello\r\n",
        b"5\r\nhelloXX",
        b"5\r\nhello\n0\r\n\r\n",
        b"f" * 13 + b"\r\n",
        b"5;" + b"x" * 300,
        b"\n",
        b"0\r\n" + b"x" * 9000,
        b"0\r\n" + b"a: b\r\n" * 2000,
        b"0\r\n\n",
    ],
)
def test_broken_chunking_is_refused(wire: bytes) -> None:
    """Row A13: whole, and a byte at a time."""
    for pieces in ([wire], [bytes([byte]) for byte in wire]):
        with pytest.raises(MalformedBody):
            feed_all(ChunkedFraming(), *pieces)


def test_bytes_after_the_end_are_noticed() -> None:
    """They would be taken for the start of the next answer."""
    for framing, wire in ((ChunkedFraming(), build_chunked(b"a") + b"HTTP/1.1"), (LengthFraming(1), b"aHTTP/1.1")):
        assert framing.feed(wire) == b"a"
        assert (framing.complete, framing.excess) == (True, True)


def test_a_length_ends_exactly() -> None:
    """Counted, not searched."""
    framing = LengthFraming(5)
    assert feed_all(framing, b"he", b"ll") == b"hell"
    assert not framing.complete
    assert framing.feed(b"o") == b"o"
    assert framing.complete
    assert LengthFraming(0).complete


def test_only_a_body_without_length_ends_by_the_close() -> None:
    """Row A2: a close in the middle is a fault."""
    length, chunked, until_close = LengthFraming(5), ChunkedFraming(), UntilCloseFraming()
    for framing in (length, chunked, until_close):
        framing.feed(b"5\r\n")
    assert (length.closed(), chunked.closed(), until_close.closed()) == (False, False, True)
    assert until_close.complete


@pytest.mark.parametrize("spelt", [b"%x\r\n", b"%X\r\n", b"0%x\r\n", b"%x;a=b\r\n"])
def test_a_whole_chunk_of_any_size_is_its_payload(spelt):
    """However its size is spelt, and whether or not that is one of those that are known by their length."""
    for size in (*range(1, 600), *range(4000, 4200), 65_535, 65_536):
        framing, payload = ChunkedFraming(), b"x" * size
        assert framing.feed(spelt % size + payload + b"\r\n") == payload
        assert framing.feed(b"0\r\n\r\n") == b""
        assert framing.complete


def test_a_chunk_that_only_looks_whole_by_its_length_is_not_taken_for_one():
    """Its size says less, or more, than what came: the rest is read as what it is."""
    framing = ChunkedFraming()
    assert framing.feed(b"3\r\nabc\r\n2\r\nde\r\n") == b"abcde"
    assert framing.feed(b"9\r\nabcdef\r\n") == b"abcdef\r\n"
