"""A runner without tensors: it takes the time a model would take, and says the same words every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backends.types import Batch, SampledToken, ScheduledSequence

TEXT = (
    "The answer is simulated. These words come from no model; they only take the time that a model would take. "
    "What is real are the queue, the blocks, the prefix cache and every figure about them. "
)
"""What a simulated model says, over and over."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a step takes: `fixed_seconds`, plus the prefill at its rate, plus each generated token.

    A prefill rate of None costs nothing. Cached tokens are not in the batch, so they cost nothing either.
    """

    prefill_tokens_per_second: float | None = None
    fixed_seconds: float = 0.0
    seconds_per_token: float = 0.0

    def step_seconds(self, prefill_tokens: int, sampled_tokens: int) -> float:
        """Seconds for one step over so many prompt tokens and generated tokens."""
        rate = self.prefill_tokens_per_second
        return self.fixed_seconds + (prefill_tokens / rate if rate else 0.0) + sampled_tokens * self.seconds_per_token


class SimulatedRunner:
    """Implements `Runner`: sleeps for the step, then continues each answer with the next token of `text_ids`.

    Where in the text an answer starts depends on its prompt's length, so answers differ, and are the same each time,
    whatever was cached or preempted. After `answer_tokens` tokens it says `end_id`, if there is one and the request
    does not ignore it.
    """

    def __init__(
        self,
        timing: Timing,
        sleep: Callable[[float], object],
        *,
        text_ids: Sequence[int] = TEXT.encode(),
        vocab_size: int = 256,
        end_id: int | None = None,
        answer_tokens: int = 128,
    ) -> None:
        if not text_ids or not 0 <= min(text_ids) <= max(text_ids) < vocab_size:
            raise ValueError(f"text_ids must hold ids from 0 to {vocab_size - 1}, at least one")
        self.vocab_size = vocab_size
        self._timing = timing
        self._sleep = sleep
        self._text_ids = text_ids
        self._end_id = end_id
        self._answer_tokens = answer_tokens

    def allocate(self, num_blocks: int, block_tokens: int) -> None:
        """Nothing to allocate: nobody computes."""

    def execute(self, batch: Batch) -> list[SampledToken | None]:
        """Sleep as long as the step takes, then give each sampling item its next token."""
        prefill = sum(item.token_count for item in batch.items if item.start_token < item.sequence.prompt_tokens)
        sampled = [self._next(item) if item.samples else None for item in batch.items]
        seconds = self._timing.step_seconds(prefill, sum(token is not None for token in sampled))
        if seconds > 0:
            self._sleep(seconds)
        return sampled

    def _next(self, item: ScheduledSequence) -> SampledToken:
        index = item.output_index
        end_id = None if item.sequence.sampling.ignore_eos else self._end_id
        if end_id is not None and index >= self._answer_tokens:
            token_id = end_id
        else:
            token_id = self._text_ids[(item.sequence.prompt_tokens + index) % len(self._text_ids)]
        if item.sequence.sampling.logprobs is None:
            return SampledToken(token_id)
        return SampledToken(token_id, 0.0, ((token_id, 0.0),) if item.sequence.sampling.logprobs else ())
