"""One answer's life: its tokens, its blocks, how far it is computed, and when things happened to it."""

from __future__ import annotations

from array import array

from backends.answer import Answer
from backends.hashing import BlockKey
from backends.types import GenerationRequest, SamplingParams


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
    append-only until released. `block_keys` names the full blocks of the known tokens; it is computed once and
    outlives preemptions. The first `registered_blocks` blocks of the table are findable in the prefix cache.
    `cached_tokens` is the hit of the first admission, None before it. `max_tokens` bounds the output.
    """

    __slots__ = (
        "answer",
        "block_ids",
        "block_keys",
        "cached_tokens",
        "choice",
        "computed_tokens",
        "end_ids",
        "max_tokens",
        "preemptions",
        "prompt_tokens",
        "registered_blocks",
        "request",
        "request_id",
        "root_key",
        "sampling",
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
        self.computed_tokens = 0
        self.block_ids: list[int] = []
        self.root_key: BlockKey | None = None
        self.block_keys: list[BlockKey] = []
        self.registered_blocks = 0
        self.cached_tokens: int | None = None
        self.preemptions = 0
        self.times = Timeline(request.arrival_seconds)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far."""
        return len(self.token_ids) - self.prompt_tokens
