"""A scheduled batch as the tensors that kernels read."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import torch
from torch import Tensor

from backends.kernels.interface import SequenceSpan, StepContext
from backends.types import Batch, ScheduledSequence


def build_step(batch: Batch, block_tokens: int, device: str = "cpu") -> StepContext:
    """The StepContext of a batch that is not empty, its tensors on `device`; sequences lie end to end in its order."""
    items = batch.items
    starts = list(accumulate((item.token_count for item in items), initial=0))
    tables = [_block_ids(item, block_tokens) for item in items]
    block_tables = torch.nn.utils.rnn.pad_sequence(tables, batch_first=True).to(device)
    spans = tuple(
        SequenceSpan(first_row, item.token_count, item.end_token, block_tables[place, : len(table)])
        for place, (item, first_row, table) in enumerate(zip(items, starts, tables))
    )
    positions = [torch.arange(item.start_token, item.end_token) for item in items]
    token_ids = torch.from_numpy(np.concatenate([np.asarray(item.token_ids, dtype=np.int64) for item in items]))
    told_rows = [row for item, start in zip(items, starts) for row in _told_rows(item, start)]
    # Not done: one pinned buffer and one copy for all of them, some 50 µs of a step on a GPU.
    return StepContext(
        token_ids=token_ids.to(device),
        positions=torch.cat(positions).to(device),
        slots=torch.cat([_slots(table, at, block_tokens) for table, at in zip(tables, positions)]).to(device),
        block_tables=block_tables,
        sequence_tokens=torch.tensor([item.end_token for item in items], dtype=torch.int32, device=device),
        query_starts=torch.tensor(starts, dtype=torch.int32, device=device),
        sample_rows=torch.tensor(told_rows, dtype=torch.int64, device=device),
        spans=spans,
    )


def _told_rows(item: ScheduledSequence, first_row: int) -> list[int]:
    """The rows of the batch whose logits are wanted: those of scored prompt tokens, then the one that samples."""
    rows = list(range(first_row, first_row + item.scored_rows))
    return [*rows, first_row + item.token_count - 1] if item.samples else rows


def _block_ids(item: ScheduledSequence, block_tokens: int) -> Tensor:
    """The part of the block table that holds the sequence's tokens; the table may be longer than that."""
    used = -(-item.end_token // block_tokens)
    ids = np.asarray(item.block_ids[:used], dtype=np.int32)
    if len(ids) < used:
        raise ValueError(f"a block table of {len(ids)} blocks cannot hold {item.end_token} tokens")
    return torch.from_numpy(ids)


def _slots(table: Tensor, positions: Tensor, block_tokens: int) -> Tensor:
    """Where each position lives, counted in slots of the whole cache; int64, as it outgrows int32."""
    return table[positions // block_tokens].long() * block_tokens + positions % block_tokens
