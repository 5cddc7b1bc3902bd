"""How much to believe of a directory: its bound, learned from what workers report to have had cached.

A worker that reports far less than believed holds less (its pool is smaller, or shared with long answers): the bound
shrinks a little for each such answer, and grows a little where the worker held more than believed; where both balance
the bound fits. A run of answers without any of what was believed means a restart: clear, and keep the bound. A second
run without a single hit in between means that the worker caches next to nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

BOUND_BLOCKS = 8192
"""Where nothing is known: half a million tokens in blocks of 64, an 8B model on a big card."""

RESTART_AFTER = 6
"""So many answers in a row that found nothing of what was believed; fewer would mistake a small cache for a restart."""

_SHRINK = 0.15
_GROW = 0.04
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

    `told_blocks` is the worker's own word on its cache: the start, and then the most that the bound may be.
    """

    __slots__ = ("_before_misses", "_bound", "_hit_since_clear", "_misses", "told_blocks")

    def __init__(self, told_blocks: int | None = None) -> None:
        self.told_blocks = told_blocks
        self._bound = float(BOUND_BLOCKS if told_blocks is None else max(1, told_blocks))
        self._before_misses = self._bound
        self._misses = 0
        self._hit_since_clear = True

    @property
    def bound_blocks(self) -> int:
        """The directory's bound now."""
        return int(self._bound)

    def learn(self, report: Report) -> Verdict:
        """Compare one prediction with the worker's word."""
        lost = report.predicted_tokens - report.reported_tokens
        slack = max(_SLACK_BLOCKS * report.block_tokens, _SLACK_SHARE * report.predicted_tokens)
        if lost > slack:
            return self._lost(report, lost / report.predicted_tokens)
        self._misses = 0
        self._hit_since_clear |= report.reported_tokens >= report.block_tokens
        if -lost > slack:
            return self._move(1 + _GROW)
        return Verdict.KEEP

    def _lost(self, report: Report, share: float) -> Verdict:
        self._misses = self._misses + 1 if report.reported_tokens < report.block_tokens else 0
        self._hit_since_clear |= not self._misses
        if self._misses <= 1:
            self._before_misses = self._bound
        if self._misses == RESTART_AFTER:
            return self._restarted()
        return self._move(1 - _SHRINK * share)

    def _restarted(self) -> Verdict:
        self._bound = self._before_misses
        self._move(1.0 if self._hit_since_clear else _NEVER_HITS_FACTOR)
        self._misses, self._hit_since_clear = 0, False
        return Verdict.CLEAR

    def _move(self, factor: float) -> Verdict:
        before = self.bound_blocks
        most = _GROWTH_LIMIT * BOUND_BLOCKS if self.told_blocks is None else max(1, self.told_blocks)
        self._bound = min(float(most), max(float(min(_LEAST_BLOCKS, most)), self._bound * factor))
        return Verdict.KEEP if self.bound_blocks == before else Verdict.RESIZE
