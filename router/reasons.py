"""A placement's reason in words: who got the request, what spoke for it, and by how much; names and numbers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isinf

from router.core import Candidate, Placement
from router.policy import (
    CHOSEN,
    HOME,
    LEFT_HOME_CACHED,
    LEFT_HOME_LOAD,
    LEFT_HOME_UNAVAILABLE,
    NO_HOME,
    NO_WORKER,
)

_NAMED_AT_MOST = 4
"""More workers than this are counted and not named."""

_SHOWN_SECONDS = 0.0005
"""Less than this is 0.000 s in words."""

_COUNTS_REQUESTS = frozenset({"chwbl", "least_loaded"})
"""Policies whose score is requests in flight; that of the others, where there is any, is in seconds."""


def in_words(placement: Placement) -> str:
    """One sentence that begins with the reason: `home: worker-3 is the prompt's home, and nobody is better`."""
    words = _WORDS.get(placement.reason) if placement.candidates or placement.worker is None else _unnumbered
    return f"{placement.reason}: {words(placement)}" if words is not None else placement.reason


def _unnumbered(placement: Placement) -> str:
    """What can be said where nobody asked for the candidates' numbers."""
    return f"{placement.worker} of the home {placement.home}; the others were not numbered"


def _home(placement: Placement) -> str:
    winner, what = _named(placement, placement.worker), _its_home(placement)
    best = _best(placement)
    if placement.policy == "chwbl":
        return f"{winner.worker}, {what}, has room: {winner.score:.0f} requests in flight"
    if isinf(placement.slack_seconds):
        return f"{winner.worker} is {what}, whatever its load"
    if best is None or best.worker == winner.worker or best.score >= winner.score:
        return f"{winner.worker} is {what}, and nobody is better"
    return (
        f"{winner.worker}, {what}, is {winner.score - best.score:.3f} s worse than the best, {best.worker}, "
        f"and may be {placement.slack_seconds:.3f} s worse"
    )


def _left_for_cache(placement: Placement) -> str:
    winner, home = _named(placement, placement.worker), _named(placement, placement.home)
    return (
        f"{winner.worker} holds {winner.cached_tokens} tokens of the prompt and the home, {home.worker}, "
        f"{home.cached_tokens}; {_how_much_better(placement, winner, home)}"
    )


def _left_for_load(placement: Placement) -> str:
    winner, home = _named(placement, placement.worker), _named(placement, placement.home)
    return f"at the home, {home.worker}, {_busy(placement, winner, home)}; {_how_much_better(placement, winner, home)}"


def _busy(placement: Placement, winner: Candidate, home: Candidate) -> str:
    """What is worse at the home: the first of what its score is made of."""
    if placement.policy in _COUNTS_REQUESTS:
        return f"there are {home.score:.0f} requests in flight"
    if home.wait_seconds > winner.wait_seconds + _SHOWN_SECONDS:
        return f"it would wait {home.wait_seconds:.3f} s"
    if home.own_seconds > winner.own_seconds + _SHOWN_SECONDS:
        return f"its prefill would take {home.own_seconds:.3f} s"
    if home.decode_seconds > winner.decode_seconds + _SHOWN_SECONDS:
        return f"it and the answers in progress would slow each other by {home.decode_seconds:.3f} s"
    return "it would push out what is still in use"


def _how_much_better(placement: Placement, winner: Candidate, home: Candidate) -> str:
    if placement.policy in _COUNTS_REQUESTS:
        return f"at {winner.worker} there are {winner.score:.0f}"
    better = f"{winner.worker} is {home.score - winner.score:.3f} s better"
    return f"{better}, more than the {placement.slack_seconds:.3f} s that keep it at home"


def _unavailable(placement: Placement) -> str:
    home = _named(placement, placement.home)
    return f"the home, {home.worker}, cannot take it ({home.inadmissible_because}); {placement.worker} stands in"


def _no_home(placement: Placement) -> str:
    if placement.home is not None:
        return f"the home, {placement.home}, is not among the workers (any more), and {placement.worker} can take it"
    return f"nobody is on the ring, and {placement.worker} can take it"


def _no_worker(placement: Placement) -> str:
    told = [f"{one.worker} ({one.inadmissible_because})" for one in placement.candidates[:_NAMED_AT_MOST]]
    more = len(placement.candidates) - len(told)
    if not told:
        return "the model has no workers"
    return f"nobody can take it: {', '.join(told)}" + (f" and {more} more" if more else "")


def _chosen(placement: Placement) -> str:
    winner = _named(placement, placement.worker)
    if placement.policy in _COUNTS_REQUESTS:
        return f"{winner.worker} has the fewest requests in flight, {winner.score:.0f}"
    return f"it was {winner.worker}'s turn" if placement.policy == "round_robin" else f"{winner.worker} was drawn"


_WORDS: Mapping[str, Callable[[Placement], str]] = {
    HOME: _home,
    LEFT_HOME_CACHED: _left_for_cache,
    LEFT_HOME_LOAD: _left_for_load,
    LEFT_HOME_UNAVAILABLE: _unavailable,
    NO_HOME: _no_home,
    NO_WORKER: _no_worker,
    CHOSEN: _chosen,
}


def _its_home(placement: Placement) -> str:
    return "the prompt's home" if placement.homes == 1 else f"one of the prompt's {placement.homes} homes"


def _best(placement: Placement) -> Candidate | None:
    able = [one for one in placement.candidates if one.inadmissible_because is None]
    return min(able, key=lambda one: one.score, default=None)


def _named(placement: Placement, worker: str | None) -> Candidate:
    return next(one for one in placement.candidates if one.worker == worker)
