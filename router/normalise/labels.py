"""Volatile values under a label: request ids, scratch paths, counters, a client's header line, a template's date."""

# ruff: noqa: SIM905

from __future__ import annotations

import re
from typing import NamedTuple

from router.normalise import context
from router.normalise.clock_run import parse_clock
from router.normalise.edits import Edit

MAX_LABEL = 96
"""How far before a value its label may start, in code points."""
MAX_VALUE = 128

ATTRIBUTION = re.compile(
    r"^(?:x-[a-z0-9]+(?:-[a-z0-9]+)*-(?:billing|attribution|client|telemetry)(?:-[a-z]+)*:"
    r"|x-(?:billing|attribution|client|telemetry)(?:-[a-z]+)*:)[^\n]*(?:\n|\Z)",
    re.IGNORECASE | re.MULTILINE,
)
"""A header line that a client writes about itself into the system text, with its line end."""

ATTRIBUTION_HEAD = 4096
"""The first such line stands this near the start of the text, in code points."""

_VALUE_LEFT = re.compile(r"[\w.+/-]*")
_SEPARATOR_LEFT = re.compile(
    r"""(?:[:=](?:tooR|toor|diuu:nru|di))?["'`*_<]{0,3}\s?(?:[:：=#>]|si(?=\s))["'`*_]{0,3}\s?["'`*_]{0,3}"""
)
"""Reversed: what may stand between a label and its value."""

_ID_ENDS = tuple(
    """
    id uuid guid identifier traceparent nonce buster key trace request req session correlation conversation run thread
    chat sid rid invocation id) uuid) ulid) 号 编号 編號
    请求 会话 追踪 跟踪 請求 會話 追蹤 リクエスト セッション トレース 요청 세션 추적
    """.split()
)
_SUBJECT = (
    r"(?:request|req|trace|span|session|sess|conversation|correlation|chat|thread|run|invocation|turn|message|msg"
    r"|interaction|transaction|operation|execution|completion|chatcmpl"
    r"|anfrage|sitzungs|requête|solicitud|sesión|requisição|sessão|richiesta|sessione|запроса|сессии|трассировки"
    r"|请求|会话|追踪|跟踪|請求|會話|追蹤|リクエスト|セッション|トレース|요청|세션|추적)"
)
_ID_LABEL = re.compile(
    rf"""(?:(?:x|the|this|your|current|unique|internal|parent|root|client|server|http|amzn|aws|ksuid|ulid
           |[a-z]{{2,12}}(?=[-_]))
           [-_ ]){{0,3}}
        (?:(?P<strong>{_SUBJECT}[-_ ]?(?:id|uuid|guid|identifier|号|编号|編號)|traceparent|(?:{_SUBJECT}[-_ ])?nonce
             |cache[-_ ]?buster|idempotency[-_ ]?key|{_SUBJECT}(?:[-_ ]id)?\s?\((?:uuid|ulid|id)\))
        |(?P<weak>{_SUBJECT}|sid|rid)(?:\sid)?)\Z""",
    re.VERBOSE,
)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.IGNORECASE)
_PREFIX = re.compile(r"[A-Za-z]{1,12}[_-](?=[0-9A-Za-z_-]{8})")
_VALUE = re.compile(r"[0-9A-Za-z_-]+(?:[.:][0-9A-Za-z_-]+)*=*(?:[;,][A-Z][a-z]+=[0-9A-Za-z_-]+)*")
_STEPS = re.compile(r"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])|[a-z](?=[A-Z])")

_PATH_LEFT = re.compile(r"""[^\s"'`<>|,;:)(\]]*""")
_SCRATCH = re.compile(
    r"[\\/](?:(?:tmp|temp|scratch|scratchpad|sessions?|sandbox(?:es)?|workdirs?)[\\/\-_.]"
    r"|(?:runs?|var[\\/]folders|jobs?|\.?cache|threads?|conversations?)[\\/])",
    re.IGNORECASE,
)
_COMPONENT = re.compile(r"[^\\/\s\"'`<>|,;:)(\]]+")

_COUNTER_ENDS = tuple(
    "used left remaining usage spent far consumed available context window tokens token budget".split()
)
_COUNTER_ENDS += tuple("cost credits credit turns steps messages requests quota calls iterations".split())
_COUNTED = (
    r"(?:context(?:\swindow)?|tokens?|budget|cost|credits?|turns?|steps?|messages?|requests?|quota|usage|spend|time|calls?"
    r"|iterations?)(?:\s(?:window|tokens?|budget|count))?"
)
_RUNNING = r"(?:used|left|remaining|usage|spent|so\sfar|consumed|available)"
_COUNTER_LABEL = re.compile(
    rf"(?:(?:the|current|your|total)\s)*(?:{_COUNTED}[\s_-]{_RUNNING}|{_RUNNING}[\s_-]{_COUNTED})\Z"
)
_AMOUNT = re.compile(r"\d[\d,_ ]*(?:\.\d+)?[kKmM]?\b")
_PERCENT = re.compile(r"[^\n]{0,40}?\(\s?(?P<percent>\d{1,3}(?:\.\d+)?)\s?%")

_CUTTING_DATE = re.compile(r"^Cutting Knowledge Date: [^\n]{4,24}\nToday Date: ", re.MULTILINE)
TEMPLATE_HEAD = 512
"""A Llama template writes its date this near the start of the prompt, in code points."""


def attribution_lines(text: str) -> list[Edit]:
    """Header lines a client wrote about itself, with their line ends."""
    if text.find("x-", 0, ATTRIBUTION_HEAD) < 0 and text.find("X-", 0, ATTRIBUTION_HEAD) < 0:
        return []
    return [Edit(*match.span(), "", "client_attribution") for match in ATTRIBUTION.finditer(text)]


class _Label(NamedTuple):
    """The words before a separator, in lower case, and where they start."""

    text: str
    start: int


def _label(text: str, value: int, endings: tuple[str, ...]) -> _Label | None:
    """What stands on the line before the separator in front of `value`, if it ends in one of `endings`."""
    head = max(context.line_start(text, value), value - MAX_LABEL)
    separator = _SEPARATOR_LEFT.match(text[head:value][::-1])
    if separator is None:
        return None
    label = text[head : value - separator.end()].lower()
    return _Label(label, head) if label.endswith(endings) else None


def _stands_alone(text: str, start: int, end: int) -> bool:
    """At the start of a line, sentence or bracket; in no quotation (a quoted key of JSON is none), example or code."""
    if not context.at_boundary(text, start) or not context.is_quiet(text, start):
        return False
    unquoted = start - 1 if start and text[start - 1] in "\"'`" else start
    return not context.in_quotes(text, unquoted) and not context.in_example(text, start, end)


def value_start(text: str, hit: int) -> int:
    """Where the value that `hit` belongs to starts: letters, digits, dashes and dots before it are part of it."""
    left = _VALUE_LEFT.match(text[max(0, hit - MAX_VALUE) : hit][::-1])
    return hit - (left.end() if left else 0)


def has_separator(before: str) -> bool:
    """A quick look whether the text right before a value ends as a label does."""
    bare = before.rstrip(" \"'`*_<$€£¥~")
    return bare.endswith((":", "：", "=", "#", ">", " is"))


def find_id(text: str, hit: int, start: int) -> Edit | None:
    """The id from `start` that `hit` (a digit in it) belongs to, when a label for ids of requests stands before it."""
    label = _label(text, start, _ID_ENDS)
    value = _VALUE.match(text, start)
    if label is None or value is None or not hit < value.end() <= start + MAX_VALUE:
        return None
    found = _ID_LABEL.search(label.text)
    if found is None or not (is_random(value[0]) or (found["strong"] and _is_serial(value[0]))):
        return None
    if not _stands_alone(text, label.start + found.start(), value.end()):
        return None
    return Edit(start, value.end(), "{id}", "request_id")


def is_random(value: str) -> bool:
    """Whether a value looks drawn and not named: a UUID, ULID, KSUID, nanoid, or hex of at least eight digits."""
    if _UUID.match(value):
        return True
    body = value[_PREFIX.match(value).end() :] if _PREFIX.match(value) else value  # type: ignore[union-attr]
    digits = sum(map(str.isdigit, body))
    if len(body) < 8 or not digits or (digits == len(body)):
        return False
    if re.fullmatch(r"[0-9a-f]+|[0-9A-F]+|(?:[0-9a-f]+-)+[0-9a-f]+", body):
        return digits >= 2
    return len(body) >= 10 and len(_STEPS.findall(body)) >= max(4, len(body) // 5) and not _is_dated(body)


def _is_dated(value: str) -> bool:
    return re.match(r"(?:19|20)\d\d-\d\d-\d\d", value) is not None


def _is_serial(value: str) -> bool:
    """What may stand right under `request id` and the like: anything with a digit in it that is no single number."""
    return len(value) >= 4 and any(map(str.isdigit, value))


def find_path_part(text: str, hit: int) -> Edit | None:
    """The random part of a scratch path that `hit` (a digit in it) belongs to."""
    left = _PATH_LEFT.match(text[context.line_start(text, hit) : hit][::-1])
    first = hit - (left.end() if left else 0)
    last = max(text.rfind("/", first, hit), text.rfind("\\", first, hit)) + 1
    component = _COMPONENT.match(text, last)
    scratch = _SCRATCH.search(text, first, last + 1) or _SCRATCH.match(text, last - 1)
    if not last or component is None or component.end() <= hit or scratch is None:
        return None
    start, end = _random_within(component)
    if not start <= hit < end or context.in_example(text, first, component.end()):
        return None
    return Edit(start, end, "{random}", "session_path")


def _random_within(component: re.Match[str]) -> tuple[int, int]:
    """The span of what is random in a path's component: all of it, or what follows a name and a dash."""
    start, name = component.start(), component[0].rstrip(".")
    if _UUID.match(name):
        return start, start + len(name)
    for mark in ("-", "_", "."):
        head, _, rest = name.partition(mark)
        if head and not _STEPS.search(head) and (is_random(rest) or _is_short_random(rest)):
            return start + len(head) + 1, start + len(name)
    stem = re.match(r"tmp|temp", name)
    if stem and _is_short_random(name[stem.end() :]):
        return start + stem.end(), start + len(name)
    return start, start + (len(name) if is_random(name) or _is_short_random(name) else 0)


def _is_short_random(value: str) -> bool:
    """What mkdtemp and mktemp append: six characters or more, mixed in a way that no name or version is."""
    if value.isdigit():
        return len(value) >= 9
    return re.fullmatch(r"[0-9A-Za-z_]{6,16}", value) is not None and len(_STEPS.findall(value)) >= 2


def find_counter(text: str, hit: int) -> list[Edit]:
    """A running amount under a label that says used or left, and the percentage behind it; a total is kept."""
    value = hit - 1 if text[hit - 1 : hit] in {"$", "€", "£", "¥", "~"} else hit
    label = _label(text, value, _COUNTER_ENDS)
    found = _COUNTER_LABEL.search(label.text) if label else None
    amount = _AMOUNT.match(text, hit)
    if label is None or found is None or amount is None:
        return []
    end = hit + len(amount[0].rstrip(" ,"))
    if not _stands_alone(text, label.start + found.start(), end):
        return []
    edits = [Edit(hit, end, "{count}", "counters")]
    percent = _PERCENT.match(text, end)
    return [*edits, Edit(*percent.span("percent"), "{count}", "counters")] if percent else edits


def template_date(text: str) -> list[Edit]:
    """The `Today Date:` that a Llama template writes below its knowledge cutoff, near the start of a prompt."""
    head = _CUTTING_DATE.search(text, 0, TEMPLATE_HEAD)
    run = parse_clock(text, head.end()) if head else None
    return [Edit(head.end(), run.end, "{when}", "template_date")] if head and run and run.has_full_date else []
