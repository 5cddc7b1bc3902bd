"""Which numbers can be a year, a date or a time on a clock of today."""

from __future__ import annotations

from router.normalise.clock_tokens import CJK_NUMBER

_YEARS = (range(2010, 2100), range(1389, 1479), range(1431, 1525), range(2553, 2643), range(5770, 5861))
"""Years a clock can show: Gregorian, Solar Hijri, Hijri, Buddhist, Hebrew."""


def plausible_year(year: int) -> bool:
    """Whether a clock of today could show this year, in any calendar."""
    return any(year in years for years in _YEARS)


def plausible_numeral(number: str) -> bool:
    """The same for a year in digits or in Chinese numerals, one for each digit."""
    if number[0] not in CJK_NUMBER:
        return plausible_year(int(number))
    digits = "".join(str("〇一二三四五六七八九".find(n.replace("零", "〇").replace("○", "〇"))) for n in number)
    return digits.isdigit() and plausible_year(int(digits))


def is_date(first: str, second: str, third: str, by: str) -> bool:
    """Whether three numbers with `by` between them are a date: year first or last, day and month in either order."""
    if len(first) == 4:
        return plausible_year(int(first)) and 1 <= int(second) <= 12 and 1 <= int(third) <= 31
    small = 1 <= int(first) <= 31 and 1 <= int(second) <= 31 and min(int(first), int(second)) <= 12
    if len(third) == 4:
        return small and plausible_year(int(third))
    return small and len(third) == 2 and (by != "." or len(first) == len(second) == 2)


def is_time(hour: str, minute: str, second: str) -> bool:
    """Whether three numbers with dots between them can be hour, minute and second."""
    return int(hour) < 24 and len(minute) == 2 == len(second) and int(minute) < 60 and int(second) < 61
