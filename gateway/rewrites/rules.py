"""The table of rewrites: what each one changes in what the model reads, and what it never touches."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final, NamedTuple

from gateway.rewrites.languages import LANGUAGES

_SYSTEM: Final = "system and developer text"
_CODE: Final = "completion prompts in a named language"


class RewriteRule(NamedTuple):
    """One rewrite, in words for operators and for `homing explain`. `takes_language`: written `name:language`."""

    name: str
    acts_on: str
    never_touches: str
    sentence: str
    takes_language: bool = False


RULES: Final[tuple[RewriteRule, ...]] = (
    RewriteRule("line_ends", _SYSTEM, "user, assistant and tool text", "CRLF and CR become LF."),
    RewriteRule(
        "client_attribution", _SYSTEM, "lines without that header", "A client's own billing or attribution line goes."
    ),
    RewriteRule(
        "clock_last", _SYSTEM, "dates without a cue; sentences within a longer line",
        "A line that only tells the time moves behind the rest of its text, so that the rest stays a prefix.",
    ),
    RewriteRule(
        "tool_order", "the list of tools", "the tools themselves; lists with a `cache_control`",
        "Tools are sorted by name.",
    ),
    RewriteRule(
        "code_comments", _CODE, "strings, preprocessor lines, the last lines before the cursor, text behind it",
        "Comments go.", takes_language=True,
    ),
    RewriteRule(
        "code_blank_lines", _CODE, "strings, the last lines before the cursor, text behind it",
        "Empty lines go.", takes_language=True,
    ),
    RewriteRule(
        "code_indentation", _CODE, "languages in which indentation has a meaning; strings; the last lines",
        "Spaces at the start of lines go.", takes_language=True,
    ),
)  # fmt: skip
"""Every rewrite, in the order in which they act."""

_BY_NAME: Final = {rule.name: rule for rule in RULES}


class Rewrites(NamedTuple):
    """What a tenant has switched on: names of rules, and for those about code the language each is for."""

    names: frozenset[str] = frozenset()
    code: tuple[tuple[str, str], ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing is switched on."""
        return not (self.names or self.code)

    def code_rules(self) -> dict[str, frozenset[str]]:
        """The rules about code by language."""
        languages = dict.fromkeys(language for _, language in self.code)
        return {each: frozenset(name for name, language in self.code if language == each) for each in languages}


NONE: Final = Rewrites()


def parse_rewrites(settings: Iterable[str]) -> Rewrites:
    """The rewrites that a setting names (`line_ends`, `code_comments:python`); ValueError says what would be right."""
    names: set[str] = set()
    code: list[tuple[str, str]] = []
    for setting in settings:
        name, _, language = setting.partition(":")
        rule = _BY_NAME.get(name)
        if rule is None:
            raise ValueError(_unknown("rewrite", name, _BY_NAME))
        if rule.takes_language:
            code.append((name, _checked_language(name, language)))
        elif language:
            raise ValueError(f'the rewrite "{name}" takes no language')
        else:
            names.add(name)
    languages = sorted({language for _, language in code})
    if len(languages) > 1:
        raise ValueError(f"one language at a time: a prompt does not say whether it is {' or '.join(languages)}")
    return Rewrites(frozenset(names), tuple(sorted(set(code))))


def _checked_language(rule: str, language: str) -> str:
    if not language:
        raise ValueError(f'the rewrite "{rule}" needs its language: {rule}:python')
    found = LANGUAGES.get(language)
    if found is None:
        raise ValueError(_unknown("language", language, LANGUAGES))
    if rule == "code_indentation" and found.indentation_has_meaning:
        raise ValueError(f"indentation has a meaning in {language}; leave out code_indentation")
    return language


def _unknown(what: str, given: str, known: Iterable[str]) -> str:
    near = get_close_matches(given, list(known), 1, 0.5)
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(sorted(known))}"
    return f'unknown {what} "{given}": {hint}'
