"""Volatile values under a label: request ids, scratch paths, counters, a client's header line, a template's date."""

from __future__ import annotations

import re

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

_TOKEN_LEFT = re.compile(r"[\w.:+/=-]*\Z")
_ID_LABEL = re.compile(
    r"""(?:(?P<strong>(?:x[-_ ])?(?:\w{2,12}[-_ ])?
            (?:request|req|trace|span|session|sess|conversation|correlation|chat|thread|run|invocation|turn|message|msg
              |interaction|transaction|operation|call|execution|instance)[-_ ]?(?:id|uuid|guid|identifier|token|key)
            |traceparent|tracestate|nonce|cache[-_ ]?buster|request[-_ ]?nonce|idempotency[-_ ]?key
            |(?:trace|request|session|correlation|conversation)(?:[-_ ]id)?\s?\((?:uuid|ulid|id)\))
        |(?P<weak>trace|request|req|session|correlation|conversation|run|sid|rid|uuid|invocation|cid))
        ["'`*_]{0,3}\s?(?:[:：=#]|\bis\b)\s?["'`*_<]{0,3}(?:(?:Root|root|urn:uuid|id)[=:])?\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_ID_LOCAL = re.compile(
    r"(?:请求|会话|追踪|跟踪|請求|會話|追蹤|リクエスト|セッション|トレース|요청|세션|추적|запроса|сессии|трассировки"
    r"|anfrage|sitzungs|requête|solicitud|sesión|requisição|sessão|richiesta|sessione)[-_ ]?(?:id|ID|Id|号|编号|編號)?"
    r"\s?[:：=]\s?[\"'`]?\Z",
    re.IGNORECASE,
)
_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z", re.IGNORECASE)
_PREFIX = re.compile(r"[A-Za-z]{1,12}[_-](?=[0-9A-Za-z_-]{8})")
_VALUE = re.compile(r"[0-9A-Za-z_-]+(?:[.:][0-9A-Za-z_-]+)*=*(?:[;,][A-Z][a-z]+=[0-9A-Za-z_-]+)*")
_STEPS = re.compile(r"[0-9](?=[A-Za-z])|[A-Za-z](?=[0-9])|[a-z](?=[A-Z])")
_WORDY = re.compile(r"[A-Za-z]{4,}")

_PATH = re.compile(r"""(?:[A-Za-z]:|~|\$\w+|\.{0,2})?(?:[\\/][^\s"'`<>|,;:)(\]\\/]+)+\Z""")
_SCRATCH = re.compile(
    r"[\\/](?:tmp|temp|scratch|scratchpad|sessions?|sandbox(?:es)?|workdirs?|runs?|var[\\/]folders|jobs?|\.?cache|threads?"
    r"|conversations?)(?:[\\/]|[-_.])",
    re.IGNORECASE,
)
_COMPONENT = re.compile(r"[^\\/\s\"'`<>|,;:)(\]]+")

_COUNTER_LABEL = re.compile(
    r"""(?:^|(?<=[.!?;|(\[{<>\n,]))[\s*_#\-•"'`]*
    (?:the\s|current\s|your\s|total\s)*
    (?:(?:context(?:\s?window)?|tokens?|budget|cost|credits?|turns?|steps?|messages?|requests?|quota|usage|spend|time|calls?
       |iterations?)(?:\s(?:window|token|budget|tokens|count))?[\s_-](?:used|left|remaining|usage|spent|so\sfar|consumed|available)
     |(?:remaining|used|consumed|available|spent|left)[\s_-](?:context(?:\swindow)?|tokens?|budget|cost|credits?|turns?|steps?
       |messages?|requests?|quota|calls?|iterations?)(?:\s(?:budget|window|tokens))?)
    ["'`*_]{0,3}\s?(?:[:：=]|\bis\b)\s?["'`*_]{0,3}[~≈]?\s?[$€£¥]?\s?\Z""",
    re.VERBOSE | re.IGNORECASE,
)
_AMOUNT = re.compile(r"\d[\d,_ ]*(?:\.\d+)?[kKmM]?\b")
_PERCENT = re.compile(r"[^\n]{0,40}?\(\s?(?P<percent>\d{1,3}(?:\.\d+)?)\s?%")

_CUTTING_DATE = re.compile(r"^Cutting Knowledge Date: [^\n]{4,24}\nToday Date: ", re.MULTILINE)
TEMPLATE_HEAD = 512
"""A Llama template writes its date this near the start of the prompt, in code points."""


def attribution_lines(text: str) -> list[Edit]:
    """Header lines a client wrote about itself, with their line ends."""
    if "x-" not in text and "X-" not in text:
        return []
    return [Edit(*match.span(), "", "client_attribution") for match in ATTRIBUTION.finditer(text)]


def find_id(text: str, hit: int) -> Edit | None:
    """The id that `hit` (a digit in it) belongs to, when a label for ids of requests stands right before it."""
    start = _TOKEN_LEFT.search(text, max(0, hit - MAX_VALUE), hit).start()  # type: ignore[union-attr]  # matches nothing too
    start = _after_label(text, start, hit)
    value = _VALUE.match(text, start)
    if value is None or value.end() <= hit or len(value[0]) > MAX_VALUE:
        return None
    head = max(context.line_start(text, start), start - MAX_LABEL)
    label = _ID_LABEL.search(text, head, start) or _ID_LOCAL.search(text, head, start)
    if label is None:
        return None
    strong = label.re is _ID_LOCAL or label["strong"] is not None
    if not (is_random(value[0]) or (strong and _is_serial(value[0]))):
        return None
    at, last = label.start(), value.end()
    if not context.at_boundary(text, at) or context.in_example(text, at, last) or not _outside_quotes(text, at):
        return None
    return Edit(start, last, "{id}", "request_id")


def _after_label(text: str, start: int, hit: int) -> int:
    """`trace:01K9…` is one token: its value starts behind the last colon or equals sign that leaves a label."""
    for mark in ("=", ":"):
        cut = text.rfind(mark, start, hit)
        if cut >= 0 and text[cut + 1 : hit + 1].isalnum() | (cut + 1 == hit) | ("-" in text[cut + 1 : hit]) | (
            "_" in text[cut + 1 : hit]
        ):
            return cut + 1
    return start


def _outside_quotes(text: str, at: int) -> bool:
    """A quoted key of JSON is not a quotation."""
    return not context.in_quotes(text, at - 1 if at and text[at - 1] in "\"'`" else at)


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
    """A number or dated serial that stands right under `request id` and the like."""
    return len(value) >= 6 and sum(map(str.isdigit, value)) * 2 >= len(value)


def find_path_part(text: str, hit: int) -> Edit | None:
    """The random part of a scratch path that `hit` (a digit in it) belongs to."""
    path = _PATH.search(text, context.line_start(text, hit), hit + 1)
    if path is None:
        return None
    last = max(text.rfind("/", 0, hit), text.rfind("\\", 0, hit)) + 1
    component = _COMPONENT.match(text, last)
    scratch = _SCRATCH.search(text, path.start(), last + 1) or _SCRATCH.match(text, last - 1)
    if component is None or component.end() <= hit or scratch is None:
        return None
    if context.in_example(text, path.start(), component.end()):
        return None
    start, end = _random_within(component)
    return Edit(start, end, "{random}", "session_path") if start <= hit < end else None


def _random_within(component: re.Match[str]) -> tuple[int, int]:
    """The span of what is random in a path's component: all of it, or what follows a name and a dash."""
    start, name = component.start(), component[0].rstrip(".")
    if is_random(name):
        return start, start + len(name)
    for mark in ("-", "_", "."):
        head, _, rest = name.partition(mark)
        if head and (is_random(rest) or _is_short_random(rest)):
            return start + len(head) + 1, start + len(name)
    stem = re.match(r"tmp|temp", name)
    if stem and _is_short_random(name[stem.end() :]):
        return start + stem.end(), start + len(name)
    return start, start


def _is_short_random(value: str) -> bool:
    """What mkdtemp and mktemp append: six characters or more, mixed in a way that no name or version is."""
    return re.fullmatch(r"[0-9A-Za-z_]{6,16}", value) is not None and len(_STEPS.findall(value)) >= 2


def find_counter(text: str, hit: int) -> list[Edit]:
    """A running amount under a label that says used or left, and the percentage behind it; a total is kept."""
    head = max(context.line_start(text, hit), hit - MAX_LABEL)
    label = _COUNTER_LABEL.search(text, head, hit)
    amount = _AMOUNT.match(text, hit)
    if label is None or amount is None or (context.in_quotes(text, label.end()) and '"' not in label[0]):
        return []
    if context.in_example(text, label.end(), amount.end()):
        return []
    end = hit + len(amount[0].rstrip(" ,"))
    edits = [Edit(hit, end, "{count}", "counters")]
    percent = _PERCENT.match(text, end)
    return [*edits, Edit(*percent.span("percent"), "{count}", "counters")] if percent else edits


def template_date(text: str) -> list[Edit]:
    """The `Today Date:` that a Llama template writes below its knowledge cutoff, near the start of a prompt."""
    head = _CUTTING_DATE.search(text, 0, TEMPLATE_HEAD)
    run = parse_clock(text, head.end()) if head else None
    return [Edit(head.end(), run.end, "{when}", "template_date")] if head and run and run.has_full_date else []
