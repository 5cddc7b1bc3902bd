"""Properties of folding that hold for any text, found by Hypothesis."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from router.normalise import DEFAULT, fold_messages
from router.normalise.scan import _ASCII, _DIGIT_MARKS, _matches_at
from tests.router.normalise_builders import fold_system, folded_text

PIECES = [
    "Current time: ",
    "Today is ",
    "now=",
    "Request ID: ",
    "/tmp/x-",
    "14:05:09",
    "2025-11-03",
    "Monday, ",
    "3 November 2025",
    "4d25deb3-54f4-4a69-90ac-ff0043892dfc",
    "8f3a2b",
    "Tokens used: ",
    "18231",
    " / 200000 (9%)",
    "\r\n",
    "\n",
    "\n\n\n",
    "  ",
    "\ufeff",
    "e\u0301",
    "x-client-attribution: a;",
    "- ",
    "# ",
    '"',
    "'",
    "```",
    "(",
    ")",
    ".",
    ",",
    "The ",
    "score is ",
    "当前时间：",
    "2025年11月3日",
    "下午2点",
    "現在",
    "heute ist ",
    "3. November",
    "٣",
    "{when}",
    "Date: ",
    "timestamp",
    "{",
    "}",
    ": ",
    "Example: ",
]
TEXTS = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=14).map("".join)
SHAPES = [
    "%Y-%m-%d %H:%M:%S",
    "%Y-%m-%dT%H:%M:%SZ",
    "%A, %d %B %Y, %H:%M",
    "%b %d, %Y %I:%M %p",
    "%d.%m.%Y %H:%M",
    "%d/%m/%Y, %H:%M:%S",
    "%a, %d %b %Y %H:%M:%S +0800",
    "%a %b %d %H:%M:%S %Y",
    "%Y%m%dT%H%M%S",
    "%Y年%m月%d日 %H:%M",
    "%d-%b-%y %H:%M:%S",
    "%H:%M:%S",
]
CUES = ["Current date and time: ", "It is now ", "Now: ", "The current time is ", "# Current time\n", "<current_time>"]
MOMENTS = st.datetimes(datetime(2020, 1, 1), datetime(2090, 1, 1))
WORDS = st.text("abcdefghijklmnopqrstuvwxyz ", min_size=1, max_size=30).map(str.strip).filter(bool)


@given(TEXTS)
@settings(max_examples=1500, deadline=None)
def test_folding_what_was_folded_changes_nothing(text: str) -> None:
    """A key text is a fixed point."""
    once = folded_text(text)
    assert folded_text(once) == once


@given(TEXTS)
@settings(max_examples=800, deadline=None)
def test_every_span_lies_within_the_original(text: str) -> None:
    """In order, and only where something was folded."""
    folded = fold_system(text)
    assert all(0 <= fold.start <= fold.end <= len(text) for fold in folded.folds)
    assert folded.changed is bool(folded.folds)
    assert folded.changed or folded.messages[0]["content"] is text


@given(TEXTS, st.sampled_from(["user", "assistant", "tool"]))
@settings(max_examples=300, deadline=None)
def test_no_text_of_the_task_ever_changes(text: str, role: str) -> None:
    """Not a code point."""
    messages: list[dict[str, Any]] = [{"role": role, "content": text}]
    assert fold_messages(messages, None, DEFAULT).messages is messages


@given(st.sampled_from(CUES), st.sampled_from(SHAPES), MOMENTS, MOMENTS, WORDS)
@settings(max_examples=600, deadline=None)
def test_two_moments_in_any_common_shape_read_alike(
    cue: str, shape: str, one: datetime, other: datetime, rest: str
) -> None:
    """Whatever the moment, behind a cue."""
    tail = f"\nYou {rest}"
    assert folded_text(cue + one.strftime(shape) + tail) == folded_text(cue + other.strftime(shape) + tail)


@given(st.sampled_from(CUES), st.sampled_from(SHAPES), MOMENTS, WORDS, WORDS)
@settings(max_examples=600, deadline=None)
def test_texts_that_differ_outside_of_their_clock_stay_different(
    cue: str, shape: str, moment: datetime, one: str, other: str
) -> None:
    """Folding eats the clock and nothing behind it."""
    assume(one.split() != other.split())
    clock = cue + moment.strftime(shape)
    assert folded_text(f"{clock}\nYou {one}.") != folded_text(f"{clock}\nYou {other}.")


@given(MOMENTS, MOMENTS, st.sampled_from(SHAPES))
@settings(max_examples=300, deadline=None)
def test_a_moment_without_a_cue_is_data(one: datetime, other: datetime, shape: str) -> None:
    """A lease, a deadline, a log line."""
    texts = [f"The lease was signed {moment.strftime(shape)} by both." for moment in (one, other)]
    assert [folded_text(text) for text in texts] == texts


SHAPES = st.sampled_from(
    ["Jan 5", "2025-11-03", "14:05:09", "at 5 pm", "2nd of May", "req-1a2b3c", "v2.1.100", "1730000000", "= 17", "W44"]
)


@given(st.lists(st.one_of(SHAPES, st.text(alphabet="ab hTm:-/.=$#_,\n07", max_size=5)), max_size=20))
@settings(max_examples=200, deadline=None)
def test_digits_that_are_found_one_by_one_stop_where_a_search_stops(pieces: list[str]) -> None:
    """Sparse texts are looked at digit by digit, dense ones by one search: the stops are the same."""
    text = "".join(pieces)
    found = list(_matches_at(text, text.encode().translate(_DIGIT_MARKS)))
    searched = list(_ASCII.finditer(text))
    assert [(match.span(), match.groupdict()) for match in found] == [
        (match.span(), match.groupdict()) for match in searched
    ]
