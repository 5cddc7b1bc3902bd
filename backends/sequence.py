"""One answer's life: its tokens, its blocks, how far it is computed, and when things happened to it."""

from __future__ import annotations

from array import array

from backends.answer import Answer
from backends.hashing import BlockKey
from backends.retention import Retention
from backends.types import GenerationRequest, SampledToken, SamplingParams


class Timeline:
    """When things happened, in seconds on the engine's clock; None until they do."""

    __slots__ = ("arrival", "first_scheduled", "first_token", "last_token")

    def __init__(self, arrival: float) -> None:
        self.arrival = arrival
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None


class Sequence:
    """A prompt and one answer to it. A request with n > 1 has n of these, told apart by `choice`.

    `computed_tokens` chases `len(token_ids)`: there are no phases, a prefill is just far behind. `block_ids` is
    append-only until released, but for blocks taken ahead of need; it is empty while the sequence waits.
    `block_keys` names the full blocks of the known tokens; it is computed once and outlives preemptions. The first
    `found_blocks` blocks of the table were found at admission, the first `registered_blocks` are findable.
    `cached_tokens` is the hit of the first admission, None before it. `max_tokens` bounds the output, `limit_tokens`
    prompt and output. `rank` orders the waiting: the lowest first. `children` are the siblings that will fork from
    this one when its prompt is computed, and `parent` is the one they wait for. `prompt_scores` has an entry for each
    computed prompt token's successor, None when they are not asked for.
    """

    __slots__ = (
        "answer",
        "block_ids",
        "block_keys",
        "cached_tokens",
        "children",
        "choice",
        "computed_tokens",
        "end_ids",
        "found_blocks",
        "limit_tokens",
        "max_tokens",
        "parent",
        "partition",
        "preemptions",
        "prompt_scores",
        "prompt_tokens",
        "rank",
        "reads_cache",
        "registered_blocks",
        "request",
        "request_id",
        "root_key",
        "sampling",
        "stores",
        "times",
        "token_ids",
    )

    def __init__(
        self,
        request: GenerationRequest,
        token_ids: array[int],
        *,
        request_id: str,
        sampling: SamplingParams,
        max_tokens: int,
        answer: Answer,
        choice: int = 0,
        end_ids: frozenset[int] = frozenset(),
    ) -> None:
        self.request = request
        self.request_id = request_id
        self.sampling = sampling
        self.max_tokens = max_tokens
        self.answer = answer
        self.choice = choice
        self.end_ids = end_ids
        self.token_ids = token_ids
        self.prompt_tokens = len(token_ids)
        self.limit_tokens = self.prompt_tokens + max_tokens
        self.partition = request.partition
        self.stores = request.cache.retention is not Retention.NO_STORE
        self.reads_cache = request.reads_cache and sampling.prompt_logprobs is None
        self.prompt_scores: list[SampledToken] | None = None if sampling.prompt_logprobs is None else []
        self.computed_tokens = 0
        self.block_ids: list[int] = []
        self.root_key: BlockKey | None = None
        self.block_keys: list[BlockKey] = []
        self.found_blocks = self.registered_blocks = 0
        self.cached_tokens: int | None = None
        self.preemptions = 0
        self.rank = (0, 0)
        self.parent: Sequence | None = None
        self.children: list[Sequence] = []
        self.times = Timeline(request.arrival_seconds)

    @property
    def asks_first(self) -> bool:
        """Whether its look-up is news: what is asked again after a preemption, or by a sibling, was asked before."""
        return not (self.preemptions or self.choice)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.prompt_tokens
