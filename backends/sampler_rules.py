"""What a request says about single tokens, as changes to the logits: bias, penalties, tokens that must not come.

The definitions and their order are vLLM's (v1/sample): allowed tokens, bias, repetition, frequency, presence; what is
forbidden stays forbidden whatever is added to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from backends.types import SamplingParams, ScheduledSequence

FORBIDDEN = float("-inf")

Ids = np.ndarray[tuple[int], np.dtype[np.int64]]


class Draw(NamedTuple):
    """One sequence that wants a token: how to choose, and how many tokens it has generated so far.

    `token_ids` are the prompt and these tokens; only penalties read them. `end_ids` end the answer, beside the stop
    tokens that the request names; neither come before `min_tokens`.
    """

    sampling: SamplingParams
    output_index: int
    token_ids: Sequence[int] = ()
    end_ids: Collection[int] = ()

    @classmethod
    def of(cls, item: ScheduledSequence) -> Draw:
        """The draw of a batch's item that samples."""
        sequence = item.sequence
        return cls(sequence.sampling, item.output_index, sequence.token_ids, sequence.end_ids)

    @property
    def has_rules(self) -> bool:
        """Whether the logits are not taken as they are."""
        sampling = self.sampling
        return bool(
            sampling.presence_penalty
            or sampling.frequency_penalty
            or sampling.repetition_penalty != 1.0
            or sampling.logit_bias
            or sampling.allowed_token_ids is not None
            or self.is_too_short
        )

    @property
    def is_too_short(self) -> bool:
        """Whether the answer may not end yet."""
        return self.output_index < self.sampling.min_tokens


def apply_rules(logits: Tensor, draws: Sequence[Draw]) -> Tensor:
    """The logits [rows, vocab] that the rows' rules leave: `logits` itself when there are none, else a copy."""
    ruled_rows = [(row, draw) for row, draw in enumerate(draws) if draw.has_rules]
    if not ruled_rows:
        return logits
    ruled = logits.clone()
    for row, draw in ruled_rows:
        if draw.sampling.allowed_token_ids is not None:
            _forbid_all_but(ruled[row], draw.sampling.allowed_token_ids)
    cells = ruled.view(-1)
    vocab_size = logits.shape[1]
    _add_bias(cells, vocab_size, ruled_rows)
    _penalise_repetition(cells, vocab_size, ruled_rows)
    _penalise_output(cells, vocab_size, ruled_rows)
    _forbid_an_end(cells, vocab_size, ruled_rows)
    return ruled


Rows = Iterable[tuple[int, Draw]]


def _forbid_all_but(row: Tensor, token_ids: Sequence[int]) -> None:
    allowed = torch.tensor(token_ids, device=row.device)
    kept = row[allowed]
    row.fill_(FORBIDDEN)
    row[allowed] = kept


def _add_bias(cells: Tensor, vocab_size: int, rows: Rows) -> None:
    pairs = [(row * vocab_size + token, bias) for row, draw in rows for token, bias in draw.sampling.logit_bias]
    if pairs:
        places, biases = zip(*pairs, strict=True)
        cells.index_add_(0, torch.tensor(places, device=cells.device), torch.tensor(biases, device=cells.device))


def _penalise_repetition(cells: Tensor, vocab_size: int, rows: Rows) -> None:
    """Prompt and output tokens: a positive logit is divided, a negative one multiplied."""
    rows = [(row, draw) for row, draw in rows if draw.sampling.repetition_penalty != 1.0]
    if not rows:
        return
    places, _ = _counted(vocab_size, ((row, draw.token_ids) for row, draw in rows))
    index = torch.from_numpy(places).to(cells.device)
    penalty = _by_place(places, vocab_size, rows, lambda sampling: sampling.repetition_penalty).to(cells.device)
    values = cells[index]
    cells[index] = torch.where(values > 0, values / penalty, values * penalty)


def _penalise_output(cells: Tensor, vocab_size: int, rows: Rows) -> None:
    """Output tokens: the frequency penalty once per occurrence, the presence penalty once."""
    rows = [
        (row, draw)
        for row, draw in rows
        if draw.output_index and (draw.sampling.frequency_penalty or draw.sampling.presence_penalty)
    ]
    if not rows:
        return
    places, counts = _counted(vocab_size, ((row, draw.token_ids[-draw.output_index :]) for row, draw in rows))
    frequency = _by_place(places, vocab_size, rows, lambda sampling: sampling.frequency_penalty)
    presence = _by_place(places, vocab_size, rows, lambda sampling: sampling.presence_penalty)
    cells[torch.from_numpy(places).to(cells.device)] -= (frequency * torch.from_numpy(counts) + presence).to(
        cells.device
    )


def _forbid_an_end(cells: Tensor, vocab_size: int, rows: Rows) -> None:
    places = [
        row * vocab_size + token
        for row, draw in rows
        if draw.is_too_short
        for token in (*draw.end_ids, *draw.sampling.stop_token_ids)
    ]
    if places:
        cells[torch.tensor(places, device=cells.device)] = FORBIDDEN


def _counted(vocab_size: int, rows: Iterable[tuple[int, Sequence[int]]]) -> tuple[Ids, Ids]:
    """The different (row, token) pairs as places in the flattened logits, and how often each occurs."""
    # Not done: counts kept from step to step; sorting 2,000 tokens costs 50 µs a row, and few requests ask for it.
    places = [row * vocab_size + np.asarray(token_ids, dtype=np.int64) for row, token_ids in rows]
    return np.unique(np.concatenate(places), return_counts=True)


def _by_place(places: Ids, vocab_size: int, rows: Rows, wanted: Callable[[SamplingParams], float]) -> Tensor:
    """Each place's own row's value, float32."""
    values = {row: wanted(draw.sampling) for row, draw in rows}
    table = np.zeros(max(values) + 1, dtype=np.float32)
    table[list(values)] = list(values.values())
    return torch.from_numpy(table[places // vocab_size])
