"""Where in a system text something stands: at the start of a sentence, in quotes, in an example, in code."""

# ruff: noqa: SIM905

from __future__ import annotations

import re

from router.normalise.cue_words import ASIAN_VETO, VETO

MAX_LINE = 400
"""How far back a line or a paragraph is looked at, in code points."""

_MARKUP = " \t\u00a0*_`#•·-–—\"'“‘>＞"
_SENTENCE_ENDS = ".!?;…。！？；।|([{<【（「,，、"
_INTRODUCTIONS = frozenset("note nb remember fyi please and also that hello hi 注意 참고".split())
_LABELS = _INTRODUCTIONS | frozenset(
    """
    info information context env environment system reminder reference metadata meta details status header notice
    hinweis nota contexte contexto knowledge general runtime 信息 背景 环境 提示 备注 説明 情報 정보
    """.split()
)
_WORD = re.compile(r"[^\W\d_]+(?:\.[^\W\d_]+)?")
_EXAMPLE_LINE = re.compile(
    r"""[\s>*_\-•\d.)(\[#"'“]*(?:(?:(?:few[-\s]?shot|for|counter|good|bad|another|an?)\s)*
    (?:examples?|e\.g\.|instance|samples?|beispiele?|z\.\s?b\.|exemples?|ejemplos?|exemplos?|esemp[io]+|voorbeeld(?:en)?
       |przykład\w*|пример\w*|приклад\w*|örnek\w*|示例|例子|例如|例\d?|예시?|たとえば)\b
    |(?:input|output|question|answer|q|a|user|human|assistant|ai|customer|client\ says|tool|logs?)
       \s?\d*\s?[:：>])""",
    re.VERBOSE | re.IGNORECASE,
)
_EXAMPLE_ABOVE = re.compile(
    r"[\s>*_\-#\d.)(\[]*(?:few[-\s]?shot|(?:for |an? )?(?:examples?|samples?|instance)\b|e\.g\."
    r"|(?:input|q|question)\s?\d*:|beispiele?\b|exemples?\b|ejemplos?\b|exemplos?\b|пример|示例|例子|例如|예시|例[:：])",
    re.IGNORECASE,
)
_ENVIRONMENT = re.compile(
    r"^[\s#<*\[{\"']*(?:env|environment|(?:system|runtime|session|environment)[ _-]?info\w*"
    r"|runtime|(?:current|runtime)[ _-]context)\b"
    r"|^[\s*_-]*(?:current |today'?s? )?(?:date|datum|fecha|data)[*_]*\s?:[^\n]*\d[^\n]*\Z",
    re.IGNORECASE | re.MULTILINE,
)
_MAPPING = re.compile(r"[^\n]{0,80}?(?:(?<!-)->|=>|→|⇒|⟶)")
_STORY_AFTER = re.compile(
    r"[^\n.!?]{0,60}\b(?:exercise|scenario|story|fiction|novel|game|simulation|role[- ]?play|always|forever)\b",
    re.IGNORECASE,
)


def line_start(text: str, position: int) -> int:
    """Where the line of `position` starts, at most `MAX_LINE` code points back."""
    return max(text.rfind("\n", 0, position) + 1, position - MAX_LINE)


def at_boundary(text: str, position: int) -> bool:
    """Whether a line, a sentence or a bracket starts at `position`, perhaps after a word like `Note:`."""
    prefix = text[line_start(text, position) : position].rstrip(_MARKUP)
    if not prefix or prefix[-1] in _SENTENCE_ENDS:
        return True
    bare = prefix.rstrip(":：")
    word = bare.split()[-1:] or [""]
    return word[0].strip("[(*_").lower() in (_INTRODUCTIONS if bare == prefix else _LABELS)


def is_quiet(text: str, position: int) -> bool:
    """Whether no word before `position`, in the same sentence, makes the clock a matter of the task."""
    prefix = text[line_start(text, position) : position]
    cut = max(prefix.rfind(end) for end in (". ", "! ", "? ", "; ", "。", "！", "？"))
    sentence = prefix[cut + 1 :].lower()
    return VETO.isdisjoint(_WORD.findall(sentence)) and not any(word in sentence for word in ASIAN_VETO)


def in_quotes(text: str, start: int) -> bool:
    """Whether a quotation that was opened on this line before `start` is still open there."""
    prefix = text[line_start(text, start) : start]
    if prefix.count('"') % 2 or prefix.count("`") % 2 or prefix.count("“") > prefix.count("”"):
        return True
    if any(prefix.count(left) > prefix.count(right) for left, right in ("«»", "「」", "『』", "„“", "‹›")):
        return True
    opened = len(re.findall(r"(?:^|[\s(\[{:=,])['‘](?=\S)", prefix))
    return opened > len(re.findall(r"\S['’](?=$|[\s)\]},.;:])", prefix)) or prefix.endswith(("'", "‘"))


def in_example(text: str, start: int, end: int) -> bool:
    """Whether `text[start:end]` belongs to an example, a few-shot sample, a quotation, or code."""
    first = line_start(text, start)
    if _EXAMPLE_LINE.match(text, first, start) or text[first:start].lstrip().startswith(("> ", ">>")):
        return True
    if _MAPPING.match(text, end) or _STORY_AFTER.match(text, end):
        return True
    if text.count("```", 0, start) % 2 or _open_tag(text, start):
        return True
    return _under_example(text, first)


def _open_tag(text: str, start: int) -> bool:
    opened = max(text.rfind("<example", 0, start), text.rfind("<sample", 0, start))
    return opened > max(text.rfind("</example", 0, start), text.rfind("</sample", 0, start))


def _under_example(text: str, first: int) -> bool:
    """Whether a line above, in the same paragraph, or the section's heading, announces an example."""
    paragraph = max(text.rfind("\n\n", 0, first) + 2, first - MAX_LINE, 0)
    lines = text[paragraph:first].split("\n")[-7:]
    heading = text.rfind("\n#", max(0, first - 4 * MAX_LINE), first) + 1
    if heading or text.startswith("#"):
        lines.append(text[heading : text.find("\n", heading)])
    return any(_EXAMPLE_ABOVE.match(line) for line in lines)


def in_environment(text: str, start: int) -> bool:
    """Whether a tag, heading or label above, or a date line, says that these are the surroundings of the request."""
    first = line_start(text, start)
    above = text[max(text.rfind("\n\n", 0, first) + 1, first - MAX_LINE, 0) : first]
    return _ENVIRONMENT.search(above) is not None


def is_first_line(text: str, position: int) -> bool:
    """Whether nothing but white space stands above the line of `position`."""
    return not text[: text.rfind("\n", 0, position) + 1].strip() if position < 4096 else False
