"""Small traces made in the test, and choosers that do as they are told."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from router.core import Prompt
from router.replay.core import EngineSettings, Trace, TraceRequest, Truth

BLOCK_TOKENS = 100


class Ask(NamedTuple):
    """One request of a small trace: `name` says what it begins with, a dot for each block but the first ("a.b.c")."""

    at_seconds: float
    name: str
    tokens: int | None = None
    output_tokens: int = 10
    session: int | None = None
    think_seconds: float = 0.0


def build_chain(name: str) -> list[bytes]:
    """One block for each part of a dotted name; equal beginnings give equal blocks."""
    parts = name.split(".") if name else []
    return [".".join(parts[: end + 1]).encode() for end in range(len(parts))]


def build_trace(*asks: Ask, closed_loop: bool = False) -> Trace:
    """A trace of blocks of 100 tokens; prompts are full blocks unless their length is said."""
    requests = []
    for number, ask in enumerate(asks):
        chain = build_chain(ask.name)
        tokens = len(chain) * BLOCK_TOKENS if ask.tokens is None else ask.tokens
        prompt = Prompt(tokens, BLOCK_TOKENS, chain, chain)
        session = number if ask.session is None else ask.session
        requests.append(TraceRequest(number, ask.at_seconds, ask.output_tokens, session, ask.think_seconds, prompt))
    return Trace("small", BLOCK_TOKENS, requests, closed_loop)


def build_settings(**changes: object) -> EngineSettings:
    """Two workers with round figures: a second of prefill is 1,000 tokens, a token of an answer 0.1 s."""
    figures = {
        "workers": 2,
        "cache_blocks": 20,
        "prefill_tokens_per_second": 1000.0,
        "prefill_fixed_seconds": 0.5,
        "seconds_per_output_token": 0.1,
        "step_fixed_seconds": 0.25,
        "seconds_per_context_token": 0.001,
        "step_tokens": 100,
        "most_sequences": 8,
    }
    return EngineSettings(**{**figures, **changes})


class Scripted:
    """Sends each request where it is told, and keeps what it hears."""

    def __init__(self, workers: Sequence[int] | int = 0) -> None:
        self.workers = workers
        self.heard: list[tuple[str, int, float]] = []
        self.seen: list[tuple[Sequence[int], list[int], list[float]]] = []

    def choose(self, request: TraceRequest, now: float, truth: Truth) -> int:
        self.heard.append(("choose", request.number, now))
        present = truth.present
        self.seen.append(
            (
                tuple(present),
                [truth.in_flight(worker) for worker in present],
                [truth.work_seconds(worker, now) for worker in present],
            )
        )
        return self.workers if isinstance(self.workers, int) else self.workers[request.number % len(self.workers)]

    def first_token(self, request: TraceRequest, now: float) -> None:
        self.heard.append(("first_token", request.number, now))

    def finished(self, request: TraceRequest, now: float, cached_tokens: int) -> None:
        self.heard.append(("finished", request.number, now))

    def joined(self, worker: int, now: float) -> None:
        self.heard.append(("joined", worker, now))

    def left(self, worker: int, now: float) -> None:
        self.heard.append(("left", worker, now))
