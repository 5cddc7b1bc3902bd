"""Chooses the next token of each sequence from its logits; a draw depends on nothing but that sequence.

A random draw is one number: a hash of the request's seed and of how many tokens it has generated. So a seed gives the
same tokens in any batch, and again after a preemption.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from hashlib import blake2b

from torch import Tensor

from backends.sampler_draw import draw
from backends.sampler_logprobs import with_logprobs
from backends.sampler_rules import Draw, apply_rules
from backends.types import SampledToken

GREEDY_BELOW_TEMPERATURE = 1e-5
"""Dividing logits by less would overflow; the answer is the best token anyway."""

_FRACTION_BITS = 53


def choose_tokens(logits: Tensor, draws: Sequence[Draw]) -> list[SampledToken]:
    """One token per row of `logits` [rows, vocab] float32, in order; `logits` stay as they are."""
    ruled = apply_rules(logits, draws)
    token_ids = ruled.argmax(dim=-1).tolist()
    random = [row for row, one in enumerate(draws) if one.sampling.temperature >= GREEDY_BELOW_TEMPERATURE]
    if random:
        wanted = [draws[row] for row in random]
        fractions = [uniform(one.sampling.seed, one.output_index) for one in wanted]
        rows = ruled if len(random) == len(draws) else ruled[random]
        for row, token_id in zip(random, draw(rows, [one.sampling for one in wanted], fractions), strict=True):
            token_ids[row] = token_id
    tokens = [SampledToken(token_id) for token_id in token_ids]
    for row, token in _told(logits, draws, token_ids):
        tokens[row] = token
    return tokens


def _told(logits: Tensor, draws: Sequence[Draw], token_ids: Sequence[int]) -> Iterator[tuple[int, SampledToken]]:
    """The rows that want logprobs, with them: one softmax for all of them."""
    counts = {row: one.sampling.logprobs for row, one in enumerate(draws) if one.sampling.logprobs is not None}
    if not counts:
        return iter(())
    rows = list(counts)
    wanted = logits if len(rows) == len(draws) else logits[rows]
    return zip(rows, with_logprobs(wanted, [token_ids[row] for row in rows], list(counts.values())), strict=True)


def uniform(seed: int | None, output_index: int) -> float:
    """A number in [0, 1): always the same for a seed and an index, unpredictable without a seed."""
    if seed is None:
        return secrets.randbits(_FRACTION_BITS) / 2.0**_FRACTION_BITS
    digest = blake2b(f"{seed}:{output_index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> (64 - _FRACTION_BITS)) / 2.0**_FRACTION_BITS
