"""Draws a token from each row of a batch: temperature, min_p, top_k and top_p, with one look at the device per kind.

Rows are drawn together, yet each as if it were alone: widths are fixed, so neighbours do not change a row's rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from backends.types import SamplingParams

FEW_CANDIDATES = 64
FIRST_CANDIDATES = 512
"""A nucleus is first looked for among this many best tokens: sorting a whole vocabulary costs milliseconds, and finding
64 costs a third of finding 512.
"""


Pick = Callable[[Tensor, Sequence[SamplingParams], Sequence[float]], list[int]]
"""Scaled logits [rows, vocab], how to choose from each, and its fraction → a token each, -1 for one not found."""


def draw(logits: Tensor, samplings: Sequence[SamplingParams], fractions: Sequence[float]) -> list[int]:
    """For each row of `logits` [rows, vocab] the token at which its candidates' summed probability passes its fraction.

    Fractions are from 0 to below 1; temperatures are above 0.
    """
    scaled = _above_min_p(logits / _column([sampling.temperature for sampling in samplings], logits), samplings)
    chosen = [-1] * len(samplings)
    for pick, rows in _by_kind(samplings, logits.shape[1]).items():
        tokens = pick(_rows(scaled, rows), [samplings[row] for row in rows], [fractions[row] for row in rows])
        for row, token in zip(rows, tokens, strict=True):
            chosen[row] = token
    for row, sampling in enumerate(samplings):
        if chosen[row] < 0:
            chosen[row] = draw_alone(scaled[row], sampling, fractions[row])
    return chosen


def draw_alone(logits: Tensor, sampling: SamplingParams, fraction: float) -> int:
    """The same for one row, whatever its bounds; `logits` are divided by the temperature already."""
    probabilities, ids = candidates(logits, sampling.top_k, sampling.top_p)
    return int(ids[_places(probabilities.unsqueeze(0), [fraction], [len(ids)])[0]])


def candidates(logits: Tensor, top_k: int, top_p: float) -> tuple[Tensor, Tensor]:
    """Probabilities and ids of the tokens that may be drawn: the `top_k` best, and of these the nucleus of `top_p`.

    The nucleus is the smallest set of best tokens whose probabilities reach `top_p`; it is never empty. Best first,
    or in the vocabulary's order when neither bound is on. The probabilities of the nucleus are not rescaled.
    """
    vocab_size = logits.shape[0]
    if 0 < top_k < vocab_size:
        best_logits, ids = logits.topk(top_k)
        best = best_logits.softmax(0)
    elif top_p >= 1.0:
        return logits.softmax(0), torch.arange(vocab_size, device=logits.device)
    else:
        best, ids = logits.softmax(0).sort(descending=True)
    kept = _in_nucleus(best.unsqueeze(0), [top_p])[0]
    return best[kept], ids[kept]


def _by_kind(samplings: Iterable[SamplingParams], vocab_size: int) -> dict[Pick, list[int]]:
    """How to pick → the rows that are picked so; a `top_k` of very many is picked alone."""
    kinds: dict[Pick, list[int]] = {}
    for row, sampling in enumerate(samplings):
        if 0 < sampling.top_k < vocab_size:
            if sampling.top_k <= FIRST_CANDIDATES:
                kinds.setdefault(_few if sampling.top_k <= FEW_CANDIDATES else _many, []).append(row)
        else:
            kinds.setdefault(_free if sampling.top_p >= 1.0 else _nucleus, []).append(row)
    return kinds


def _free(scaled: Tensor, samplings: Sequence[SamplingParams], fractions: Sequence[float]) -> list[int]:
    """No bounds: the vocabulary in its own order."""
    return _places(scaled.softmax(-1), fractions, [scaled.shape[1]] * len(samplings))


def _few(scaled: Tensor, samplings: Sequence[SamplingParams], fractions: Sequence[float]) -> list[int]:
    """The k best, k being small, and of these the nucleus."""
    return _ranked(scaled, samplings, fractions, FEW_CANDIDATES)


def _many(scaled: Tensor, samplings: Sequence[SamplingParams], fractions: Sequence[float]) -> list[int]:
    """The same for a larger k."""
    return _ranked(scaled, samplings, fractions, FIRST_CANDIDATES)


def _ranked(scaled: Tensor, samplings: Sequence[SamplingParams], fractions: Sequence[float], width: int) -> list[int]:
    best, ids = scaled.topk(min(width, scaled.shape[1]))
    ranks = torch.arange(best.shape[1], device=scaled.device)
    beyond = ranks >= _column([sampling.top_k for sampling in samplings], scaled)
    probabilities = best.masked_fill(beyond, float("-inf")).softmax(-1)
    kept = _in_nucleus(probabilities, [sampling.top_p for sampling in samplings]) & ~beyond
    return _picked(probabilities, ids, kept, fractions)


def _nucleus(scaled: Tensor, samplings: Sequence[SamplingParams], fractions: Sequence[float]) -> list[int]:
    """The nucleus among the first candidates; -1 for a row whose nucleus is larger."""
    top_ps = [sampling.top_p for sampling in samplings]
    best, ids = scaled.softmax(-1).topk(min(FIRST_CANDIDATES, scaled.shape[1]))
    reached = best.sum(-1) >= _column(top_ps, scaled).squeeze(1)
    tokens = _picked(best, ids, _in_nucleus(best, top_ps), fractions)
    return [token if enough else -1 for token, enough in zip(tokens, reached.tolist(), strict=True)]


def _picked(probabilities: Tensor, ids: Tensor, kept: Tensor, fractions: Sequence[float]) -> list[int]:
    places = _places(probabilities * kept, fractions, kept.sum(-1).tolist())
    return ids.gather(1, torch.tensor(places, device=ids.device).unsqueeze(1)).squeeze(1).tolist()


def _places(probabilities: Tensor, fractions: Sequence[float], lengths: Sequence[int]) -> list[int]:
    """In each row the first place whose summed probability is more than its fraction of the whole."""
    summed = probabilities.double().cumsum(-1)
    targets = torch.tensor(fractions, dtype=torch.float64, device=summed.device).unsqueeze(1) * summed[:, -1:]
    found = torch.searchsorted(summed, targets, right=True).squeeze(1).tolist()
    return [min(place, length - 1) for place, length in zip(found, lengths, strict=True)]


def _in_nucleus(probabilities: Tensor, top_ps: Sequence[float]) -> Tensor:
    """Those before which less than `top_p` has been summed; the first one always."""
    kept = probabilities.cumsum(-1) - probabilities < _column(top_ps, probabilities)
    kept[:, 0] = True
    return kept


def _above_min_p(scaled: Tensor, samplings: Iterable[SamplingParams]) -> Tensor:
    """Without tokens that are less probable than a share of the best one's probability."""
    shares = [math.log(sampling.min_p) if sampling.min_p > 0.0 else float("-inf") for sampling in samplings]
    if not any(map(math.isfinite, shares)):
        return scaled
    return scaled.masked_fill(scaled < scaled.amax(-1, keepdim=True) + _column(shares, scaled), float("-inf"))


def _rows(scaled: Tensor, rows: Sequence[int]) -> Tensor:
    return scaled if len(rows) == len(scaled) else scaled[torch.tensor(rows, device=scaled.device)]


def _column(values: Sequence[float], like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).unsqueeze(1)
