"""What a system text is rewritten to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.rewrites.system_text import rewrite_system_text

EVERY = frozenset({"line_ends", "client_attribution", "clock_last"})


def rewritten(text: str, *rules: str) -> str:
    return rewrite_system_text(text, frozenset(rules) or EVERY).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("You help.\nCurrent date: 2026-11-30\nBe brief.", "You help.\nBe brief.\nCurrent date: 2026-11-30"),
        ("Today's date: 2026-11-30\nBe brief.\n", "Be brief.\nToday's date: 2026-11-30\n"),
        ("<env>\nToday's date: 2026-11-30\nOS: linux\n</env>\n",
         "<env>\nOS: linux\n</env>\nToday's date: 2026-11-30\n"),
        ("Be brief.\nCurrent time: 12:30:01", "Be brief.\nCurrent time: 12:30:01"),
        ("Current date: 2026-11-30", "Current date: 2026-11-30"),
        ("Current date: 2026-11-30\nBe brief.\nCurrent time: 12:30:01\n\n",
         "Be brief.\nCurrent time: 12:30:01\n\nCurrent date: 2026-11-30\n"),
    ],
)  # fmt: skip
def test_a_line_with_a_clock_moves_behind_the_rest(text, expected):
    """What is left is a prefix of tomorrow's prompt as well; a clock that is last already stays."""
    assert rewritten(text, "clock_last") == expected


@pytest.mark.parametrize(
    "text",
    [
        "The war ended on 1945-05-08.\nBe brief.",
        "You help. Today is 2026-11-30. Be brief.\nNever lie.",
        "Example: `Current date: 2026-11-30`\nBe brief.",
    ],
)
def test_other_dates_and_sentences_stay(text):
    """Only a line that is all about the time moves, and only where a cue says that it is the time of the request."""
    assert rewritten(text, "clock_last") == text


def test_a_clients_line_about_itself_goes():
    """As coding agents write one with a new value in each request."""
    text = "x-anthropic-billing-header: cc_version=2.1; cch=00000;\nYou are an agent.\n"
    assert rewritten(text, "client_attribution") == "You are an agent.\n"


def test_line_ends_become_line_feeds():
    """CRLF and CR; nothing else of the layout."""
    assert rewritten("a\r\nb\rc  \n\n\n", "line_ends") == "a\nb\nc  \n\n\n"


def test_edits_are_told_where_they_stand_in_the_original():
    """Positions are code points of the text that came."""
    text = "Grüße\r\nCurrent date: 2026-11-30\r\nBe brief."
    spans = rewrite_system_text(text, EVERY).spans()
    assert {text[span.start : span.end] for span in spans if span.rule == "clock_last"} == {
        "Current date: 2026-11-30\r\n", ""
    }  # fmt: skip


@given(st.lists(st.sampled_from(["Be brief.", "Current date: 2026-11-30", "", "Now: 12:30", "x\r"]), max_size=8))
def test_moving_loses_no_line_and_twice_is_once(lines):
    """The lines are those that came, in another order at most; a second pass finds nothing to do."""
    text = "\n".join(lines)
    once = rewritten(text, "clock_last")
    assert sorted(filter(None, once.split("\n"))) == sorted(filter(None, text.split("\n")))
    assert rewritten(once, "clock_last") == once
