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
        cached = tokens - 1 if tokens else 0
    own = rates.fixed_seconds + (tokens - cached or 1) * rates.seconds_per_token
    wait, decode = others(state, tokens, outlook) if state.requests else (0.0, 0.0)
    return Numbers(at, cached, wait, own, decode, wait + outlook.price * own + outlook.decode_weight * decode)


def others(state: WorkerState, tokens: int, outlook: Outlook) -> tuple[float, float]:
    """What a busy worker's other requests cost: the wait behind them, and slowing each other's decoding, seconds."""
    _, _, outputs, growth, _, now = outlook
    requests, per_token = state.requests, state.rates.seconds_per_token
    mine = outputs * (growth * state.context_tokens + requests * per_token)
    return state.queue.wait(now), mine + requests * (outputs / 2) * (growth * tokens + per_token)


def good_enough(home: Numbers, roster: Roster, outlook: Outlook, slack_seconds: float) -> bool:
    """Whether nobody can be better than this home by more than the slack, whatever he holds."""
    return home.score <= outlook.price * roster.least_own_seconds + slack_seconds


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
    price, decode_weight, least = outlook.price, outlook.decode_weight, home.score
    owns = [
        fixed_seconds + (left if (left := tokens - state.holds.match(exact) * block_tokens) > 0 else 1) * per_token
        for state, (fixed_seconds, per_token) in zip(roster.states, roster.speeds, strict=True)
    ]
    scores = {home.at: least}
    # Who has least to do of his own is looked at first: most others need no look then.
    for at in (owns.index(min(owns)), *range(len(owns))):
        score = price * owns[at]
        if score > least + SCORE_TIE or at in scores or not can_serve(roster.views[at], outlook.exclude):
            continue
        state = roster.states[at]
        if state.requests:
            wait, decode = others(state, tokens, outlook)
            score = wait + score + decode_weight * decode
        scores[at] = score
        least = min(least, score)
    if home.score <= least + slack_seconds:
        return home
    best = [at for at, score in scores.items() if score <= least + SCORE_TIE]
    return numbers(best[0], prompt, roster, outlook) if len(best) == 1 else None


def can_serve(view: WorkerView, exclude: frozenset[str]) -> bool:
    """Whether nothing speaks against choosing this worker."""
    return (
        view.ready
        and not view.draining
        and bool(view.weight)
        and (view.max_in_flight is None or view.in_flight < view.max_in_flight)
        and (not exclude or view.name not in exclude)
    )


def _walked(key: bytes, roster: Roster) -> Iterator[int | None]:
    return map(roster.position.get, roster.ring.walk(key))
