"""Mooncake's traces: chat requests as ids of 512-token prefix blocks, a last partial block listed too.

Two forms: as published (`timestamp` in milliseconds, `hash_ids`), whose times stand in bins of some seconds, and with
the ids as ranges (`t` in seconds, `in`, `out`, `ranges`), whose times are taken as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from pathlib import Path
from typing import Any, NamedTuple

from router.core import Prompt
from router.replay.block_names import BlockNames
from router.replay.core import Trace, TraceRequest
from router.replay.trace_lines import MOST_TOKENS, Line, TraceError, read_lines

BLOCK_TOKENS = 512
MOST_SECONDS = 1e10
WIDEST_BIN_SECONDS = 5.0
"""Requests of one published time are spread up to the next time, but no further than this."""


class _Row(NamedTuple):
    at_seconds: float
    output_tokens: int
    prompt: Prompt


def load_ranges(path: Path) -> Trace:
    """The form with ranges."""
    names = BlockNames()
    rows = [
        _Row(
            line.number_of("t", MOST_SECONDS),
            line.count_of("out"),
            _prompt(line, line.count_of("in"), _range_numbers(line), names),
        )
        for line in read_lines(path)
    ]
    return _trace(path, sorted(rows, key=_time))


def load_published(path: Path) -> Trace:
    """The form that Mooncake publishes; requests of one bin are spread evenly over it, in the file's order."""
    names = BlockNames()
    rows = [
        _Row(
            line.number_of("timestamp", MOST_SECONDS * 1000) / 1000,
            line.count_of("output_length"),
            _prompt(line, line.count_of("input_length"), line.list_of("hash_ids"), names),
        )
        for line in read_lines(path)
    ]
    return _trace(path, spread(sorted(rows, key=_time)))


def spread(rows: Sequence[_Row]) -> list[_Row]:
    """Requests that stand at one time, evenly between it and the next time."""
    bins = [list(together) for _, together in groupby(rows, key=_time)]
    starts = [each[0].at_seconds for each in bins]
    ends = [*starts[1:], starts[-1] + WIDEST_BIN_SECONDS] if starts else []
    return [
        row._replace(at_seconds=start + min(end - start, WIDEST_BIN_SECONDS) * place / len(together))
        for start, end, together in zip(starts, ends, bins)
        for place, row in enumerate(together)
    ]


def _time(row: _Row) -> float:
    return row.at_seconds


def _range_numbers(line: Line) -> list[int]:
    pairs = line.list_of("ranges")
    try:
        ranges = [(first, first + count) for first, count in pairs]
        # Counted before it is expanded: a trace may be anybody's.
        if sum(max(0, end - first) for first, end in ranges) <= MOST_TOKENS // BLOCK_TOKENS:
            return list(chain.from_iterable(range(first, end) for first, end in ranges))
    except (TypeError, ValueError, OverflowError):
        raise line.error("`ranges` must be a list of [first id, count]") from None
    raise line.error("`ranges` lists more blocks than a prompt can have")


def _prompt(line: Line, tokens: int, numbers: Sequence[Any], names: BlockNames) -> Prompt:
    wanted = -(-tokens // BLOCK_TOKENS)
    if len(numbers) not in (wanted, tokens // BLOCK_TOKENS) or not numbers:
        raise line.error(f"{tokens} tokens are {wanted} blocks of {BLOCK_TOKENS}, but {len(numbers)} are listed")
    try:
        blocks = [names[number] for number in numbers]
    except (TypeError, ValueError, OverflowError):
        raise line.error("a block id is no number") from None
    return Prompt(tokens=tokens, block_tokens=BLOCK_TOKENS, exact_blocks=blocks, key_blocks=blocks)


def _trace(path: Path, rows: Iterable[_Row]) -> Trace:
    requests = [
        TraceRequest(number, row.at_seconds, row.output_tokens, number, 0.0, row.prompt)
        for number, row in enumerate(rows)
    ]
    if not requests:
        raise TraceError(f"{path}: the file holds no request")
    return Trace(path.name.partition(".")[0], BLOCK_TOKENS, requests)
