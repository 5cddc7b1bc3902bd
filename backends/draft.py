"""A step while it is being planned: what it computes so far, and how many tokens it may still."""

from __future__ import annotations

from backends.sequence import Sequence
from backends.types import ScheduledSequence


class Draft:
    """Items in the order of the running sequences. A victim of a preemption gives its tokens back."""

    __slots__ = ("_chunk_tokens", "budget_tokens", "items", "preempted", "sequences")

    def __init__(self, budget_tokens: int, chunk_tokens: int) -> None:
        self.items: list[ScheduledSequence] = []
        self.sequences: list[Sequence] = []
        self.budget_tokens = budget_tokens
        self.preempted = 0
        self._chunk_tokens = chunk_tokens

    def end_of(self, start_token: int, known_tokens: int) -> int:
        """How far a sequence may be computed in this step."""
        return min(known_tokens, start_token + self.budget_tokens, start_token + self._chunk_tokens)

    def add(self, sequence: Sequence, start_token: int, end_token: int) -> None:
        """Compute a sequence up to `end_token`; what follows its last known token is sampled, if anything may."""
        tokens = end_token - start_token
        samples = end_token == len(sequence.token_ids) < sequence.limit_tokens
        self.items.append(ScheduledSequence(sequence, start_token, tokens, samples))
        self.sequences.append(sequence)
        self.budget_tokens -= tokens

    def drop(self, victim: Sequence) -> None:
        """A sequence was preempted; it may have been planned already."""
        self.preempted += 1
        if victim in self.sequences:
            place = self.sequences.index(victim)
            self.budget_tokens += self.items[place].token_count
            del self.items[place], self.sequences[place]
