"""Requests of named blocks, a fleet that is told what it is, and a peer that is asked for many at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from router.core import Prompt
from router.replay.core import EngineSettings, Trace, TraceRequest

BLOCK_TOKENS = 512


def build_request(blocks: str, number: int = 0, *, session: int = 0, output_tokens: int = 10) -> TraceRequest:
    """A prompt of one block for each letter; equal beginnings are equal blocks."""
    chain = [blocks[: end + 1].encode() for end in range(len(blocks))]
    prompt = Prompt(tokens=BLOCK_TOKENS * len(blocks), block_tokens=BLOCK_TOKENS, exact_blocks=chain, key_blocks=chain)
    return TraceRequest(number, float(number), output_tokens, session, 0.0, prompt)


def build_trace(prompts: Sequence[str], *, closed_loop: bool = False, sessions: Sequence[int] = ()) -> Trace:
    """One request a second."""
    requests = [
        build_request(blocks, number, session=sessions[number] if sessions else number)
        for number, blocks in enumerate(prompts)
    ]
    return Trace("built", BLOCK_TOKENS, requests, closed_loop)


@dataclass
class Fleet:
    """Workers that are as they are told: what they hold, by worker, in letters; requests waiting and in flight."""

    workers: int = 3
    held: dict[int, str] = field(default_factory=dict)
    queues: dict[int, int] = field(default_factory=dict)
    flights: dict[int, int] = field(default_factory=dict)
    active: dict[int, int] = field(default_factory=dict)
    settings: EngineSettings = field(default_factory=lambda: EngineSettings(workers=3, cache_blocks=100))

    @property
    def present(self) -> list[int]:
        return list(range(self.workers))

    def in_flight(self, worker: int) -> int:
        return self.flights.get(worker, 0)

    def waiting(self, worker: int) -> int:
        return self.queues.get(worker, 0)

    def active_blocks(self, worker: int) -> int:
        return self.active.get(worker, 0)

    def cached_tokens(self, worker: int, prompt: Prompt) -> int:
        held = self.held.get(worker, "")
        chain = [held[: end + 1].encode() for end in range(len(held))]
        depth = sum(mine == block for mine, block in zip(chain, prompt.exact_blocks, strict=False))
        return min(BLOCK_TOKENS * depth, prompt.tokens - 1)

    def expected_tokens(self, worker: int, prompt: Prompt) -> int:
        return self.cached_tokens(worker, prompt)

    def work_seconds(self, worker: int, now: float) -> float:
        return 0.0


def load_up(peer, worker: int, requests: int) -> None:
    """Let the peer have so many requests in flight at a worker."""
    peer.in_flight[worker] += requests
