"""The table of fold rules: what each one makes equal, where it may act, and what it may never touch."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import NamedTuple

FoldRules = frozenset[str]
"""Names of the rules that are on."""

_SYSTEM = "system and developer text; a completion prompt before its first user turn"
_TASK = "user, assistant or tool text; quotations, examples, code"


class Rule(NamedTuple):
    """One rule, in words for operators and for `homing explain`."""

    name: str
    acts_on: str
    never_touches: str
    sentence: str


RULES: tuple[Rule, ...] = (
    Rule("line_ends", _SYSTEM, "user, assistant or tool text", "CRLF, CR, NEL, U+2028 and U+2029 read as LF."),
    Rule("byte_order_mark", _SYSTEM, "marks within a line", "A byte order mark at the start of a line is dropped."),
    Rule("unicode_nfc", _SYSTEM, "look-alikes, widths, joiners (never NFKC)", "Canonically equal spellings are equal."),
    Rule("trailing_space", _SYSTEM, "indentation, runs of spaces", "Spaces and tabs at the end of a line are dropped."),
    Rule("blank_lines", _SYSTEM, "a single line end", "Runs of blank lines read as one; none at the start or the end."),
    Rule(
        "client_attribution", _SYSTEM, "lines without that header", "A client's own billing or attribution header goes."
    ),
    Rule("clock", _SYSTEM, f"{_TASK}; dates without a cue", "A date or time right after a cue such as `current time`."),
    Rule(
        "request_id", _SYSTEM, f"{_TASK}; ids of data", "Request, trace and session ids and nonces under their label."
    ),
    Rule("session_path", _SYSTEM, f"{_TASK}; other paths", "The random part of a scratch directory's path."),
    Rule("counters", _SYSTEM, f"{_TASK}; limits", "Numbers that say how much context or budget is used or left."),
    Rule(
        "template_date", "the head of a completion prompt", "all other text", "Llama templates' own `Today Date:` line."
    ),
    Rule(
        "tool_call_ids",
        "ids of tool calls and of their results",
        "which result is whose",
        "Ids read as numbers in order.",
    ),
    Rule(
        "tool_arguments", "arguments in earlier tool calls", "values", "Order of keys, spacing, escapes, 3.0 against 3."
    ),
    Rule("tool_order", "the list of tools", "the set of tools", "Tools are sorted by name."),
    Rule(
        "schema_key_order", "tools", "order in enum and other arrays", "Keys, and the names in `required`, are sorted."
    ),
)
"""Every rule, in the order in which they act."""

DEFAULT: FoldRules = frozenset(rule.name for rule in RULES)
NONE: FoldRules = frozenset()


def fold_rules(setting: str | Sequence[str]) -> FoldRules:
    """The rules a setting names: `default`, `none`, or a list of rule names.

    Raises ValueError that names the nearest rule when there is none of that name.
    """
    if isinstance(setting, str):
        if setting in {"default", "none"}:
            return DEFAULT if setting == "default" else NONE
        setting = [setting]
    for name in setting:
        if name not in DEFAULT:
            raise ValueError(_unknown(name))
    return frozenset(setting)


def _unknown(name: object) -> str:
    near = get_close_matches(str(name), [*DEFAULT, "default", "none"], 1, 0.4)
    hint = f'did you mean "{near[0]}"?' if near else f"the rules are {', '.join(rule.name for rule in RULES)}"
    return f'unknown fold rule "{name}": {hint}'
