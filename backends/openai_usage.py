"""Token counts of one request, as vLLM tells them in whole answers and in streams."""

from __future__ import annotations

from dataclasses import dataclass

from router.core import Json


@dataclass(slots=True)
class Usage:
    """Token counts of one request, summed over its prompts and answers.

    `created_cache_tokens` None: no prompt filled a block. `details` says whether cached tokens are told.
    """

    details: bool
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    created_cache_tokens: int | None = None

    def add_prompt(self, prompt_tokens: int, cached_tokens: int, block_tokens: int | None) -> None:
        """Count a prompt once, whatever its number of answers; `block_tokens` None when nothing is cached."""
        self.prompt_tokens += prompt_tokens
        self.cached_tokens += cached_tokens
        full = 0 if block_tokens is None else prompt_tokens // block_tokens * block_tokens
        if full:
            self.created_cache_tokens = (self.created_cache_tokens or 0) + full - cached_tokens

    def totals(self) -> dict[str, Json]:
        """The three counts every usage has."""
        total = self.prompt_tokens + self.completion_tokens
        return {
            "prompt_tokens": self.prompt_tokens,
            "total_tokens": total,
            "completion_tokens": self.completion_tokens,
        }

    def whole(self) -> dict[str, Json]:
        """As in an answer that is not streamed: absent things are null."""
        details = {
            "cached_tokens": self.cached_tokens,
            "created_cache_tokens": self.created_cache_tokens,
            "multimodal_tokens": None,
        }
        shown = details if self.details else None
        return {**self.totals(), "prompt_tokens_details": shown, "completion_tokens_details": None}

    def streamed(self) -> dict[str, Json]:
        """As in a stream's last chunk: absent things are left out."""
        if not self.details:
            return self.totals()
        details = {"cached_tokens": self.cached_tokens}
        if self.created_cache_tokens is not None:
            details["created_cache_tokens"] = self.created_cache_tokens
        return {**self.totals(), "prompt_tokens_details": details}
