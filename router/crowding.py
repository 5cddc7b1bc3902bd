"""Where a prompt would push out what is still in use: a price on such placements, for a home that holds too much.

A ring gives a worker keys by chance, and sometimes more conversations than its cache holds. Each then finds its blocks
gone when it comes back, however idle the others are. What tells such a worker is the age of what it gives up: a fleet
whose caches are equally used gives up blocks of like age; a crowded worker gives up blocks that are several times
younger than what half of the fleet or more keeps for nothing. One worker with room, just restarted or larger than the
others, crowds nobody: all would send it their new prompts at once, and wait for it. Nor is a worker crowded before it
has let go of as many blocks as it holds: whose cache has just filled up has only been used first.
"""

from __future__ import annotations

from collections.abc import Sequence

from router.candidates import Candidates
from router.core import Prompt
from router.worker_state import WorkerState

YOUNGER = 4.0
"""So many times younger than the oldest blocks of half of the fleet is what a crowded worker gives up."""

_HAS_ROOM = 0.8
"""A directory that has let blocks go has room again below this part of its bound: bounds are learned, and move."""

LOOK_EVERY = 32
"""Placements between two looks at the fleet's oldest blocks; they hardly change."""


class Crowding:
    """The age of the oldest blocks of a fleet; room that was never used is as old as the first placement."""

    __slots__ = ("_began_at", "_half_keep_since", "_looked")

    def __init__(self) -> None:
        self._began_at: float | None = None
        self._half_keep_since = 0.0
        self._looked = 0

    def look(self, states: Sequence[WorkerState], now: float) -> None:
        """A placement was made: look again, if it is time to."""
        if self._began_at is None:
            self._began_at = now
        if self._looked % LOOK_EVERY == 0:
            oldest = sorted([self._gives_up(state, 0) for state in states])
            self._half_keep_since = oldest[(len(oldest) - 1) // 2] if oldest else now
        self._looked += 1

    def crowded(self, state: WorkerState, blocks: int, now: float) -> bool:
        """Whether `blocks` more would push out blocks that are much younger than what others keep."""
        directory = state.directory
        if self._began_at is None or directory.evicted_blocks < directory.bound_blocks:
            return False
        return (now - self._gives_up(state, blocks)) * YOUNGER < now - self._half_keep_since

    def weigh(
        self, candidates: Candidates, states: Sequence[WorkerState], prompt: Prompt, price: float, now: float
    ) -> None:
        """Add to the score of every crowded worker what it takes to compute again what the prompt pushes out there."""
        scores = list(candidates.scores)
        for index, state in enumerate(states):
            missing = max(0, prompt.tokens - candidates.cached_tokens[index])
            if self.crowded(state, missing // prompt.block_tokens, now):
                scores[index] += price * missing * state.rates.seconds_per_token
        candidates.scores = scores

    def _gives_up(self, state: WorkerState, blocks: int) -> float:
        """When the blocks were last used that would go first."""
        directory, began = state.directory, self._began_at or 0.0
        fits = len(directory) + blocks < directory.bound_blocks
        if fits and (not directory.evicted_blocks or len(directory) < _HAS_ROOM * directory.bound_blocks):
            return began
        return max(began, directory.oldest_at)
