"""The nouns of a replay: recorded requests, what the workers are, who chooses, and what came of it.

Time is trace time in seconds, and the simulation's own: nothing here looks at a clock. Worker numbers count from 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, runtime_checkable

from router.core import Prompt

EngineKind = Literal["A", "B"]
"""A: prefill first come, first served, then each answer decodes at a fixed pace. B: continuous batching with chunked
prefill."""


class TraceRequest(NamedTuple):
    """One recorded request.

    `number` is its place in the trace. `at_seconds` is when it came; in a closed loop that is so for the first of a
    session only, the others follow `think_seconds` after the answer before. `prompt` holds its blocks, the same bytes
    object for the same block all over the trace; a last partial block may be among them. An equal block must mean an
    equal prefix up to its end: caches look prompts up by bisection.
    """

    number: int
    at_seconds: float
    output_tokens: int
    session: int
    think_seconds: float
    prompt: Prompt


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of `at_seconds`; `closed_loop` says that sessions wait for their answers."""

    name: str
    block_tokens: int
    requests: Sequence[TraceRequest]
    closed_loop: bool = False


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What every worker is. A prefill takes `prefill_fixed_seconds` + uncached tokens / `prefill_tokens_per_second`.

    `cache_blocks` is each worker's cache, in the trace's blocks, an exact LRU. Other names are for one engine:
    `seconds_per_output_token` for A; for B a step takes `step_fixed_seconds`, plus its prefill at the rate, plus
    `seconds_per_context_token` for each token of context that it decodes over, and holds at most `step_tokens` tokens
    and `most_sequences` sequences.
    """

    workers: int = 8
    cache_blocks: int = 4000
    kind: EngineKind = "A"
    prefill_tokens_per_second: float = 8000.0
    prefill_fixed_seconds: float = 0.02
    seconds_per_output_token: float = 0.03
    step_fixed_seconds: float = 0.012
    seconds_per_context_token: float = 24e-9
    step_tokens: int = 2048
    most_sequences: int = 256


class Truth(Protocol):
    """What the simulated workers really are at this moment; a policy sees as much of it as its real self would.

    `present` are the numbers of the workers that may be chosen now.
    """

    settings: EngineSettings

    @property
    def present(self) -> Sequence[int]:
        """Workers that may be chosen."""
        ...

    def in_flight(self, worker: int) -> int:
        """Requests sent there and not ended, by all gateways together."""
        ...

    def waiting(self, worker: int) -> int:
        """Requests there whose prefill has not begun."""
        ...

    def active_blocks(self, worker: int) -> int:
        """Blocks of the requests in flight there, a shared block counted for each."""
        ...

    def cached_tokens(self, worker: int, prompt: Prompt) -> int:
        """Of this prompt, in its cache now; at most all but one."""
        ...

    def expected_tokens(self, worker: int, prompt: Prompt) -> int:
        """The same, with what the requests in flight there will have put into it."""
        ...

    def work_seconds(self, worker: int, now: float) -> float:
        """Prefill ahead of a request that would come now: what is left of the one being served, and all that wait."""
        ...


class Chooser(Protocol):
    """A policy under replay: one gateway's mind, or several gateways' that each get a share of the requests.

    `finished` tells what the worker's usage would: how many of the prompt's tokens it found cached.
    """

    def choose(self, request: TraceRequest, now: float, truth: Truth) -> int:
        """The worker's number."""
        ...

    def first_token(self, request: TraceRequest, now: float) -> None:
        """Its answer began."""
        ...

    def finished(self, request: TraceRequest, now: float, cached_tokens: int) -> None:
        """Its answer ended."""
        ...

    def joined(self, worker: int, now: float) -> None:
        """A worker came; it is in `truth.present` from now on."""
        ...

    def left(self, worker: int, now: float) -> None:
        """A worker gets nothing new any more; what it has, it ends."""
        ...


@runtime_checkable
class Probing(Chooser, Protocol):
    """A chooser that also looks at the workers every `probe_seconds`, whether or not a request comes."""

    probe_seconds: float

    def probed(self, now: float, truth: Truth) -> None:
        """It is time to look."""
        ...


class Churn(NamedTuple):
    """At `at_seconds` a worker joins the fleet (empty), or leaves it."""

    at_seconds: float
    worker: int
    joins: bool


class Outcome(NamedTuple):
    """What became of one request; seconds are from its sending."""

    number: int
    worker: int
    sent_at_seconds: float
    ttft_seconds: float
    total_seconds: float
    cached_tokens: int


class Replayed(NamedTuple):
    """What came of a trace: outcomes by request number, prefill seconds by worker, and when the last token came.

    In engine B the busy seconds are those of all steps.
    """

    outcomes: Sequence[Outcome]
    busy_seconds: Sequence[float]
    end_seconds: float
