"""Token counts: what was cached, what was created, and what is told where."""

from __future__ import annotations

import pytest

from backends.openai_usage import Usage


@pytest.mark.parametrize(
    ("prompt_tokens", "cached_tokens", "block_tokens", "created"),
    [(791, 0, 32, 768), (791, 768, 32, 0), (8, 0, 32, None), (64, 32, 32, 32), (791, 0, None, None)],
)
def test_created_cache_tokens_are_the_full_blocks_that_were_not_found(
    prompt_tokens, cached_tokens, block_tokens, created
):
    """As recorded; null when there is no full block, or no cache."""
    usage = Usage(details=True)
    usage.add_prompt(prompt_tokens, cached_tokens, block_tokens)
    assert usage.whole()["prompt_tokens_details"]["created_cache_tokens"] == created


def test_without_details_nothing_is_told_about_the_cache():
    """vLLM without --enable-prompt-tokens-details: null in a body, absent in a stream."""
    usage = Usage(details=False)
    usage.add_prompt(64, 32, 32)
    assert usage.whole()["prompt_tokens_details"] is None
    assert "prompt_tokens_details" not in usage.streamed()


def test_a_batch_is_summed():
    """Two prompts, one usage."""
    usage = Usage(details=True)
    usage.add_prompt(8, 0, 32)
    usage.add_prompt(70, 32, 32)
    details = usage.whole()["prompt_tokens_details"]
    assert (usage.prompt_tokens, details["cached_tokens"], details["created_cache_tokens"]) == (78, 32, 32)
