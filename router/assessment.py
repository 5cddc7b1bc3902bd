"""Every candidate's numbers for one request: what it holds, how long it would wait and work, whom it would slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from router.candidates import Candidates
from router.core import Prompt, WorkerView
from router.policy import Policy, Weights
from router.roster import Roster

EXCLUDED = "excluded"
WEIGHT_ZERO = "weight_0"


class Outlook(NamedTuple):
    """What all workers are numbered by for one request: α and γ, what is expected of its answer, the time.

    `decode_growth` is by how many seconds a decode step grows per token of context. `exclude` names workers that must
    not get the request.
    """

    price: float
    decode_weight: float
    expected_output_tokens: float
    decode_growth: float
    exclude: frozenset[str]
    now: float


def assess(prompt: Prompt, roster: Roster, policy: Policy, outlook: Outlook) -> Candidates:
    """Number every worker of the roster for `prompt`; who cannot be chosen is numbered too, with the reason.

    One loop over the workers, kept flat: it is most of what a placement costs.
    """
    price, decode_weight, outputs, decode_growth, exclude, now = outlook
    exact, block_tokens, tokens = prompt.exact_blocks, prompt.block_tokens, prompt.tokens
    most_cached, half_outputs, own_growth = max(0, tokens - 1), outputs / 2, decode_growth * tokens
    assessed = Candidates(roster.names, _reasons(roster.views, exclude), [state.known for state in roster.states])
    add_cached, add_wait, add_own = assessed.cached_tokens.append, assessed.wait.append, assessed.own.append
    add_decode, add_load = assessed.decode.append, assessed.loads.append
    for view, state in zip(roster.views, roster.states, strict=True):
        rates, requests = state.rates, state.requests
        per_token = rates.seconds_per_token
        cached = state.holds.match(exact) * block_tokens
        if cached > most_cached:
            cached = most_cached
        add_cached(cached)
        add_own(rates.fixed_seconds + (tokens - cached or 1) * per_token)
        if requests:
            add_wait(state.queue.wait(now))
            mine = outputs * (decode_growth * state.context_tokens + requests * per_token)
            add_decode(mine + requests * half_outputs * (own_growth + per_token))
        else:
            add_wait(0.0)
            add_decode(0.0)
        if requests < view.in_flight:
            requests = view.in_flight
        add_load(requests)
    assessed.usable = [index for index, because in enumerate(assessed.inadmissible) if because is None]
    assessed.scores = policy.scores(assessed, Weights(price, decode_weight))
    return assessed


def _reasons(views: Sequence[WorkerView], exclude: frozenset[str]) -> list[str | None]:
    """Why each worker may not be chosen; weight 0 counts only while somebody of another weight can serve."""
    # The condition says what `inadmissible_because` would, without a call for each worker that may.
    reasons = [
        None if view.ready and not view.draining and view.max_in_flight is None else view.inadmissible_because
        for view in views
    ]
    if exclude:
        reasons = [EXCLUDED if view.name in exclude else why for view, why in zip(views, reasons, strict=True)]
    drained = [index for index, view in enumerate(views) if not view.weight and reasons[index] is None]
    if drained and len(drained) < reasons.count(None):
        for index in drained:
            reasons[index] = WEIGHT_ZERO
    return reasons
