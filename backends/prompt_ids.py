"""From a prompt to token ids, with the model's own template and tokeniser; too long a prompt is refused as in vLLM."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence

from backends.api_errors import BadRequestError, with_parameter
from backends.hashing import unpack
from router.core import PromptSource
from router.template import TemplateError
from router.tokenise import LoadedModelText

THREAD_FROM_CHARACTERS = 16_384
"""Longer texts are tokenised in a thread: at a microsecond or less per token shorter ones do not hold up anybody."""


class PromptReader:
    """Prompts of one model; `vocab_size` bounds the token ids that a caller may send."""

    def __init__(self, text: LoadedModelText, *, max_model_tokens: int, vocab_size: int) -> None:
        self.text = text
        self.max_model_tokens = max_model_tokens
        self._vocab_size = vocab_size

    async def read(
        self, source: PromptSource, max_tokens: int | None, *, add_special_tokens: bool | None = None
    ) -> Sequence[int]:
        """Token ids that leave room for `max_tokens` (one at least); BadRequestError naming both numbers if not."""
        ids = await self.ids(source, add_special_tokens=add_special_tokens)
        self._check_length(len(ids), 1 if max_tokens is None else max_tokens)
        return ids

    async def ids(self, source: PromptSource, *, add_special_tokens: bool | None = None) -> Sequence[int]:
        """Token ids of any length; BadRequestError when the template refuses the messages or an id is unknown.

        The tokeniser's own prefix (a BOS) is added if asked for; None: to a text, not to a chat, which has its own.
        """
        if source.messages is None and not isinstance(source.prompt, str):
            return self._known(source.prompt or ())
        text = self._rendered(source)
        adds = source.messages is None if add_special_tokens is None else add_special_tokens
        prefix = self.text.prompt_prefix if adds else b""
        if len(text) < THREAD_FROM_CHARACTERS:
            packed = self.text.tokeniser.encode(text)
        else:
            packed = await asyncio.to_thread(self.text.tokeniser.encode, text)
        return unpack(prefix + packed)

    def _rendered(self, source: PromptSource) -> str:
        if source.messages is None:
            return str(source.prompt)
        try:
            return self.text.template.render(
                source.messages,
                source.tools,
                add_generation_prompt=source.add_generation_prompt,
                extra=source.template_arguments,
                now=time.time(),
            )
        except TemplateError as error:
            raise BadRequestError(str(error), param="messages") from None

    def _known(self, ids: Sequence[int] | str) -> Sequence[int]:
        """The ids themselves, if the model knows them all."""
        numbers = [int(number) for number in ids]
        for number in (min(numbers, default=0), max(numbers, default=0)):
            if not 0 <= number < self._vocab_size:
                raise BadRequestError(f"Token id {number} is out of vocabulary", param="prompt")
        return array("I", numbers)

    def _check_length(self, tokens: int, max_tokens: int) -> None:
        limit = self.max_model_tokens
        start = f"This model's maximum context length is {limit} tokens. However, "
        if tokens > limit:
            raise with_parameter(
                f"{start}your prompt contains {tokens} input tokens, which exceeds this limit even without any output "
                "tokens. Please reduce the length of the input prompt.",
                "input_tokens",
                tokens,
            )
        if tokens + max_tokens > limit:
            raise with_parameter(
                f"{start}you requested {max_tokens} output tokens and your prompt contains {tokens} input tokens, for "
                f"a total of {tokens + max_tokens} tokens. Please reduce the length of the input prompt or the number "
                "of requested output tokens.",
                "input_tokens",
                tokens,
            )
