"""The nouns of the worker: what is asked, what one step runs, what comes out, and who computes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from backends.retention import ORDINARY, CachePolicy


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to choose tokens and when to stop. None of it ever enters a block's hash.

    `max_tokens` None means: as many as the model's length allows. `temperature` 0 is greedy. `top_k` 0, `top_p` 1 and
    `min_p` 0 are off; `min_p` is the least probability, as a share of the best token's. `logprobs` None gives none, k
    gives the chosen token's and the k best. `n` is the number of independent answers. A `stop` string ends the text
    before itself, and so does a token of `stop_token_ids`. `skip_special_tokens` keeps special tokens out of the text.

    `max_tokens` 0 computes and caches the prompt and answers nothing (finish reason "length"). No end or stop token
    is chosen before `min_tokens`. `presence_penalty` and `frequency_penalty` are subtracted per output token as
    OpenAI defines them, `repetition_penalty` divides (prompt and output tokens; 1 is off). `logit_bias` pairs are
    (token id, added to its logit). `prompt_logprobs` k gives every prompt token's logprob and the k best; such a
    request does not read the prefix cache. Only tokens of `allowed_token_ids` are chosen, if it is given. A stop
    string ends the text after itself with `include_stop_str_in_output`.
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
    min_tokens: int = 0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    prompt_logprobs: int | None = None
    allowed_token_ids: tuple[int, ...] | None = None
    include_stop_str_in_output: bool = False


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """One prompt to be continued. `arrival_seconds` is on the engine's clock.

    `cache_salt` and `adapter` separate cached blocks: equal prompts share only where both are equal. `adapter` names
    the adapter and its content (path or revision), so that a new adapter under an old name shares nothing. A lower
    `priority` runs first where the scheduler goes by priority. `partition` names the share of the pool that pays for
    the blocks, "" the common rest. `reads_cache` False computes everything anew (and still stores it).
    """

    request_id: str
    prompt_ids: Sequence[int]
    sampling: SamplingParams = SamplingParams()
    cache_salt: str | None = None
    adapter: str | None = None
    arrival_seconds: float = 0.0
    priority: int = 0
    cache: CachePolicy = ORDINARY
    partition: str = ""
    reads_cache: bool = True


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

    @property
    def end_ids(self) -> frozenset[int]:
        """The tokens that end the answer; none of them may be chosen before `sampling.min_tokens`."""


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
    def scored_rows(self) -> int:
        """How many of the chunk's first tokens have a prompt token after them whose logprob is wanted; mostly 0.

        The last token of a prompt has none: what follows it is sampled.
        """
        if self.sequence.sampling.prompt_logprobs is None:
            return 0
        return max(0, min(self.end_token, self.sequence.prompt_tokens - 1) - self.start_token)

    @property
    def output_index(self) -> int:
        """Number of tokens generated so far; with the seed it names one random draw, also after a preemption."""
        return len(self.sequence.token_ids) - self.sequence.prompt_tokens


class BlockCopy(NamedTuple):
    """Copy on write: the K/V of block `source` are to be in block `target` before anything is computed."""

    source: int
    target: int


class Batch(NamedTuple):
    """What one step runs. No two items are of the same sequence. `copies` are carried out before the items."""

    items: Sequence[ScheduledSequence]
    copies: Sequence[BlockCopy] = ()

    @property
    def token_count(self) -> int:
        """Tokens computed in this step."""
        return sum(item.token_count for item in self.items)


class SampledToken(NamedTuple):
    """A chosen token; `top` holds the best (token id, logprob) pairs, best first, when logprobs were asked.

    `rank` is the token's place among all by logprob, from 1, where logprobs were asked.
    """

    token_id: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    rank: int | None = None


class PromptScores(NamedTuple):
    """The outcome of an item with `scored_rows`: entry i is the prompt token after the chunk's i-th, with its logprob.

    `top` of an entry has the `prompt_logprobs` best tokens of that place. `token` is the sampled one, if the item
    samples.
    """

    scores: tuple[SampledToken, ...]
    token: SampledToken | None = None


Outcome = SampledToken | PromptScores | None
"""What a step gives for one item: `PromptScores` if it has scored rows, else a token if it samples, else nothing."""


class Runner(Protocol):
    """Whoever computes: tensors, or a timing model."""

    @property
    def vocab_size(self) -> int:
        """Token ids are below it."""

    def allocate(self, num_blocks: int, block_tokens: int) -> None:
        """Make room for the K/V of `num_blocks` blocks; block 0 is never in a block table."""

    def execute(self, batch: Batch) -> Sequence[Outcome]:
        """Compute every item, all K/V of a layer written before its attention; one outcome per item, in order.

        The batch's copies are carried out first.
        """

    def read_blocks(self, block_ids: Sequence[int]) -> list[bytes]:
        """The K/V of each block as bytes, the same layout always; all of them have equal length."""

    def write_blocks(self, block_ids: Sequence[int], payloads: Sequence[bytes | memoryview]) -> None:
        """Put back what `read_blocks` gave, each into its block; ValueError for a payload of another length."""

    @property
    def kv_digest(self) -> str:
        """12 hex digits of everything that makes K/V bytes comparable: model and weights, dtype, layout, block size.

        Equal digests mean that one runner's payloads are another's; read after `allocate`.
        """


class Delta(NamedTuple):
    """News of one answer after a step.

    `text` is what became certain: never half a character, never the start of what may still be a stop string; it may
    be empty although `token_ids` is not. `finish_reason` is None, or "stop" or "length" in the last delta, and
    `stop_reason` the stop string or the stop token's id, if that was it. An aborted request has no last delta.
    `choice` tells answers of n > 1 apart. The counts are totals so far; `cached_tokens` is the hit of the first
    admission, wherever it came from. `logprobs` has one entry per token of `token_ids` when asked for, and
    `prompt_logprobs`, in an answer's first delta, one for every prompt token but the first.
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
    prompt_logprobs: tuple[SampledToken, ...] | None = None


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
