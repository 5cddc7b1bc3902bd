"""Chooses the next token of each sequence from its logits; a draw depends on nothing but that sequence.

A random draw is one number: a hash of the request's seed and of how many tokens it has generated. So a seed gives the
same tokens in any batch, and again after a preemption.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterator, Sequence
from hashlib import blake2b

import torch
from torch import Tensor

from backends.sampler_logprobs import with_logprobs
from backends.sampler_rules import Draw, apply_rules
from backends.types import SampledToken, SamplingParams

GREEDY_BELOW_TEMPERATURE = 1e-5
"""Dividing logits by less would overflow; the answer is the best token anyway."""

FIRST_CANDIDATES = 512
"""A nucleus is first looked for among this many best tokens: sorting a whole vocabulary costs a millisecond."""

_FRACTION_BITS = 53


def choose_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[SampledToken]:
    """One token per row of `logits` [rows, vocab] float32, in order; `logits` stay as they are."""
    ruled = apply_rules(logits, draws)
    token_ids = ruled.argmax(dim=-1).tolist()
    for row, draw in enumerate(draws):
        if draw.sampling.temperature >= GREEDY_BELOW_TEMPERATURE:
            token_ids[row] = _drawn(ruled[row], draw.sampling, uniform(draw.sampling.seed, draw.output_index))
    tokens = [SampledToken(token_id) for token_id in token_ids]
    for row, token in _told(logits, draws, token_ids):
        tokens[row] = token
    return tokens


def _told(logits: Tensor, draws: Sequence[Draw], token_ids: Sequence[int]) -> Iterator[tuple[int, SampledToken]]:
    """The rows that want logprobs, with them: one softmax for all of them."""
    counts = {row: draw.sampling.logprobs for row, draw in enumerate(draws) if draw.sampling.logprobs is not None}
    if not counts:
        return iter(())
    rows = list(counts)
    wanted = logits if len(rows) == len(draws) else logits[rows]
    return zip(rows, with_logprobs(wanted, [token_ids[row] for row in rows], list(counts.values())), strict=True)


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
        return probabilities, torch.arange(vocab_size, device=logits.device)
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
