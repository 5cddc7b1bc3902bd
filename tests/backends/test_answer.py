"""The end of an answer: end tokens, stop strings, and the bound on its length."""

from __future__ import annotations

from backends.answer import Answer, Piece
from tests.backends.test_detokenise import Bytes

END = 0


def said(tokens: bytes, *, stops: tuple[str, ...] = (), max_tokens: int = 100, end_ids=frozenset({END}), decoder=None):
    answer = Answer(decoder or Bytes(), end_ids=end_ids, stops=stops, max_tokens=max_tokens)
    return [answer.push(token) for token in tokens]


def test_an_end_token_ends_the_answer_and_has_no_text():
    """Trap 20: the reason is `stop`, and `<|im_end|>` is not shown."""
    assert said(b"a\0") == [Piece("a", None, None), Piece("", "stop", None)]


def test_an_ignored_end_token_is_a_token_like_others():
    """With ignore_eos there are no end ids."""
    assert said(b"\0b", end_ids=frozenset())[1] == Piece("b", None, None)


def test_a_stop_token_of_the_request_is_named_by_its_id():
    """No text of it either; the model's own end comes first."""
    answer = Answer(Bytes(), end_ids=frozenset({END}), stops=("xy",), max_tokens=9, stop_ids=(98, END))
    assert answer.push(ord("x")) == Piece("", None, None)
    assert answer.push(98) == Piece("x", "stop", 98)
    answer = Answer(Bytes(), end_ids=frozenset({END}), stops=(), max_tokens=9, stop_ids=(END,))
    assert answer.push(END) == Piece("", "stop", None)


def test_the_bound_ends_the_answer():
    """The last allowed token is shown, with `length`."""
    assert said(b"ab", max_tokens=2) == [Piece("a", None, None), Piece("b", "length", None)]


def test_what_was_held_for_a_stop_string_is_shown_at_the_bound():
    """It did not become one."""
    assert said(b"ab", stops=("bc",), max_tokens=2)[-1] == Piece("b", "length", None)


def test_what_was_held_is_shown_before_an_end_token():
    """The end token proves that the stop string will not come."""
    assert said(b"ab\0", stops=("bc",))[-1] == Piece("b", "stop", None)


def test_a_stop_string_with_the_last_token_is_a_stop():
    """Not `length`: the answer is whole."""
    assert said(b"abc", stops=("bc",), max_tokens=3)[-1] == Piece("", "stop", "bc")


def test_an_end_token_at_the_bound_is_a_stop():
    """The model had finished."""
    assert said(b"a\0", max_tokens=2)[-1] == Piece("", "stop", None)


def test_without_a_decoder_there_are_tokens_and_no_text():
    """Benchmarks of the engine alone need no tokeniser."""
    answer = Answer(None, end_ids=frozenset(), stops=("a",), max_tokens=2)
    assert [answer.push(97), answer.push(97)] == [Piece("", None, None), Piece("", "length", None)]


def test_a_hidden_token_counts_and_shows_nothing():
    """Special tokens inside an answer, as vLLM's skip_special_tokens; a stop string is found across them."""
    answer = Answer(Bytes(), end_ids=frozenset(), stops=("ab",), max_tokens=3, hidden_ids=frozenset({END}))
    assert [answer.push(token) for token in b"x\0y"] == [
        Piece("x", None, None),
        Piece("", None, None),
        Piece("y", "length", None),
    ]
    answer = Answer(Bytes(), end_ids=frozenset(), stops=("ab",), max_tokens=9, hidden_ids=frozenset({END}))
    assert [answer.push(token) for token in b"a\0b"][-1] == Piece("", "stop", "ab")


def test_a_stop_string_within_min_tokens_is_none():
    """As vLLM: what is complete by then is text, what is completed after it is a stop."""
    answer = Answer(Bytes(), end_ids=frozenset(), stops=("ab",), max_tokens=9, min_tokens=2)
    assert [answer.push(token).text for token in b"ab"] == ["", "ab"]
    assert [answer.push(token) for token in b"ab"] == [Piece("", None, None), Piece("", "stop", "ab")]
    answer = Answer(Bytes(), end_ids=frozenset(), stops=("ab",), max_tokens=9, min_tokens=1)
    assert [answer.push(token) for token in b"ab"][-1] == Piece("", "stop", "ab")


def test_what_ends_the_answer_is_shown_when_asked_for():
    """vLLM's include_stop_str_in_output: strings and tokens; a hidden token has no text all the same."""
    answer = Answer(Bytes(), end_ids=frozenset(), stops=("ab",), max_tokens=9, shows_stop=True)
    assert [answer.push(token) for token in b"xab"][-1] == Piece("ab", "stop", "ab")
    answer = Answer(Bytes(), end_ids=frozenset({98}), stops=("ac",), max_tokens=9, shows_stop=True)
    assert [answer.push(token) for token in b"ab"][-1] == Piece("ab", "stop", None)
    answer = Answer(
        Bytes(), end_ids=frozenset({98}), stops=(), max_tokens=9, hidden_ids=frozenset({98}), shows_stop=True
    )
    assert answer.push(98) == Piece("", "stop", None)
