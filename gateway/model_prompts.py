"""One model's prompts, synchronously: load its text handling, build, fall back, and scale estimates."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from gateway.byte_scale import ByteScale
from gateway.config_checks import tokenizer_path
from router.core import Prompt, PromptSource
from router.normalise import FoldRules
from router.prompt import MEMO_BYTES, Asked, Draft, PromptBuilder
from router.template import FALLBACK, TemplateError
from router.tokenise import BYTES_PER_TOKEN, LoadedModelText, TokeniserError, bytes_text, load_tokeniser

log = logging.getLogger("homing.prompts")

NO_SOURCE = "no tokenizer is configured and the worker's own is not on this machine"
SAMPLE_WORDS = 1500


class Seeding(NamedTuple):
    """What a prompt is seeded and folded with; `now` (epoch seconds) is for templates that print the date."""

    salt: str | None
    model: str
    rules: FoldRules
    adapter: str | None = None
    now: float | None = None


class ModelPrompts:
    """Builds the prompts of one model, from any thread.

    Messages that the model's template refuses are rendered by a plain one: whether they are wrong is for the worker
    to say, and until then they need a place.
    """

    def __init__(self, text: LoadedModelText, block_tokens: int, memo_bytes: int = MEMO_BYTES) -> None:
        self.text = text
        self.scale = ByteScale()
        self._lock: AbstractContextManager[Any] = threading.Lock()
        self._own = PromptBuilder(text, block_tokens, memo_bytes, self._lock)
        self._plain = PromptBuilder(replace(text, template=FALLBACK), block_tokens, memo_bytes // 8, self._lock)
        self._told = False
        self.ask = self._own.ask
        """What the other steps go by; costs a hash of the text."""
        self.known = self._own.known
        """The prompt, if the very same was made before and is remembered."""

    def start(self, asked: Asked) -> Draft | Prompt:
        """`build` up to tokenising; the Draft's `finish` does that."""
        try:
            return self._own.start(asked)
        except TemplateError as error:
            self._tell(asked.model, error)
            return self._plain.known(asked) or self._plain.start(asked)

    def build(self, source: PromptSource, seeding: Seeding) -> Prompt:
        """Both chains of a request; ValueError for a token id out of range."""
        asked = self.ask(source, *seeding)
        return self.known(asked) or self.finish(asked)

    def finish(self, asked: Asked) -> Prompt:
        """The rest of `build` for what is not known."""
        draft = self.start(asked)
        return draft if isinstance(draft, Prompt) else draft.finish()

    def scaled(self, prompt: Prompt) -> Prompt:
        """`prompt`, its tokens estimated by what workers have reported, where bytes were counted in their place."""
        if prompt.text_bytes is None:
            return prompt
        block_tokens = self.scale.tokens(prompt.block_tokens * BYTES_PER_TOKEN)
        return replace(prompt, tokens=self.scale.tokens(prompt.text_bytes), block_tokens=block_tokens)

    def _tell(self, model: str, error: TemplateError) -> None:
        if not self._told:
            self._told = True
            fields = {"model": model, "error": str(error)}
            log.warning("a chat template refuses messages; a plain one places them", extra={"fields": fields})


def load_model_text(model: str, path: Path | None, *, required: bool = False) -> LoadedModelText:
    """A model's text handling from `path`; bytes and a warning where there is none or it cannot be read.

    With `required`, TokeniserError or OSError come out instead. Takes up to a second for a large vocabulary.
    """
    reason = NO_SOURCE
    if path is not None:
        try:
            return load_tokeniser(path)
        except (TokeniserError, OSError) as error:
            if required:
                raise
            reason = str(error)
    log.warning(
        "counting bytes in place of tokens; set models.NAME.tokenizer to the model's tokenizer.json, folder or GGUF",
        extra={"fields": {"model": model, "because": reason}},
    )
    return bytes_text(reason)


def tokenizer_source(configured: str | None, card_root: str | None) -> Path | None:
    """Where a model's tokeniser comes from: what is configured, else the worker's own folder if it is here too."""
    if configured is not None:
        return tokenizer_path(configured)
    if card_root and Path(card_root).exists():
        return Path(card_root)
    return None


def characters_within(text: LoadedModelText, seconds: float) -> int:
    """How much unseen text this machine tokenises in `seconds`, by the best of three tries on a sample."""
    words = " ".join(f"w{number * 7919 % 100_003} of new text {number:x};" for number in range(SAMPLE_WORDS // 5))
    best_seconds = min(_seconds_to_encode(text, f"{number} {words}") for number in range(3))
    return round(len(words) * seconds / max(best_seconds, 1e-6))


def _seconds_to_encode(text: LoadedModelText, sample: str) -> float:
    started = time.perf_counter()
    text.tokeniser.encode(sample)
    return time.perf_counter() - started
