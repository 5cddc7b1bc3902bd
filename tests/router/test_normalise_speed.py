"""Folding stands in the path of every request: its bounds, in CPU time, as the best of several runs."""

from __future__ import annotations

import pytest

from router.normalise import DEFAULT, fold_messages
from tests.data.cases.harness import FILLER
from tests.timing import best_seconds

PROMPT_CHARACTERS = 130_000
SYSTEM_CHARACTERS = 16_000


def build_text(characters: int, start: str = "Current time: 2025-11-03 14:05:09\n") -> str:
    """About 32k tokens of rules with a clock on the first line, as long lines."""
    block = " ".join(FILLER) + "\n\n"
    return (start + block * (characters // len(block) + 1))[:characters]


@pytest.mark.parametrize("script", ["", "你好 é 🙂 "])
def test_a_long_prompt_with_a_short_system_text_folds_within_a_millisecond(script: str) -> None:
    """32k tokens, 4k of them system text, in any script."""
    text = build_text(PROMPT_CHARACTERS)
    system = {"role": "system", "content": (text[:40] + script + text[40:])[:SYSTEM_CHARACTERS]}
    messages = [system, {"role": "user", "content": text[SYSTEM_CHARACTERS:]}]
    assert fold_messages(messages, None, DEFAULT).changed
    assert best_seconds(lambda: fold_messages(messages, None, DEFAULT)) <= 0.001


def test_a_prompt_that_is_all_system_text_folds_within_three_milliseconds() -> None:
    """32k tokens of it."""
    messages = [{"role": "system", "content": build_text(PROMPT_CHARACTERS)}]
    assert fold_messages(messages, None, DEFAULT).changed
    assert best_seconds(lambda: fold_messages(messages, None, DEFAULT)) <= 0.003


@pytest.mark.parametrize(
    "hostile",
    [
        "Current time: 14:05:09\n",
        "now: 1-",
        "/a1b2c3",
        ":1 ",
        "today is 9 ",
        "Request ID: a1b2c3d4e5f6 ",
        "x-a-client: 1\n",
        "created: 2024-01-01\n",
        "'x ",
        "时间为14:05。",
        "Session ",
        "Current time (",
        "a" * 100 + "1" * 100,
        "\r\n \t\n",
    ],
)
def test_no_text_makes_folding_slow(hostile: str) -> None:
    """A client must not be able to buy seconds of the gateway's time with a megabyte."""
    text = (hostile * (1_000_000 // len(hostile) + 1))[:1_000_000]
    messages = [{"role": "system", "content": text}]
    assert best_seconds(lambda: fold_messages(messages, None, DEFAULT), repeats=2) <= 2.5
