"""The grammars of clocks and of their cues, one at a time."""

from __future__ import annotations

import pytest

from router.normalise.clock_run import parse_clock
from router.normalise.clocks import find_clock
from router.normalise.context import at_boundary, in_example, in_quotes, is_quiet
from tests.router.normalise_builders import BODY, folded_text

WHOLE = """
2025-11-03
2025-11-03T14:05:09.123456Z
2025-11-03 14:05:09 +0800 CST
20251103T140509
03.11.2025, 14:05
3/11/25
2025. 11. 3
2025-W45-1
2025-307
03-Nov-25 06:05:09 GMT
03/Nov/2025:14:05:09 +0800
1762149909.114
1762149909114
Mon Nov  3 14:05:09 2025
Monday, the 3rd of November, 2025 at 2:05 PM
lundi 3 novembre 2025 à 14 h 05
3 de noviembre de 2025, 14:05
Montag, der 3. November 2025 um 14:05
понедельник, 3 ноября 2025 г., 14:05:09
2025年11月3日(月) 14時05分09秒
民國114年11月3日 下午 02:05:09
令和七年十一月三日
2025년 11월 3일 월요일 오후 2:05
Thứ Hai, ngày 3 tháng 11 năm 2025, 14 giờ 05 phút
יום שני, 3 בנובמבר 2025, 14:05
٢٠٢٥/١١/٠٣ ١٤:٠٥:٠٩
วันจันทร์ที่ 3 พฤศจิกายน 2568 เวลา 14:05
3 November 2025 pukul 14.05.09 WIB
November 2025
14:05:09 UTC+8
14:05 UTC / 22:05 CST
""".strip().split("\n")

NONE_AT_ALL = """
12
3:2
14:75
27:05
2.1.100
10.0.14.5
10.0.14.5:8080
2025
6 June 1944
20 July 1969, 20:17
1944-06-06
99999999
12345678901
items
Monday's child
09:00-17:00
09:00 to 17:00
14:05:09x
2025-11-03_final
8080
""".strip().split("\n")


@pytest.mark.parametrize("clock", WHOLE)
def test_a_clock_is_read_to_its_end_and_no_further(clock: str) -> None:
    """The run ends where the clock ends, whatever words or numbers follow."""
    for rest in ("", " You are 12 helpers.", "\n12 items", "; 5 more"):
        run = parse_clock(clock.strip() + rest, 0)
        assert run is not None
        assert run.end == len(clock.strip())


@pytest.mark.parametrize("text", NONE_AT_ALL)
def test_what_is_no_clock_of_today_is_none(text: str) -> None:
    """Ratios, versions, hosts, ports, ranges, history."""
    assert parse_clock(text, 0) is None


def test_a_clock_tells_what_it_shows() -> None:
    """Some cues want a date, some a full one."""
    date, time, both = (parse_clock(text, 0) for text in ("3 May", "14:05", "2025-05-03 14:05"))
    assert date is not None
    assert time is not None
    assert both is not None
    assert (date.has_date, date.has_full_date, date.has_time) == (True, False, False)
    assert (time.has_date, time.has_full_date, time.has_time) == (False, False, True)
    assert (both.has_date, both.has_full_date, both.has_time) == (True, True, True)


def test_a_clock_is_found_from_any_of_its_digits() -> None:
    """The scan stops at a number; the clock may start before it."""
    text = "Current time: Monday, 3 November 2025, 14:05"
    found = {find_clock(text, position) for position, letter in enumerate(text) if letter.isdigit()}
    assert len(found) == 1
    (clock,) = found
    assert clock is not None
    assert text[clock.start : clock.end] == "Monday, 3 November 2025, 14:05"


@pytest.mark.parametrize(
    "line",
    [
        "Current time in New York: {}",
        "Current time (UTC, 24-hour clock): {}",
        "**Current time:** {}",
        "- current_time = `{}`",
        "[system] The current time is {}",
        "You are ChatBot, and the current time is {}",
        "# Current time\n\n{}",
        "# Current time\n- {}",
        '{{"context": {{"current_time": "{}"}}}}',
        "<now>{}</now>",
        "Knowledge cutoff: 2024-06. Current time: {}",
    ],
)
def test_a_cue_may_be_joined_to_its_clock_in_many_ways(line: str) -> None:
    """Markup, notes, places, headings, JSON."""
    assert folded_text(line.format("2025-11-03 14:05:09")) == line.format("{when}")


@pytest.mark.parametrize(
    "line",
    [
        "The score is now {}",
        "Maintenance starts today, {}",
        "Current time limit: {}",
        "The current date format is {}",
        "If the current time is {}, greet.",
        "Assume that today is {}.",
        "'It is now {}' -> morning",
        "It is now {} -> morning",
        "User: it is now {}",
        "> It is now {}",
        "Example: it is now {}",
        "For example:\nIt is now {}",
        "# Examples\nIt is now {}",
        "```\nnow = {}\n```",
        "<example>It is now {}</example>",
        "The current date is {} for this exercise.",
        "2025-11-03 INFO now={} level=info",
        '{{"ts": "{}", "level": "info"}}',
        "Last updated: {}",
        "Date of birth: {}",
        "今日の天気は{}",
        "例：当前时间：{}",
    ],
)
def test_a_clock_without_a_cue_of_its_own_is_left_alone(line: str) -> None:
    """What is quoted, assumed, exemplified, logged or measured is the matter of the prompt."""
    text = f"{BODY}\n" + line.format("2025-11-03 14:05:09")
    assert folded_text(text) == text


def test_a_date_line_folds_in_an_environment_block_and_not_in_a_letter() -> None:
    """`Date:` alone says nothing; where it stands does."""
    assert folded_text("# Environment\n- OS: linux\n- Date: 2025-11-03").endswith("Date: {when}")
    letter = "Dear Ana,\nDate: 2025-11-03\nPlease pay."
    assert folded_text(letter) == letter


@pytest.mark.parametrize(
    ("text", "expected"),
    [("now", True), ("A. now", True), ("- **now", True), ("Note: now", True), ("score now", False), ("a1 now", False)],
)
def test_a_boundary_is_a_start_of_line_sentence_or_bracket(text: str, expected: bool) -> None:
    """Perhaps behind a bullet, markup or a word of introduction."""
    assert at_boundary(text, text.index("now")) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('"now', True),
        ("'now", True),
        ("`a` now", False),
        ("“a now", True),
        ("“a” now", False),
        ("Today's now", False),
        ("「now", True),
    ],
)
def test_a_quotation_is_open_until_it_is_closed(text: str, expected: bool) -> None:
    """An apostrophe opens none."""
    assert in_quotes(text, text.index("now")) is expected


def test_a_word_of_the_same_sentence_only_makes_a_clock_a_matter_of_the_task() -> None:
    """`Assume` in the sentence before is about something else."""
    assert is_quiet("Assume nothing. Now", 16)
    assert not is_quiet("Assume now", 7)


def test_a_fence_that_was_closed_is_no_code() -> None:
    """Only an odd number of fences leaves code open."""
    assert not in_example("```\ncode\n```\nNow: 14:05", 17, 22)
    assert in_example("```\nNow: 14:05", 4, 14)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("<current_date>November 3, 2025</current_date>", "<current_date>December 14, 2025</current_date>"),
        ('{"current_date":"November 3, 2025"}', '{"current_date":"December 14, 2025"}'),
        ("Current date: Nov. 3, 2025", "Current date: Dec. 14, 2025"),
        ("The current year is 2025. Answer briefly.", "The current year is 2026. Answer briefly."),
        ("Wir haben den 3. November 2025.", "Wir haben den 14. Dezember 2025."),
        ("Wir schreiben den 3. November 2025.", "Wir schreiben den 14. Dezember 2025."),
        ("Son las 14:05 del lunes 3 de noviembre de 2025.", "Son las 9:15 del martes 4 de noviembre de 2025."),
        ("Oggi è il 3 novembre 2025 e sono le 14:05.", "Oggi è il 4 novembre 2025 e sono le 9:15."),
        (
            "Heute ist der 3. November 2025, und es ist 14:05 Uhr.",
            "Heute ist der 4. November 2025, und es ist 9:15 Uhr.",
        ),
        ("Today is November 3, 2025 and it is 14:05.", "Today is November 4, 2025 and it is 9:15."),
        ("Сегодня 3 ноября 2025 года, сейчас 14:05.", "Сегодня 4 ноября 2025 года, сейчас 9:15."),
    ],
)
def test_a_clock_behind_the_rules_of_the_house_still_folds(before: str, after: str):
    """Names of months behind a tag or a quote, years that end a sentence, the hour told after the day."""
    rules = f"{BODY}\n\n{{}}"
    assert folded_text(rules.format(before)) == folded_text(rules.format(after)) != rules.format(before)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The current year 2025. Chapter 5 is due.", "The current year 2025. Chapter 6 is due."),
        ("Today is November 3, 2025 and it is 20 days to go.", "Today is November 3, 2025 and it is 21 days to go."),
        (
            "Today is 3 November 2025 and the shop opens at 9:00.",
            "Today is 3 November 2025 and the shop opens at 8:00.",
        ),
        ("Chapter November 3, 2025 sold.", "Chapter November 4, 2025 sold."),
    ],
)
def test_what_only_stands_beside_a_clock_is_kept(one: str, other: str):
    """An hour joins the day it is told with; other numbers do not."""
    assert folded_text(one) != folded_text(other)
