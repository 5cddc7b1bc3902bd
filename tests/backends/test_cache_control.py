"""Anthropic's marks: found wherever they may stand, taken out of the prompt, and measured in tokens."""

from __future__ import annotations

from typing import Any

import pytest

from backends.api_errors import BadRequestError
from backends.cache_control import Mark, covered_tokens, last_mark, unmarked
from backends.prompt_ids import PromptReader
from router.core import PromptSource
from router.tokenise import bytes_text

MARK = {"type": "ephemeral"}
PROMPTS = PromptReader(bytes_text("a test"), max_model_tokens=10_000, vocab_size=1 << 20)


def said(role: str, content: Any, **extra: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **extra}


def text(words: str, **extra: Any) -> dict[str, Any]:
    return {"type": "text", "text": words, **extra}


def test_a_mark_on_a_message_or_on_a_part_covers_the_message():
    """The last one counts; five minutes unless it says an hour."""
    assert last_mark([said("system", "a", cache_control=MARK), said("user", "b")]) == Mark(1, 300.0)
    parts = [text("a", cache_control=MARK), text("b")]
    assert last_mark([said("system", "a"), said("user", parts)]) == Mark(2, 300.0)
    hour = {"type": "ephemeral", "ttl": "1h"}
    assert last_mark([said("system", "a", cache_control=MARK), said("user", "b", cache_control=hour)]) == Mark(2, 3600)
    assert last_mark([said("user", "b", cache_control=None)]) is None
    assert last_mark(None) is None


@pytest.mark.parametrize(
    ("mark", "param"),
    [
        ("ephemeral", "messages.0.cache_control"),
        ({"type": "forever"}, "messages.0.cache_control"),
        ({"type": "ephemeral", "ttl": "1d"}, "messages.0.cache_control.ttl"),
        ({"type": "ephemeral", "ttl": 300}, "messages.0.cache_control.ttl"),
    ],
)
def test_a_mark_that_is_none_is_refused_by_its_place(mark: Any, param: str):
    """Also when a later one is sound."""
    with pytest.raises(BadRequestError) as caught:
        last_mark([said("user", "a", cache_control=mark), said("user", "b", cache_control=MARK)])
    assert caught.value.param == param


def test_a_prompt_is_the_same_with_and_without_marks():
    """Else a mark would change the tokens, and miss what the others cached."""
    plain = [said("system", [text("a"), "b"]), said("user", "c")]
    marked = [said("system", [text("a", cache_control=MARK), "b"]), said("user", "c", cache_control=MARK)]
    assert unmarked(marked) == plain
    assert unmarked(plain) == plain


async def test_the_tokens_of_the_first_messages_are_those_both_renderings_share():
    """A prefix of the prompt, shorter than the whole and longer than the words."""
    source = PromptSource(messages=[said("system", "s" * 50), said("user", "question")])
    ids = await PROMPTS.ids(source)
    covered = await covered_tokens(PROMPTS, source, ids, 1)
    assert 50 <= covered < len(ids)
    assert b"question" not in bytes(ids[:covered])
    assert await covered_tokens(PROMPTS, source, ids, 2) == len(ids)


async def test_a_head_that_the_template_refuses_covers_nothing(monkeypatch):
    """The wish is a hint, and no reason to refuse the request."""
    source = PromptSource(messages=[said("system", "s"), said("user", "q")])
    ids = await PROMPTS.ids(source)

    async def refuse(_source: PromptSource) -> Any:
        raise BadRequestError("roles must alternate")

    monkeypatch.setattr(PROMPTS, "ids", refuse)
    assert await covered_tokens(PROMPTS, source, ids, 1) == 0
