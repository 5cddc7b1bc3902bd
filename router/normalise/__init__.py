"""Fold rules for the routing key: what two requests may differ in and still go to the same worker.

Folding touches the key only; what is forwarded stays byte for byte what the client sent. A wrong fold costs balance,
never an answer, and still the rules are strict: a value folds when a grammar knows it and its label or cue says that
it changes with every request. The table of rules is `RULES`.
"""

from __future__ import annotations

from router.normalise.canonical import tools_digest_text
from router.normalise.requests import Folded, fold_messages, fold_prompt
from router.normalise.rules import DEFAULT, NONE, RULES, FoldRules, Rule, fold_rules

__all__ = [
    "DEFAULT",
    "NONE",
    "RULES",
    "FoldRules",
    "Folded",
    "Rule",
    "fold_messages",
    "fold_prompt",
    "fold_rules",
    "tools_digest_text",
]
