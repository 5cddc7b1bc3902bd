"""Stop strings: found across any border, never shown, and nothing held back longer than needed."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from backends.stops import StopStrings


def shown(stops: list[str], pieces: list[str]) -> tuple[list[str], str | None]:
    """What is shown after each piece, the flush at the end included, and the stop string found."""
    watch = StopStrings(stops)
    texts: list[str] = []
    for piece in pieces:
        text, stop = watch.push(piece)
        texts.append(text)
        if stop is not None:
            return texts, stop
    return [*texts, watch.flush()], None


def test_without_stop_strings_everything_is_shown_at_once():
    """Nothing to wait for."""
    assert shown([], ["ab", "c"]) == (["ab", "c", ""], None)
    assert shown([""], ["ab"]) == (["ab", ""], None)


def test_a_stop_string_across_token_borders_ends_the_text_before_itself():
    """Trap 20: its first half is held back, and never shown."""
    assert shown(["END"], ["to the E", "N", "D of days"]) == (["to the ", "", ""], "END")


def test_what_only_looked_like_a_stop_string_is_shown_later():
    """Held back while it could be one, shown as soon as it cannot."""
    assert shown(["END"], ["an EN", "T"]) == (["an ", "ENT", ""], None)


def test_what_is_held_at_the_end_is_shown():
    """An answer cut by max_tokens keeps its last characters."""
    assert shown(["END"], ["an EN"]) == (["an ", "EN"], None)


def test_a_beginning_within_a_beginning_is_kept():
    """After 'aaab' has failed at the third 'a', two of them still begin it."""
    assert shown(["aab"], ["aaa", "b!"]) == (["a", ""], "aab")


def test_of_two_stop_strings_the_first_to_be_complete_wins():
    """As soon as one is complete the text ends."""
    assert shown(["xyz", "y"], ["wxyz"]) == (["wx"], "y")


def test_of_two_that_end_together_the_longer_one_wins():
    """It began earlier, so its beginning must not be shown."""
    assert shown(["b", "ab"], ["cab"]) == (["c"], "ab")


def test_a_long_look_alike_costs_no_more_than_its_length():
    """A stop string of 100,000 equal characters against a text of the same: linear, or this test never ends."""
    texts, stop = shown(["a" * 100_000 + "b"], ["a" * 1000] * 99)
    assert stop is None
    assert texts[-1] == "a" * 99_000


def test_a_stop_string_may_be_shown():
    """The text then ends after it, and nothing behind it is shown."""
    watch = StopStrings(["END"], shown=True)
    assert watch.push("the E") == ("the ", None)
    assert watch.push("ND of") == ("END", "END")


@given(
    st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=3),
    st.text("abc", max_size=9),
    st.text("abc", max_size=9),
)
def test_one_that_is_complete_while_it_may_not_stop_is_text(stops, before, after):
    """What ends later stops, also when it began earlier."""
    watch, text = StopStrings(stops), before + after
    shown = watch.push(before, may_stop=False).text
    found = watch.push(after)
    ends = [
        (end, -len(stop), stop)
        for stop in stops
        for end in range(len(before) + 1, len(text) + 1)
        if text[:end].endswith(stop)
    ]
    if ends:
        end, minus_length, stop = min(ends)
        assert found.stop == stop
        assert shown + found.text == text[: end + minus_length]
    else:
        assert shown + found.text + watch.flush() == text


@given(
    st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3),
    st.lists(st.text("abc", max_size=5), max_size=8),
)
def test_however_the_text_is_cut_the_same_is_shown(stops, pieces):
    """Against the plain definition: the text up to the stop string that is complete first."""
    text = "".join(pieces)
    ends = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    texts, found = shown(stops, pieces)
    if not ends:
        assert ("".join(texts), found) == (text, None)
    else:
        end, minus_length, stop = min(ends)
        assert ("".join(texts), found) == (text[: end + minus_length], stop)


@given(st.lists(st.text("ab", min_size=1, max_size=4), min_size=1), st.lists(st.text("abc", max_size=5), max_size=8))
def test_only_the_beginning_of_a_stop_string_is_ever_held_back(stops, pieces):
    """What is missing after each piece is the longest end of the text that begins a stop string."""
    watch, seen, text = StopStrings(stops), "", ""
    for piece in pieces:
        text += piece
        certain, stop = watch.push(piece)
        seen += certain
        if stop is not None:
            return
        held = text[len(seen) :]
        beginnings = [stop[:length] for stop in stops for length in range(len(stop))]
        assert held == max((b for b in beginnings if text.endswith(b)), key=len)


def test_a_long_stop_string_costs_nothing_before_the_text_comes_to_it():
    """The engine's thread makes one for each answer: a megabyte of it must not hold up everybody."""
    start = time.process_time()
    stops = [StopStrings(["ab" * 500_000]) for _ in range(128)]
    assert [stop.push("abac").text for stop in stops] == ["abac"] * 128
    assert time.process_time() - start < 1.0
