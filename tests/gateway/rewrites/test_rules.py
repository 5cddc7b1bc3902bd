"""The names of rewrites, and what is said to somebody who writes another."""

from __future__ import annotations

import re

import pytest

from gateway.rewrites.languages import LANGUAGES
from gateway.rewrites.rules import NONE, RULES, Rewrites, parse_rewrites


def test_nothing_is_on_by_default():
    """A tenant without the setting has its prompts forwarded as they came."""
    assert parse_rewrites([]) == NONE


def test_every_rule_can_be_switched_on():
    """Rules about code take a language."""
    named = [f"{rule.name}:go" if rule.takes_language else rule.name for rule in RULES]
    parsed = parse_rewrites(named)
    assert parsed.names | {name for name, _ in parsed.code} == {rule.name for rule in RULES}
    assert parsed.code_rules() == {"go": frozenset({"code_comments", "code_blank_lines", "code_indentation"})}


@pytest.mark.parametrize(
    ("setting", "hint"),
    [
        ("line_end", 'did you mean "line_ends"?'),
        ("qqq", "there are client_attribution"),
        ("code_comments", "code_comments:python"),
        ("code_comments:pyton", 'did you mean "python"?'),
        ("code_comments:brainfuck", "there are c, cpp"),
        ("code_indentation:python", "indentation has a meaning in python"),
        ("line_ends:python", "takes no language"),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(setting, hint):
    """An unknown rule, an unknown language, a language too many or too few."""
    with pytest.raises(ValueError, match=re.escape(hint)):
        parse_rewrites([setting])


def test_two_languages_at_once_are_refused():
    """A prompt does not say what language it is in."""
    with pytest.raises(ValueError, match="one language at a time"):
        parse_rewrites(["code_comments:go", "code_blank_lines:rust"])


def test_the_order_of_the_setting_does_not_matter():
    """Equal settings are equal rewrites."""
    one, other = ["tool_order", "code_comments:c", "code_blank_lines:c"], ["code_blank_lines:c", "tool_order"]
    assert parse_rewrites(one) == parse_rewrites([*other, "code_comments:c"]) != Rewrites()
    assert all(LANGUAGES[language].lexer for language in LANGUAGES)
