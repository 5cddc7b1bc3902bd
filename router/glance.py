"""The choice of `homing` without numbering everybody: the very same winner, and nothing to show of the others.

What all workers lose by a placement is no less than the price of its own prefill. So a worker whose prefill alone costs
more than the best so far need not be looked at any further; and a home that is within the slack of what an idle holder
of all the prompt would cost is chosen without looking at anybody else. What takes more (replicas that are not heard,
crowding, a home that cannot serve, ties that go by the ring) is not answered here, and is left to the numbers.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from router.assessment import Outlook
from router.core import Prompt, WorkerView
from router.policy import SCORE_TIE
from router.roster import Roster
from router.worker_state import WorkerState


class Numbers(NamedTuple):
    """One worker's numbers for one request; `at` is where it stands in the roster."""

    at: int
    cached_tokens: int
    wait_seconds: float
    own_seconds: float
    decode_seconds: float
    score: float


def numbers(at: int, prompt: Prompt, roster: Roster, outlook: Outlook) -> Numbers:
    """What `assess` says of this worker, and the score that the policy `homing` gives it."""
    state, tokens = roster.states[at], prompt.tokens
    rates = state.rates
    cached = state.holds.match(prompt.exact_blocks) * prompt.block_tokens
    if cached >= tokens:
        cached = max(0, tokens - 1)
    own = rates.fixed_seconds + (tokens - cached or 1) * rates.seconds_per_token
    return _scored(at, state, cached, own, tokens, outlook)


def good_enough(home: Numbers, roster: Roster, outlook: Outlook, slack_seconds: float) -> bool:
    """Whether nobody can be better than this home by more than the slack, whatever he holds."""
    return home.score <= outlook.weights.price * roster.least_own_seconds + slack_seconds


def best_home(
    first: Numbers, homes: int, key: bytes, prompt: Prompt, roster: Roster, outlook: Outlook
) -> Numbers | None:
    """The best of the first `homes` of the key's walk, which begins with `first`; None if any of them cannot serve."""
    best = first
    for at in islice(_walked(key, roster), homes):
        if at is None or not can_serve(roster.views[at], outlook.exclude):
            return None
        if at != first.at:
            other = numbers(at, prompt, roster, outlook)
            best = other if other.score < best.score else best
    return best


def best_beside(
    home: Numbers, prompt: Prompt, roster: Roster, outlook: Outlook, slack_seconds: float
) -> Numbers | None:
    """`home`, or who is better by more than the slack; None where several are, and equally so."""
    exact, block_tokens, tokens = prompt.exact_blocks, prompt.block_tokens, prompt.tokens
    price, least, rivals = outlook.weights.price, home.score, [home]
    for at, state in enumerate(roster.states):
        rates = state.rates
        cached = state.holds.match(exact) * block_tokens
        if cached >= tokens:
            cached = max(0, tokens - 1)
        own = rates.fixed_seconds + (tokens - cached or 1) * rates.seconds_per_token
        if price * own > least + SCORE_TIE or at == home.at or not can_serve(roster.views[at], outlook.exclude):
            continue
        rival = _scored(at, state, cached, own, tokens, outlook)
        rivals.append(rival)
        least = min(least, rival.score)
    if home.score <= least + slack_seconds:
        return home
    best = [rival for rival in rivals if rival.score <= least + SCORE_TIE]
    return best[0] if len(best) == 1 else None


def can_serve(view: WorkerView, exclude: frozenset[str]) -> bool:
    """Whether nothing speaks against choosing this worker."""
    return (
        view.ready
        and not view.draining
        and bool(view.weight)
        and (view.max_in_flight is None or view.in_flight < view.max_in_flight)
        and (not exclude or view.name not in exclude)
    )


def _scored(at: int, state: WorkerState, cached: int, own: float, tokens: int, outlook: Outlook) -> Numbers:
    weights, outputs, growth, _, now = outlook
    price, decode_weight = weights
    requests = state.requests
    wait = decode = 0.0
    if requests:
        wait, per_token = state.queue.wait(now), state.rates.seconds_per_token
        mine = outputs * (growth * state.context_tokens + requests * per_token)
        decode = mine + requests * (outputs / 2) * (growth * tokens + per_token)
    return Numbers(at, cached, wait, own, decode, wait + price * own + decode_weight * decode)


def _walked(key: bytes, roster: Roster) -> Iterator[int | None]:
    return map(roster.position.get, roster.ring.walk(key))
