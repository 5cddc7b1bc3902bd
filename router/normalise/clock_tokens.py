"""One token of a written clock: numbers in the shapes of dates and times, units, zones, words."""

from __future__ import annotations

import re

LETTERS = (
    r"(?:[^\W\d_]|[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f"
    r"\u0900-\u0965\u0970-\u09e5\u09f0-\u0a65\u0a70-\u0dff\u0e01-\u0e3a\u0e40-\u0e4e\u200c])"
)
"""A letter of any script, or a vowel sign, which Python's \\w leaves out."""

CJK_NUMBER = "〇零○一二三四五六七八九十廿卅元"
SPACES = " \t\u00a0\u2009\u202f\u200e\u200f"
_MARK = "[\u200e\u200f]?"

TOKEN = re.compile(
    rf"""
      (?P<compact>(?:19|20)\d\d[01]\d[0-3]\d(?:[T_ -]?[0-2]\d[0-5]\d[0-5]\d(?:[.,]\d+)?|T[0-2]\d[0-5]\d)?(?!\d))
    | (?P<epoch>[1-4]\d{{9}}(?:\d{{3}}|\d{{6}}|\d{{9}})?(?:\.\d+)?(?!\d))
    | (?P<week>\d{{4}}-?W\d\d(?:-?\d)?(?!\d))
    | (?P<named>(?:\d{{1,2}}[-/.]{LETTERS}{{3,12}}\.?[-/.]\d{{2,4}}|\d{{4}}[-/.]{LETTERS}{{3,12}}[-/.]\d{{1,2}})(?!\d))
    | (?P<date>(?P<first>\d{{1,4}}){_MARK}(?P<by>\.[ ]|[-/.]){_MARK}(?P<second>\d{{1,2}}){_MARK}(?P=by){_MARK}
        (?P<third>\d{{1,4}})(?!\d))
    | (?P<ordinal>\d{{4}}-[0-3]\d\d(?!\d))
    | (?P<time>[Tt:_]?\d{{1,2}}[:：]\d\d(?:[:：]\d\d)?(?:[.,]\d{{1,9}})?(?!\d))
    | (?P<hours>\d{{1,2}}\s?(?:h|H|Uhr|uhr|uur|ч|giờ|год|hod)(?!{LETTERS})
        (?:\.?\s?\d\d(?!\d|[.:/-]\d)(?:\s?(?:min|m|phút|мин|хв)(?!{LETTERS}))?
           (?:\.?\s?\d\d\s?(?:s|sec|giây|сек|с)(?!{LETTERS}))?)?)
    | (?P<half>\d{{1,2}}(?:\.\d\d)?\s?[AaPp]\.?\s?[Mm]\b)
    | (?P<dotted>\d{{1,2}}\.\d\d(?!\d|\.\d))
    | (?P<unit>(?P<number_of>\d{{1,4}}|[{CJK_NUMBER}]{{1,6}})\s?(?P<unit_name>[年月日号號时時点點分秒년월일시분초]))
    | (?P<tagged>(?i:(?P<tag>ngày|tháng|năm))\s(?P<tag_number>\d{{1,4}})(?![\d:]|[/.-]\d))
    | (?P<zone>[Zz](?!\w)|(?:UTC|GMT)\s?[+\-−±]\s?\d{{1,2}}(?::?[0-5]\d)?(?!\d)|[+\-−]\d\d:?[0-5]\d(?!\d)
        |[A-Z][A-Za-z_]+/[A-Z][A-Za-z_-]+(?:/[A-Z][A-Za-z_-]+)?
        |(?:[A-Z][a-z]+[ ]){{1,3}}(?:Standard|Daylight|Summer|Universal|Mean)[ ]Time\b
        |(?:Coordinated[ ]Universal|Greenwich[ ]Mean|Pacific|Eastern|Central|Mountain)[ ]Time\b
        |北京时间|北京時間|台北時間|日本標準時|日本時間|한국[ ]?표준시)
    | (?P<monotonic>m=[+-]\d+\.\d+)
    | (?P<number>['’]?\d{{1,4}}(?:(?:st|nd|rd|th|er|re|º|ª|°|-?го)(?!{LETTERS}))?(?![\d]))
    | (?P<asian>(?P<asian_day>(?:星期|礼拜|禮拜)[一二三四五六日天]|[周週][一二三四五六日](?![{CJK_NUMBER}])
          |[日月火水木金土]曜日?|[월화수목금토일]요일|(?<=[(（])[日月火水木金土一二三四五六월화수목금토일](?=[)）]))
        |(?P<asian_period>上午|下午|中午|凌晨|早上|晚上|傍晚|午前|午後|오전|오후|새벽|아침|저녁|밤)
        |(?P<asian_era>民國|民国|令和|平成|昭和|西元|西暦|公元|佛曆|서기)|(?P<asian_half>[半整正](?=[，。、,.\s)）で现現]|$)))
    | (?P<vietnamese_day>(?i:thứ\s(?:hai|ba|tư|năm|sáu|bảy)|chủ\snhật))
    | (?P<word>{LETTERS}+(?:['’.״"-]{LETTERS}+){{0,2}})
    """,
    re.VERBOSE,
)

BETWEEN = re.compile(rf"\.?(?:[{SPACES}]|[,،、;，·•|()（）\[\]@])*(?:[-–—/]+(?=[{SPACES}])[{SPACES}]+)?")
"""What may stand between two tokens: white space, commas, brackets, one free-standing dash."""
