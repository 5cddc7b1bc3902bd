"""A runner without tensors: it takes the time a model would take, and says the same words every time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256

from backends.types import Batch, Outcome, PromptScores, SampledToken, ScheduledSequence

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


PAYLOAD_BYTES = 8
"""What stands in for the K/V of a block."""


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
        self._kept: list[bytes] = []
        self._text_ids = text_ids
        self._end_id = end_id
        self._answer_tokens = answer_tokens
        self._block_tokens = 0

    def allocate(self, num_blocks: int, block_tokens: int) -> None:
        """A few bytes for each block: nobody computes, but what is moved can be told apart."""
        self._block_tokens = block_tokens
        self._kept = [block_id.to_bytes(PAYLOAD_BYTES, "little") for block_id in range(num_blocks)]

    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]:
        """The stand-ins of the blocks' K/V."""
        return [self._kept[block_id] for block_id in block_ids]

    def write_blocks(self, block_ids: Sequence[int], payloads: Sequence[bytes | memoryview]) -> None:
        """Put stand-ins back."""
        for block_id, payload in zip(block_ids, payloads, strict=True):
            if len(payload) != PAYLOAD_BYTES:
                raise ValueError(f"a block of {len(payload)} bytes was given, {PAYLOAD_BYTES} are needed")
            self._kept[block_id] = bytes(payload)

    @property
    def kv_digest(self) -> str:
        """All simulated workers of one block size are alike."""
        return sha256(f"simulated\0{self._block_tokens}".encode()).hexdigest()[:12]

    def execute(self, batch: Batch) -> list[Outcome]:
        """Sleep as long as the step takes, then give each sampling item its next token; every prompt is certain."""
        for source, target in batch.copies:
            self._kept[target] = self._kept[source]
        prefill = sum(item.token_count for item in batch.items if item.start_token < item.sequence.prompt_tokens)
        seconds = self._timing.step_seconds(prefill, sum(item.samples for item in batch.items))
        if seconds > 0:
            self._sleep(seconds)
        return [self._outcome(item) for item in batch.items]

    def _outcome(self, item: ScheduledSequence) -> Outcome:
        token = self._next(item) if item.samples else None
        if item.sequence.sampling.prompt_logprobs is None or not item.scored_rows:
            return token
        first = item.start_token + 1
        scored = item.sequence.token_ids[first : first + item.scored_rows]
        return PromptScores(tuple(SampledToken(token_id, 0.0, ((token_id, 0.0),), 1) for token_id in scored), token)

    def _next(self, item: ScheduledSequence) -> SampledToken:
        index = item.output_index
        end_id = None if item.sequence.sampling.ignore_eos else self._end_id
        if end_id is not None and index >= max(self._answer_tokens, item.sequence.sampling.min_tokens):
            token_id = end_id
        else:
            token_id = self._text_ids[(item.sequence.prompt_tokens + index) % len(self._text_ids)]
        if item.sequence.sampling.logprobs is None:
            return SampledToken(token_id)
        return SampledToken(token_id, 0.0, ((token_id, 0.0),) if item.sequence.sampling.logprobs else ())
