"""The candidates of one placement, kept as columns: every worker is numbered, and few of the numbers are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from router.core import Candidate


class Candidates(Sequence[Candidate]):
    """Every worker's numbers in the order of the roster; reads like a sequence of `Candidate`.

    The columns are of one length. `scores` is set by the policy; nothing else changes after the assessment.
    `known` says whose cached tokens are known and not believed, `loads` are requests in flight, `usable` the indices
    of those that may be chosen.
    """

    __slots__ = (
        "cached_tokens", "decode", "inadmissible", "known", "loads", "own", "scores", "usable", "wait", "workers"
    )  # fmt: skip

    def __init__(self, workers: Sequence[str], inadmissible: Sequence[str | None], known: Sequence[bool]) -> None:
        self.workers = workers
        self.inadmissible = inadmissible
        self.known = known
        self.cached_tokens: list[int] = []
        self.wait: list[float] = []
        self.own: list[float] = []
        self.decode: list[float] = []
        self.loads: list[int] = []
        self.scores: Sequence[float] = ()
        self.usable: Sequence[int] = ()

    def __len__(self) -> int:
        """How many workers there are."""
        return len(self.workers)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Candidate, ...]: ...

    def __getitem__(self, index: int | slice) -> Candidate | tuple[Candidate, ...]:
        """One worker's numbers, or those of several."""
        if isinstance(index, slice):
            return tuple([self[place] for place in range(*index.indices(len(self)))])
        return Candidate(
            self.workers[index],
            self.inadmissible[index],
            self.cached_tokens[index],
            self.wait[index],
            self.own[index],
            self.decode[index],
            self.scores[index],
            self.known[index],
        )

    def __iter__(self) -> Iterator[Candidate]:
        """All of them, built as they are asked for."""
        seconds = (self.wait, self.own, self.decode, self.scores)
        return map(Candidate, self.workers, self.inadmissible, self.cached_tokens, *seconds, self.known)

    def __eq__(self, other: object) -> bool:
        """Equal numbers of equal workers, whatever holds them."""
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    __hash__ = None  # type: ignore[assignment]
