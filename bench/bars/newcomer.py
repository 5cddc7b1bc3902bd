"""What a ninth worker does to a fleet under load: which warm prefixes move, and how long the hit rate suffers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from bench.peers.routing_keys import common_blocks
from router.replay.core import Chooser, Churn, EngineSettings, Replayed, Trace
from router.replay.simulate import replay

WINDOW_SECONDS = 300.0
STEP_SECONDS = 10.0
TOLERATED_POINTS = 0.02


class Newcomer(NamedTuple):
    """`moved_share` of the warm prefixes asked for again came elsewhere, `moved_share_alone` where nobody joined.

    `to_newcomer_share` of them came to the newcomer.

    `recovery_seconds` after the joining the hit rate is back within 2 points: that of the five minutes that follow, and
    of what the same requests hit where nobody joined, for the traffic's own hit rate varies by more. `dip_points` is
    what the first minute hits less. `newcomer_share` of the requests of the first five minutes went to the newcomer.
    """

    moved_share: float
    moved_share_alone: float
    to_newcomer_share: float
    recovery_seconds: float
    dip_points: float
    newcomer_share: float


def watch_newcomer(trace: Trace, build: Callable[[], Chooser], settings: EngineSettings, time_scale: float) -> Newcomer:
    """Replay twice, with a ninth worker half-way and without."""
    joins_at = trace.requests[len(trace.requests) // 2].at_seconds * time_scale
    joined = replay(
        trace, build(), settings, time_scale=time_scale, churn=[Churn(joins_at, settings.workers, joins=True)]
    )
    alone = replay(trace, build(), settings, time_scale=time_scale)
    moves = moved_to(trace, joined, joins_at)
    after = [one for one in joined.outcomes if 0 <= one.sent_at_seconds - joins_at < WINDOW_SECONDS]
    return Newcomer(
        moved_share=share(worker is not None for worker in moves),
        moved_share_alone=share(worker is not None for worker in moved_to(trace, alone, joins_at)),
        to_newcomer_share=share(worker == settings.workers for worker in moves),
        recovery_seconds=recovery_seconds(trace, joined, alone, joins_at),
        dip_points=100 * (_hit_rate(trace, alone, joins_at, 60.0) - _hit_rate(trace, joined, joins_at, 60.0)),
        newcomer_share=share(one.worker == settings.workers for one in after),
    )


def share(verdicts: Iterable[bool]) -> float:
    """How many of all are true; 0 of none."""
    counted = list(verdicts)
    return sum(counted) / max(1, len(counted))


def moved_to(trace: Trace, replayed: Replayed, at_seconds: float) -> list[int | None]:
    """For each warm prefix asked for again in the five minutes after: None, or the worker without it that it came to.

    A prefix is warm at the workers that were sent it in the five minutes before; the longest warm one of a prompt
    counts, once. Beginnings common to more than 1 % of all prompts are everywhere and do not count.
    """
    common = common_blocks(trace)
    warm: dict[bytes, set[int]] = {}
    moves: dict[bytes, int | None] = {}
    for one in sorted(replayed.outcomes, key=lambda one: one.sent_at_seconds):
        offset, chain = one.sent_at_seconds - at_seconds, trace.requests[one.number].prompt.exact_blocks
        if -WINDOW_SECONDS <= offset < 0:
            for block in chain:
                warm.setdefault(block, set()).add(one.worker)
        elif 0 <= offset < WINDOW_SECONDS:
            longest = next((block for block in reversed(chain) if block in warm), None)
            if longest is not None and longest not in common:
                moves.setdefault(longest, None if one.worker in warm[longest] else one.worker)
    return list(moves.values())


def recovery_seconds(trace: Trace, joined: Replayed, alone: Replayed, at_seconds: float) -> float:
    """From the joining to the first moment whose next five minutes hit within 2 points of what nobody's coming hits."""
    for step in range(int(2 * WINDOW_SECONDS / STEP_SECONDS)):
        start = at_seconds + STEP_SECONDS * step
        if _hit_rate(trace, joined, start) >= _hit_rate(trace, alone, start) - TOLERATED_POINTS:
            break
    return start - at_seconds


def _hit_rate(trace: Trace, replayed: Replayed, start: float, seconds: float = WINDOW_SECONDS) -> float:
    within = [one for one in replayed.outcomes if start <= one.sent_at_seconds < start + seconds]
    tokens = sum(trace.requests[one.number].prompt.tokens for one in within)
    return sum(one.cached_tokens for one in within) / max(1, tokens)
