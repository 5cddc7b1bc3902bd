"""How much to believe of a directory: its bound, learned from what workers report to have had cached.

A worker that reports far less than believed holds less (its pool is smaller, or shared with long answers): the bound
shrinks a little for each such answer. One that held more than was believed, while the directory was full, holds more
(a second tier, a size told wrongly): the bound grows as much. Where both balance the bound fits, and as they alternate
the steps become small; a run in one direction makes them large again. A run of answers without any of what was
believed means a restart: clear, and keep the bound. A second run without a single hit in between means that the worker
caches next to nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

BOUND_BLOCKS = 8192
"""Where nothing is known: half a million tokens in blocks of 64, an 8B model on a big card."""

RESTART_AFTER = 6
"""So many answers in a row that found nothing of what was believed; fewer would mistake a small cache for a restart."""

_TOLD_STEP = 0.1
_MOST_STEP = 0.3
_LEAST_STEP = 0.01
_STEP_AT_A_TURN = 0.6
_STEP_AFTER_A_RUN = 1.5
_RUN = 4
"""So many moves one way after the other: the bound is not near the truth yet, or the truth has changed."""

_SLACK_SHARE = 0.1
_SLACK_BLOCKS = 2
_LEAST_BLOCKS = 16
_GROWTH_LIMIT = 16
_NEVER_HITS_FACTOR = 0.25


class Verdict(Enum):
    """What a comparison of belief and report asks for."""

    KEEP = "keep"
    RESIZE = "resize"
    CLEAR = "clear"


class Report(NamedTuple):
    """One answer's comparison, in tokens as the router counts them."""

    predicted_tokens: int
    reported_tokens: int
    block_tokens: int


class Belief:
    """The bound of one worker's directory, in blocks, as learned so far.

    `told_blocks` is the worker's own word on its cache: the start, and what the bound may not exceed many times.
    """

    __slots__ = ("_before_misses", "_bound", "_hit_since_clear", "_least", "_misses", "_run", "_step", "told_blocks")

    def __init__(self, told_blocks: int | None = None) -> None:
        self.told_blocks = told_blocks
        self._bound = float(BOUND_BLOCKS if told_blocks is None else max(1, told_blocks))
        self._before_misses = self._bound
        self._misses = 0
        self._hit_since_clear = True
        self._least = min(_LEAST_BLOCKS, int(self._bound))
        self._step = _MOST_STEP if told_blocks is None else _TOLD_STEP
        self._run = 0

    @property
    def bound_blocks(self) -> int:
        """The directory's bound now."""
        return int(self._bound)

    def learn(self, report: Report, *, full: bool = True) -> Verdict:
        """Compare one prediction with the worker's word.

        `full` says that the directory is at its bound: one that is not may believe too little for having seen little.
        """
        predicted, reported, block_tokens = report
        lost = predicted - reported
        slack = max(_SLACK_BLOCKS * block_tokens, _SLACK_SHARE * predicted)
        if lost > slack:
            return self._lost(report, lost / predicted)
        self._misses = 0
        self._hit_since_clear |= reported >= block_tokens
        if -lost > slack and full:
            return self._move(1 + self._stride(1) * -lost / reported)
        return Verdict.KEEP

    def _lost(self, report: Report, share: float) -> Verdict:
        self._misses = self._misses + 1 if report.reported_tokens < report.block_tokens else 0
        self._hit_since_clear |= not self._misses
        if self._misses <= 1:
            self._before_misses = self._bound
        if self._misses == RESTART_AFTER:
            return self._restarted()
        return self._move(1 - self._stride(-1) * share)

    def _restarted(self) -> Verdict:
        self._bound = self._before_misses
        self._move(1.0 if self._hit_since_clear else _NEVER_HITS_FACTOR)
        self._misses, self._hit_since_clear = 0, False
        return Verdict.CLEAR

    def _stride(self, direction: int) -> float:
        """How far to go now, up (1) or down (-1): less at every turn, more again after a run."""
        if self._run * direction < 0:
            self._step = max(_LEAST_STEP, self._step * _STEP_AT_A_TURN)
            self._run = 0
        self._run += direction
        if self._run % _RUN == 0:
            self._step = min(_MOST_STEP, self._step * _STEP_AFTER_A_RUN)
        return self._step

    def _move(self, factor: float) -> Verdict:
        before = self.bound_blocks
        most = _GROWTH_LIMIT * (BOUND_BLOCKS if self.told_blocks is None else max(1, self.told_blocks))
        self._bound = min(float(most), max(float(self._least), self._bound * factor))
        return Verdict.KEEP if self.bound_blocks == before else Verdict.RESIZE
