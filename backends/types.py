"""The nouns of the worker: what is asked, what one step runs, what comes out, and who computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens and when to stop. None of it ever enters a block's hash.

    `max_tokens` None means: as many as the model's length allows. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and
    `min_p` 0 are off; `min_p` is the least probability, as a share of the best token's. `logprobs` None gives none, k
    gives the chosen token's and the k best. `n` is the number of independent answers. A `stop` string ends the text
    before itself, and so does a token of `stop_token_ids`. `skip_special_tokens` keeps special tokens out of the text.
    """

    max_tokens: int | None = None
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    logprobs: int | None = None
    n: int = 1
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    skip_special_tokens: bool = True


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to be continued. `arrival_seconds` is on the engine's clock.

    `cache_salt` and `adapter` separate cached blocks: equal prompts share only where both are equal. `adapter` names
    the adapter and its content (path or revision), so that a new adapter under an old name shares nothing.
    """

    request_id: str
    prompt_ids: Sequence[int]
    sampling: SamplingParams = SamplingParams()
    cache_salt: str | None = None
    adapter: str | None = None
    arrival_seconds: float = 0.0


class SequenceState(Protocol):
    """What a runner may read of a sequence; it must change nothing."""

    @property
    def request_id(self) -> str:
        """Unique among the engine's sequences (siblings of one request differ)."""

    @property
    def sampling(self) -> SamplingParams:
        """How to choose the next token; the seed already differs between siblings."""

    @property
    def token_ids(self) -> Sequence[int]:
        """Prompt and output so far."""

    @property
    def prompt_tokens(self) -> int:
        """Length of the prompt in tokens; `len(token_ids) - prompt_tokens` were generated."""

    @property
    def block_ids(self) -> Sequence[int]:
        """The block table: token i lives in block `block_ids[i // block_tokens]`, slot `i % block_tokens`."""


class ScheduledSequence(NamedTuple):
    """`token_count` tokens of a sequence, from position `start_token`, to be computed in one step.

    All tokens before `start_token` are in the cache already, through the block table. `samples` is True when the
    chunk reaches the last known token, so the runner must choose the next one.
    """

    sequence: SequenceState
    start_token: int
    token_count: int
    samples: bool

    @property
    def token_ids(self) -> Sequence[int]:
        """The chunk's token ids, `token_count` of them."""
        return self.sequence.token_ids[self.start_token : self.start_token + self.token_count]

    @property
    def end_token(self) -> int:
        """Position after the chunk: the context length once the step has run."""
        return self.start_token + self.token_count

    @property
    def block_ids(self) -> Sequence[int]:
        """The block table; covers at least `end_token` tokens."""
        return self.sequence.block_ids

    @property
    def output_index(self) -> int:
        """Number of tokens generated so far; with the seed it names one random draw, also after a preemption."""
        return len(self.sequence.token_ids) - self.sequence.prompt_tokens


class Batch(NamedTuple):
    """What one step runs. No two items are of the same sequence."""

    items: Sequence[ScheduledSequence]

    @property
    def token_count(self) -> int:
        """Tokens computed in this step."""
        return sum(item.token_count for item in self.items)


class SampledToken(NamedTuple):
    """A chosen token; `top` holds the best (token id, logprob) pairs, best first, when logprobs were asked."""

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()


class Runner(Protocol):
    """Whoever computes: tensors, or a timing model."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""

    def allocate(self, num_blocks: int, block_tokens: int) -> None:
        """Make room for the K/V of `num_blocks` blocks; block 0 is never in a block table."""

    def execute(self, batch: Batch) -> list[SampledToken | None]:
        """Compute every item, all K/V of a layer written before its attention; one result per item, in order.

        None for an item whose `samples` is False.
        """


class Delta(NamedTuple):
    """News of one answer after a step.

    `text` is what became certain: never half a character, never the start of what may still be a stop string; it may
    be empty although `token_ids` is not. `finish_reason` is None, or "stop" or "length" in the last delta, and
    `stop_reason` the stop string or the stop token's id, if that was it. An aborted request has no last delta.
    `choice` tells answers of n > 1 apart. The counts are totals so far; `cached_tokens` is the hit of the first
    admission. `logprobs` has one entry per token of `token_ids` when asked for.
    """

    request_id: str
    token_ids: tuple[int, ...]
    text: str
    finish_reason: str | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    logprobs: tuple[SampledToken, ...] | None = None
    choice: int = 0
    stop_reason: str | int | None = None


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and switches of the engine; all lengths in tokens.

    `num_blocks` counts block 0, which holds nothing. `watermark_blocks` stay free when a waiting request is admitted
    beside running ones, so that these need not be preempted at once. A token of `eos_ids` ends an answer; those of
    `special_ids` are no text.
    """

    num_blocks: int
    max_model_tokens: int
    block_tokens: int = 16
    max_sequences: int = 256
    max_batched_tokens: int = 2048
    enable_prefix_caching: bool = True
    watermark_blocks: int = 0
    eos_ids: frozenset[int] = frozenset()
    special_ids: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        """ValueError for sizes with which nothing could ever run."""
        if self.num_blocks < 2 or self.block_tokens < 1 or self.max_model_tokens < 2 or self.max_sequences < 1:
            raise ValueError(f"nothing fits into {self}")
        if self.max_batched_tokens < self.max_sequences:
            raise ValueError(
                f"max_batched_tokens ({self.max_batched_tokens}) is below max_sequences ({self.max_sequences}): "
                "some running sequences would get no token"
            )


@dataclass(frozen=True, slots=True)
class EngineStats:
    """The engine's gauges now and its counters since start.

    Prefix queries and hits are in tokens and leave out lookups repeated after a preemption. `recent_hit_rate` is
    0..1 over the last 1,000 requests. `kv_usage` is 0..1 of the usable blocks. `prompt_tokens` counts whole prompts
    when their first token comes, `cached_prompt_tokens` the part of them that was not computed.
    """

    running: int
    waiting: int
    num_blocks: int
    free_blocks: int
    kv_usage: float
    prefix_queries: int
    prefix_hits: int
    recent_hit_rate: float
    prompt_tokens: int
    cached_prompt_tokens: int
    generation_tokens: int
    preemptions: int


@dataclass(frozen=True, slots=True)
class FinishedRequest:
    """One answer's account, in tokens and seconds, told to the observer once.

    queue = arrival to first scheduled, prefill = to first token, decode = first to last token, inference = prefill +
    decode, e2e = arrival to last token. Phases never reached are 0.
    """

    request_id: str
    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    max_tokens: int
    n: int
    preemptions: int
    queue_seconds: float
    prefill_seconds: float
    decode_seconds: float
    e2e_seconds: float

    @property
    def inference_seconds(self) -> float:
        """From first scheduled to last token."""
        return self.prefill_seconds + self.decode_seconds


class Observer(Protocol):
    """Who wants to know about timing; called inside the step, so it must be quick and never raise."""

    def first_token(self, request_id: str, seconds: float) -> None:
        """Seconds from arrival to the first token."""

    def next_token(self, request_id: str, seconds: float) -> None:
        """Seconds since the answer's previous token."""

    def finished(self, request: FinishedRequest) -> None:
        """An answer ended, for whatever reason."""

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:
        """A step ran: tokens in its batch, sequences preempted for it."""


class NoObserver:
    """Observes nothing."""

    def first_token(self, request_id: str, seconds: float) -> None:
        """Nothing."""

    def next_token(self, request_id: str, seconds: float) -> None:
        """Nothing."""

    def finished(self, request: FinishedRequest) -> None:
        """Nothing."""

    def stepped(self, scheduled_tokens: int, preempted: int) -> None:
        """Nothing."""


class RequestRefusedError(ValueError):
    """A request that can never run here; `param` names the field of the request to change."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class StepFailedError(RuntimeError):
    """The runner raised. The named requests are gone from the engine, their blocks free; all others go on."""

    def __init__(self, request_ids: tuple[str, ...]) -> None:
        super().__init__(f"the runner failed a step with {len(request_ids)} requests")
        self.request_ids = request_ids
