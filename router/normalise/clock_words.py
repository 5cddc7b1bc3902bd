"""The words inside a written clock, in many languages: day periods, eras, zones, and the small words between."""

# ruff: noqa: SIM905

from __future__ import annotations

from router.normalise.names import MONTHS, WEEKDAYS

DAY_PERIODS = frozenset(
    """
    am pm a.m p.m noon midnight morning afternoon evening night vorm nachm vormittags nachmittags morgens mittags
    abends nachts matin soir midi après-midi mañana tarde noche madrugada manhã noite mattina pomeriggio sera notte
    ochtends middags avonds rano popołudniu dopoledne odpoledne dop odp утра дня вечера ночи öö ös sabah akşam
    öğleden sáng chiều tối trưa đêm sa ch pagi siang sore malam π.μ μ.μ πμ μμ לפנה״צ אחה״צ לפנה"צ אחה"צ בבוקר בערב ص
    م صباحا صباحًا مساء مساءً ظهرا ظهرًا ق.ظ ب.ظ صبح عصر शाम सुबह दोपहर रात पूर्वाह्न अपराह्न पूर्वान्ह पूर्वाह्ण
    ก่อนเที่ยง หลังเที่ยง
    """.split()
)
"""Words that say which half of the day an hour is in."""

LINKS = frozenset(
    """
    unix epoch timestamp local iso is es est ist è é e y i at on of the and in day date time
    hours und it now jetzt сейчас son sono são
    hrs hour o'clock clock um der den dem am uhr
    kl klo klockan à
    a le
    la les et heures heure h de del d las los el hrs horas hora da do das às as o ao alle ore ora il gli dell om uur
    het den godz godzina o g r roku r. v ve hodin hod в г год года году ч час часов время о об р року рік година о
    годині ч. с. ora orele ora la saat saati tarihi tarih günü yılı lúc vào ngày giờ phút giây pukul jam hari
    tanggal tgl tahun στις του της και ώρα בשעה שעה ב ה ו יום الساعة ساعة و في سنة ه هـ ھ ق ش از روز سال ساعت को के
    की बजे समय दिनांक तारीख เวลา น ที่ วันที่ พ.ศ ค.ศ และ ปี เดือน m d gada gads jam va
    """.split()
)
"""Words that may stand between the parts of a clock: read over when a part follows, else left in the text."""

ERAS = frozenset(
    """
    ad ce bce bc be ah sh พ.ศ ค.ศ 民國 民国 令和 平成 昭和 西元 西暦 公元 佛曆 서기 단기
    """.split()
)
"""Words that name the count of years; after one, any year is plausible."""

ZONES = frozenset(
    """
    utc gmt est edt cst cdt mst mdt pst pdt akst akdt hst ast adt nst ndt brt art clt cet cest wet west eet eest bst
    ist msk sgt hkt jst kst pht ict wib wita wit pkt npt gst trt sast eat cat wat acst aest aedt awst nzst nzdt mez
    mesz мск dst
    """.split()
)
"""Short names of time zones."""

MAX_WORD = 24
"""Longer words are no part of a clock."""


def kind_of(word: str, follows: str) -> str | None:
    """What a lower-case word is inside a clock: a slot's name, `link`, or None; `follows` is the text after it."""
    if word in MONTHS:
        return "month" if word not in WEEKDAYS or not _date_like(follows) else "weekday"
    if word in WEEKDAYS and (len(word) > 2 or _closes(follows)):
        return "weekday"
    if word in DAY_PERIODS:
        return "period"
    if word in ERAS:
        return "era"
    if word in ZONES:
        return "zone"
    return "link" if word in LINKS else None


def _closes(follows: str) -> bool:
    """A weekday of two letters counts only where punctuation or a number comes next: `So` alone is an English word."""
    rest = follows.lstrip()
    return follows[:1] in {".", ",", ")"} or rest[:1].isdigit()


def _date_like(follows: str) -> bool:
    """Whether a whole date comes next, so that `mar` is martes or mardi and not March."""
    rest = follows.lstrip(" .,")
    return rest[:1].isdigit() and rest[1:].lstrip("0123456789. -/de").strip()[:1].isalpha()
