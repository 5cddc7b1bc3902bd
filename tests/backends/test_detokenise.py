"""Incremental text: the same as decoding everything, and never half a character."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.detokenise import MOST_HELD_TOKENS, Detokeniser


class Bytes:
    """Every byte is a token."""

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode("utf-8", "replace")


class Pieces:
    """Every token is some bytes, as in a byte-level vocabulary."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces
        self.longest = 0

    def decode(self, ids: Sequence[int]) -> str:
        self.longest = max(self.longest, len(ids))
        return b"".join(self.pieces[number] for number in ids).decode("utf-8", "replace")


class Words:
    """A decoder that puts a blank before every token but the first, as SentencePiece does."""

    def decode(self, ids: Sequence[int]) -> str:
        return " ".join(f"w{number}" for number in ids)


def pushed(decoder, ids) -> list[str]:
    detokeniser = Detokeniser(decoder)
    return [detokeniser.push(number) for number in ids]


def test_plain_text_comes_at_once():
    """Every token of whole characters is shown with it."""
    assert pushed(Bytes(), b"abc") == ["a", "b", "c"]


@pytest.mark.parametrize("character", ["é", "中", "🙂"])
def test_a_character_of_several_tokens_comes_when_it_is_whole(character):
    """Trap 20: nothing is shown until the last byte, then the character."""
    data = character.encode()
    assert pushed(Bytes(), b"a" + data + b"b") == ["a", *[""] * (len(data) - 1), character, "b"]


def test_a_token_that_ends_in_mid_character_shows_its_whole_ones():
    """The certain part is not held back with the uncertain one."""
    assert pushed(Pieces([b"abc\xc3", b"\xa9d"]), [0, 1]) == ["abc", "éd"]


def test_bytes_that_are_no_character_are_shown_as_such():
    """A lone continuation byte followed by a letter will never become a character."""
    assert "".join(pushed(Bytes(), b"a\xffb")) == "a\ufffdb"


def test_an_unfinished_character_at_the_end_is_never_shown():
    """The answer was cut there; half a character is no text."""
    assert "".join(pushed(Bytes(), "a🙂".encode()[:-1])) == "a"


def test_a_model_that_babbles_bytes_does_not_hold_the_stream():
    """A long run without a clean end is shown as it is, and the window stays short."""
    decoder = Pieces([b"\xff"])
    text = "".join(pushed(decoder, [0] * 500))
    assert len(text) >= 499
    assert decoder.longest <= 2 * MOST_HELD_TOKENS


def test_a_decoder_that_treats_the_first_token_apart_sees_context():
    """The blank between words is not lost, because no token is decoded as if it were the first."""
    assert pushed(Words(), [1, 2, 3]) == ["w1", " w2", " w3"]


@given(st.text(max_size=40), st.lists(st.integers(1, 5), max_size=40))
def test_the_pieces_are_the_text(text, lengths):
    """For any text cut into tokens anywhere, what was shown is exactly the text."""
    data, pieces = text.encode(errors="ignore"), []
    for length in [*lengths, *[3] * 60]:
        pieces.append(data[:length])
        data = data[length:]
    decoder = Pieces([piece for piece in pieces if piece])
    shown = pushed(decoder, range(len(decoder.pieces)))
    whole = text.encode(errors="ignore").decode()
    assert "".join(shown) == whole.removesuffix("\ufffd") or "".join(shown) == whole


@given(st.text(max_size=20))
def test_no_piece_ends_in_half_a_character(text):
    """Byte by byte, no replacement character is ever shown for a good text."""
    good = text.encode(errors="ignore").decode().replace("\ufffd", "")
    shown = pushed(Bytes(), good.encode())
    assert all("\ufffd" not in piece for piece in shown)
    assert "".join(shown) == good
