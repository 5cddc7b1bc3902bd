"""The nouns of placement: frozen facts that go in, decisions with their reasons that come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

Json = Any
"""A decoded JSON value."""


class Fold(NamedTuple):
    """One span of the original prompt that the routing key reads as something else.

    `start` and `end` are code points of the original string. `message` is the index in `messages`
    (None for tools and completion prompts), `part` the index in a parts array (None for a plain string).
    """

    rule: str
    message: int | None
    start: int
    end: int
    part: int | None = None


@dataclass(frozen=True, slots=True)
class PromptSource:
    """What the prompt pipeline reads of a request: either `messages` or `prompt` is set.

    `prompt` is text, or token ids; a batch is reduced to its first item by whoever parses the request.
    `template_arguments` go to the chat template as they are (`chat_template_kwargs`, `documents`, …). `digest` is
    router/seen_prompts.py's, made when it is first asked for: nobody changes what a source holds.
    """

    messages: Sequence[Mapping[str, Json]] | None = None
    prompt: str | Sequence[int] | None = None
    tools: Sequence[Mapping[str, Json]] | None = None
    add_generation_prompt: bool = True
    template_arguments: Mapping[str, Json] = field(default_factory=dict)
    digest: bytes | None = field(default=None, init=False, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt reduced to what placement needs: two chains of 16-byte block hashes.

    `exact_blocks` hash the tokens as they will be forwarded (full blocks only); beliefs and KV events
    speak this chain. `key_blocks` hash the folded prompt, the last partial block too, so the list is
    never empty; only the ring and the adaptive key see it. Where bytes stand in for the model's tokeniser,
    `text_bytes` counts them, and `tokens` and `block_tokens` are estimates made from it; else it is None.
    """

    tokens: int
    block_tokens: int
    exact_blocks: Sequence[bytes]
    key_blocks: Sequence[bytes]
    folds: tuple[Fold, ...] = ()
    text_bytes: int | None = None


@dataclass(slots=True)
class WorkerView:
    """One worker as the gateway sees it at the moment of placement.

    Nothing of it changes but `in_flight`, which whoever made it may keep at the present count.

    `max_in_flight` None means no hard bound. `cache_blocks` is the worker's own word on its cache size,
    in routing blocks, where it gives one. `prefill_tokens_per_second` and `prefill_fixed_seconds` are
    configured starting points; the router learns better ones. `waiting` is the worker's own queue length. `joined` is
    False until the worker was ready for the first time: it is nobody's home before.
    """

    name: str
    ready: bool = True
    draining: bool = False
    in_flight: int = 0
    max_in_flight: int | None = None
    cache_blocks: int | None = None
    prefill_tokens_per_second: float | None = None
    prefill_fixed_seconds: float | None = None
    zone: str | None = None
    waiting: int | None = None
    adapters: frozenset[str] = frozenset()
    weight: int = 1
    joined: bool = True

    @property
    def admissible(self) -> bool:
        """Ready, not leaving, and below its hard concurrency bound."""
        return self.inadmissible_because is None

    @property
    def inadmissible_because(self) -> str | None:
        """The reason this worker may not take a request now, or None."""
        if not self.ready:
            return "not_ready"
        if self.draining:
            return "draining"
        if self.max_in_flight is not None and self.in_flight >= self.max_in_flight:
            return "full"
        return None


@dataclass(frozen=True, slots=True)
class FleetView:
    """A picture of the workers of one model, of whom only the counts change; names are unique and stable."""

    workers: tuple[WorkerView, ...]


class Candidate(NamedTuple):
    """One worker's numbers in one placement; seconds are predictions, `score` is what was compared.

    `known` says that the cached tokens come from the worker's own events, and are not only believed.
    """

    worker: str
    inadmissible_because: str | None
    cached_tokens: int
    wait_seconds: float
    own_seconds: float
    decode_seconds: float
    score: float
    known: bool = False


class Placement(NamedTuple):
    """Who gets a request and why.

    `worker` is None only when nobody is admissible (`reason` then is `no_worker`). `home` is the worker that the
    ring names for `key`, the best of them where the key has several `homes`. `predicted_cached_tokens` is what the
    winner is believed to hold. `price` is α at that moment, `slack_seconds` what a home may be worse by. `candidates`
    is empty where a home was chosen and nobody needed the others' numbers.
    """

    request_id: str
    worker: str | None
    reason: str
    policy: str
    home: str | None
    key: bytes
    predicted_cached_tokens: int
    predicted_seconds: float
    candidates: Sequence[Candidate]
    price: float = 1.0
    slack_seconds: float = 0.0
    homes: int = 1

    @property
    def at_home(self) -> bool:
        """Whether the ring's home got the request."""
        return self.worker is not None and self.worker == self.home


NEWS_PLACED = "placed"
NEWS_FIRST_TOKEN = "first_token"  # noqa: S105
NEWS_ENDED = "ended"


class News(NamedTuple):
    """What another replica tells about one request: the placement, or that its first token or its end came.

    `silent` says of a placement that its answer comes all at once, so that nobody will see its first token.
    """

    kind: str
    request_id: str
    worker: str
    blocks: Sequence[bytes]
    prefill_seconds: float
    prompt_tokens: int = 0
    silent: bool = False
