"""Chooses the next token of each sequence from its logits; a draw depends on nothing but that sequence.

A random draw is one number: a hash of the request's seed and of how many tokens it has generated. So a seed gives the
same tokens in any batch, and again after a preemption.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

import torch
from torch import Tensor

from backends.types import SampledToken, SamplingParams

GREEDY_BELOW_TEMPERATURE = 1e-5
"""Dividing logits by less would overflow; the answer is the best token anyway."""

FIRST_CANDIDATES = 512
"""A nucleus is first looked for among this many best tokens: sorting a whole vocabulary costs a millisecond."""

_FRACTION_BITS = 53


class Draw(NamedTuple):
    """One sequence that wants a token: how to choose, and how many tokens it has generated so far."""

    sampling: SamplingParams
    output_index: int


def choose_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[SampledToken]:
    """One token per row of `logits` [rows, vocab] float32, in order; `logits` stay as they are."""
    best = logits.argmax(dim=-1).tolist()
    return [_choose(row, draw, best_id) for row, draw, best_id in zip(logits, draws, best, strict=True)]


def _choose(logits: Tensor, draw: Draw, best_id: int) -> SampledToken:
    sampling = draw.sampling
    greedy = sampling.temperature < GREEDY_BELOW_TEMPERATURE
    token_id = best_id if greedy else _drawn(logits, sampling, uniform(sampling.seed, draw.output_index))
    return SampledToken(token_id) if sampling.logprobs is None else _with_logprobs(logits, token_id, sampling.logprobs)


def _drawn(logits: Tensor, sampling: SamplingParams, fraction: float) -> int:
    """The token at which the candidates' summed probability passes `fraction` (0 ≤ fraction < 1)."""
    scaled = logits / sampling.temperature
    if sampling.min_p > 0.0:
        scaled = scaled.masked_fill(scaled < scaled.max() + math.log(sampling.min_p), float("-inf"))
    probabilities, ids = candidates(scaled, sampling.top_k, sampling.top_p)
    summed = probabilities.double().cumsum(0)
    place = int(torch.searchsorted(summed, fraction * summed[-1], right=True))
    return int(ids[min(place, len(ids) - 1)])


def candidates(logits: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the tokens that may be drawn: the `top_k` best, and of these the nucleus of `top_p`.

    The nucleus is the smallest set of best tokens whose probabilities reach `top_p`; it is never empty. Best first,
    or in the vocabulary's order when neither bound is on. The probabilities of the nucleus are not rescaled.
    """
    vocab_size = logits.shape[0]
    if 0 < top_k < vocab_size:
        best_logits, ids = logits.topk(top_k)
        return _nucleus(best_logits.softmax(0), ids, top_p)
    probabilities = logits.softmax(0)
    if top_p >= 1.0:
        return probabilities, torch.arange(vocab_size)
    best, ids = probabilities.topk(min(FIRST_CANDIDATES, vocab_size))
    if float(best.sum()) < top_p:
        best, ids = probabilities.sort(descending=True)
    return _nucleus(best, ids, top_p)


def _nucleus(probabilities: Tensor, ids: Tensor, top_p: float) -> tuple[Tensor, Tensor]:
    """Those before which less than `top_p` has been summed; the first one always."""
    summed_before = probabilities.cumsum(0) - probabilities
    kept = summed_before < top_p
    kept[0] = True
    return probabilities[kept], ids[kept]


def uniform(seed: int | None, output_index: int) -> float:
    """A number in [0, 1): always the same for a seed and an index, unpredictable without a seed."""
    if seed is None:
        return secrets.randbits(_FRACTION_BITS) / 2.0**_FRACTION_BITS
    digest = blake2b(f"{seed}:{output_index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - _FRACTION_BITS)) / 2.0**_FRACTION_BITS


def _with_logprobs(logits: Tensor, token_id: int, count: int) -> SampledToken:
    """The model's own logprobs, before temperature and bounds, as vLLM gives them."""
    logprobs = logits.log_softmax(0)
    values, ids = logprobs.topk(min(count, logits.shape[0]))
    return SampledToken(token_id, float(logprobs[token_id]), tuple(zip(ids.tolist(), values.tolist(), strict=True)))
