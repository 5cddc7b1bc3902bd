"""Every candidate's numbers for one request: what it holds, how long it would wait and work, whom it would slow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from router.core import Candidate, Prompt
from router.policy import Policy, Weights
from router.roster import Roster

EXCLUDED = "excluded"
WEIGHT_ZERO = "weight_0"


class Assessed(NamedTuple):
    """The candidates in the order of the roster, requests in flight of each, and who may be chosen."""

    candidates: Sequence[Candidate]
    loads: Sequence[int]
    usable: Sequence[int]


def assess(  # one loop over the workers, kept flat: it is most of what a placement costs
    prompt: Prompt,
    roster: Roster,
    policy: Policy,
    weights: Weights,
    *,
    expected_output_tokens: float,
    decode_growth: float,
    exclude: frozenset[str],
    now: float,
) -> Assessed:
    """Number every worker of the roster for `prompt`; who cannot be chosen is numbered too, with the reason.

    `decode_growth` is by how many seconds a decode step grows per token of context.
    """
    exact, block_tokens, tokens = prompt.exact_blocks, prompt.block_tokens, prompt.tokens
    most_cached, score = max(0, tokens - 1), policy.score
    outputs, half_outputs = expected_output_tokens, expected_output_tokens / 2
    candidates: list[Candidate] = []
    loads: list[int] = []
    usable: list[int] = []
    reasons = _reasons(roster, exclude)
    for view, state, because in zip(roster.views, roster.states, reasons, strict=True):
        rates, requests = state.rates, state.requests
        per_token = rates.seconds_per_token
        cached = state.directory.match(exact) * block_tokens
        if cached > most_cached:
            cached = most_cached
        wait = state.queue.wait(now) if requests else 0.0
        own = rates.fixed_seconds + max(1, tokens - cached) * per_token
        decode = outputs * (decode_growth * state.context_tokens + requests * per_token)
        decode += requests * half_outputs * (decode_growth * tokens + per_token)
        if view.in_flight > requests:
            requests = view.in_flight
        if because is None:
            usable.append(len(loads))
        candidates.append(
            Candidate(view.name, because, cached, wait, own, decode, score(wait, own, decode, requests, weights))
        )
        loads.append(requests)
    return Assessed(candidates, loads, usable)


def _reasons(roster: Roster, exclude: frozenset[str]) -> list[str | None]:
    """Why each worker may not be chosen; weight 0 counts only while somebody of another weight can serve."""
    reasons = [EXCLUDED if view.name in exclude else view.inadmissible_because for view in roster.views]
    drained = [index for index, view in enumerate(roster.views) if not view.weight and reasons[index] is None]
    if drained and len(drained) < reasons.count(None):
        for index in drained:
            reasons[index] = WEIGHT_ZERO
    return reasons
