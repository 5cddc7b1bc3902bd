"""Every model's prompts: the router's pure steps, run so that the event loop never waits long for them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from gateway.model_prompts import ModelPrompts, characters_within, load_model_text, tokenizer_source
from router.core import Prompt, PromptSource
from router.normalise import FoldRules
from router.prompt import MEMO_BYTES
from router.tokenise import LoadedModelText

__all__ = ["Prompts", "tokenizer_source"]

INLINE_SECONDS = 0.002
"""Tokenising that takes longer than this goes to a thread; the hop itself costs about 0.1 ms."""

LARGE_CHARACTERS = 256 * 1024
"""From here on folding and rendering, too, are done in the thread: they take about 1 ms for each 128 Ki."""

TOOL_CHARACTERS = 1000
"""What a tool counts for when a request's size is guessed."""

THREADS = 2


class Prompts:
    """The prompts of all models. Belongs to the event loop's thread, `register` excepted; close it at the end.

    `clock` (epoch seconds) tells a template that prints the date what day it is.
    """

    def __init__(self, memo_bytes: int = MEMO_BYTES, clock: Callable[[], float] = time.time) -> None:
        self._memo_bytes, self._clock = memo_bytes, clock
        self._models: dict[str, tuple[ModelPrompts, int]] = {}
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="homing-prompts")

    def register(
        self, model: str, tokenizer_path: Path | None, block_tokens: int, *, required: bool = False
    ) -> LoadedModelText:
        """Load a model's tokeniser and template (up to a second: do it before serving, or in a thread).

        Where there is no path, or nothing that can be read, bytes stand in and a warning says why; with `required`
        the TokeniserError comes out instead. A second call replaces what the first one loaded.
        """
        text = load_model_text(model, tokenizer_path, required=required)
        prompts = ModelPrompts(text, block_tokens, self._memo_bytes)
        self._models[model] = prompts, characters_within(text, INLINE_SECONDS)
        return text

    def knows(self, model: str) -> bool:
        """Whether the model was registered."""
        return model in self._models

    def of(self, model: str) -> ModelPrompts:
        """The synchronous builder of a model, for tools; KeyError for one that was never registered."""
        return self._models[model][0]

    async def prepare(
        self, model: str, source: PromptSource, *, salt: str | None, rules: FoldRules, adapter: str | None = None
    ) -> Prompt:
        """Both chains of a request. Text that is short or known is done at once, long new text in a thread.

        `model` is the base model of `adapter`, whose name goes into the seed.
        Raises KeyError for a model that was never registered, ValueError for a token id out of range.
        """
        prompts, inline_characters = self._models[model]
        asked = prompts.ask(source, salt, model, rules, adapter, self._clock())
        known = prompts.known(asked)
        if known is not None:
            return prompts.scaled(known)
        if source_characters(source) > LARGE_CHARACTERS:
            return prompts.scaled(await self._in_thread(partial(prompts.finish, asked)))
        draft = prompts.start(asked)
        if isinstance(draft, Prompt):
            return draft
        small = draft.unseen_characters <= inline_characters
        return prompts.scaled(draft.finish() if small else await self._in_thread(draft.finish))

    def observe(self, model: str, prompt: Prompt, reported_prompt_tokens: int) -> None:
        """A worker's own count of a prompt's tokens, which estimates are scaled by; counted prompts teach nothing."""
        if prompt.text_bytes is not None:
            self._models[model][0].scale.observe(prompt.text_bytes, reported_prompt_tokens)

    def close(self) -> None:
        """Let the threads end; what waits for them is cancelled."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _in_thread(self, work: Callable[[], Prompt]) -> Prompt:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)


def source_characters(source: PromptSource) -> int:
    """About how much text a request carries; a token id counts for one."""
    if source.prompt is not None:
        return len(source.prompt)
    messages = source.messages or ()
    return sum(_content_characters(m.get("content")) for m in messages) + TOOL_CHARACTERS * len(source.tools or ())


def _content_characters(content: Any) -> int:
    if isinstance(content, str):
        return len(content)
    if isinstance(content, Mapping):
        return sum(_content_characters(value) for value in content.values())
    return sum(_content_characters(part) for part in content) if isinstance(content, list | tuple) else 0
