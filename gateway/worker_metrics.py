"""What a worker's /metrics page says, whichever engine and version wrote it: a name table and a pure parser.

Names come and go between versions (vLLM renamed its cache gauge, turned a rate into two counters, and counts in
blocks or tokens), so each figure has a list of names and the first one present wins. A figure that nobody reports
is None, never 0: placement goes on without it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

LABELLED = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
SAMPLE = re.compile(r'[a-zA-Z_:][\w:]*(?:\{((?:[^"}]|"(?:[^"\\]|\\.)*")*)\})?\s+(\S+)')


MOST = 10**15
"""A larger number counts nothing of a worker, and would not fit into what is computed of it."""


class Sample(NamedTuple):
    """One line of an exposition: the labels as written and the value."""

    labels: str
    value: float


Samples = Mapping[str, Sequence[Sample]]


def _total(samples: Sequence[Sample]) -> float:
    return math.fsum(sample.value for sample in samples)


def _mean(samples: Sequence[Sample]) -> float:
    return _total(samples) / len(samples)


class FigureRow(NamedTuple):
    """A figure, its names from newest to oldest, and how the samples of several engines in one worker combine."""

    figure: str
    names: tuple[str, ...]
    combine: Callable[[Sequence[Sample]], float]


FIGURES: tuple[FigureRow, ...] = (
    FigureRow(
        "running",
        ("vllm:num_requests_running", "sglang:num_running_reqs", "llamacpp:requests_processing"),
        _total,
    ),
    FigureRow(
        "waiting",
        ("vllm:num_requests_waiting", "sglang:num_queue_reqs", "llamacpp:requests_deferred"),
        _total,
    ),
    FigureRow(
        "kv_cache_usage_ratio",
        (
            "vllm:kv_cache_usage_perc",
            "vllm:gpu_cache_usage_perc",
            "sglang:token_usage",
            "llamacpp:kv_cache_usage_ratio",
        ),
        _mean,
    ),
    FigureRow(
        "cache_queries",
        ("vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total", "sglang:prompt_tokens_total"),
        _total,
    ),
    FigureRow(
        "cache_hits",
        (
            "vllm:prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits_total",
            "sglang:cached_tokens_total",
            "llamacpp:prompt_tokens_cached_total",
        ),
        _total,
    ),
    FigureRow("hit_rate_gauge", ("vllm:gpu_prefix_cache_hit_rate", "sglang:cache_hit_rate"), _mean),
    FigureRow(
        "prompt_tokens",
        ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total", "llamacpp:prompt_tokens_total"),
        _total,
    ),
    FigureRow(
        "generated_tokens",
        ("vllm:generation_tokens_total", "sglang:generation_tokens_total", "llamacpp:tokens_predicted_total"),
        _total,
    ),
    FigureRow("cache_tokens", ("sglang:max_total_num_tokens",), _total),
    FigureRow("start_seconds", ("process_start_time_seconds",), _mean),
)

CACHE_CONFIG = "vllm:cache_config_info"
SLEEP_STATE = "vllm:engine_sleep_state"
LLAMA_CACHED = "llamacpp:prompt_tokens_cached_total"

_WANTED = frozenset(name for row in FIGURES for name in row.names) | {CACHE_CONFIG, SLEEP_STATE}


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One reading of a worker; None where it says nothing.

    `cache_queries` and `cache_hits` share a unit (tokens, or blocks in vLLM 0.8), so only their ratio means
    something. `hit_rate_gauge` is what older engines give instead (0 to 1). `start_seconds` is Unix time.
    `cache_blocks` are blocks of `block_tokens` tokens each.
    """

    running: float | None = None
    waiting: float | None = None
    kv_cache_usage_ratio: float | None = None
    cache_queries: float | None = None
    cache_hits: float | None = None
    hit_rate_gauge: float | None = None
    prompt_tokens: float | None = None
    generated_tokens: float | None = None
    cache_tokens: float | None = None
    start_seconds: float | None = None
    block_tokens: int | None = None
    cache_blocks: int | None = None
    prefix_caching: bool | None = None
    asleep: bool = False

    @property
    def cache_size_tokens(self) -> int | None:
        """How many tokens the worker's cache holds, by its own word."""
        if self.cache_blocks is not None and self.block_tokens is not None:
            return self.cache_blocks * self.block_tokens
        return None if self.cache_tokens is None else int(self.cache_tokens)


def parse_figures(text: str) -> WorkerFigures:
    """Read an exposition in Prometheus' text format; lines that cannot be read are passed over."""
    samples = _collect(text)
    values = {row.figure: _first_present(row, samples) for row in FIGURES}
    off = values["hit_rate_gauge"] is not None and values["hit_rate_gauge"] < 0
    if off:
        values["hit_rate_gauge"] = None
    if LLAMA_CACHED in samples and values["cache_queries"] is None:
        # llama.cpp counts the prompt tokens it computed and those it found apart.
        values["cache_queries"] = (values["prompt_tokens"] or 0.0) + _total(samples[LLAMA_CACHED])
    config = [_labels(sample.labels) for sample in samples.get(CACHE_CONFIG, ())]
    return WorkerFigures(
        **values,
        block_tokens=_block_tokens(config),
        cache_blocks=_cache_blocks(config),
        prefix_caching=_prefix_caching(config, off=off),
        asleep=_asleep(samples.get(SLEEP_STATE, ())),
    )


def hit_ratio(before: WorkerFigures, after: WorkerFigures) -> float | None:
    """Share of the prompt tokens between two readings that were found in the cache (0 to 1).

    None when there were no prompts (0/0), when the worker restarted in between, or when nothing is reported; an
    engine that has only a gauge speaks through that.
    """
    if after.cache_queries is None or after.cache_hits is None:
        return after.hit_rate_gauge
    if before.cache_queries is None or before.cache_hits is None or restarted(before, after):
        return None
    queries = after.cache_queries - before.cache_queries
    if queries <= 0:
        return None
    # The two counters are not read at one moment: what little they are apart must not show as more than all.
    return min(1.0, max(0.0, (after.cache_hits - before.cache_hits) / queries))


def restarted(before: WorkerFigures, after: WorkerFigures) -> bool:
    """Whether another process wrote the second reading: another start time, or a counter that went backwards."""
    if before.start_seconds is not None and after.start_seconds is not None:
        return before.start_seconds != after.start_seconds
    pairs = (
        (before.cache_queries, after.cache_queries),
        (before.prompt_tokens, after.prompt_tokens),
        (before.generated_tokens, after.generated_tokens),
    )
    return any(old is not None and new is not None and new < old for old, new in pairs)


def _collect(text: str) -> dict[str, list[Sample]]:
    samples: dict[str, list[Sample]] = {}
    for name, line in _wanted_lines(text):
        match = SAMPLE.match(line)
        value = _number(match[2]) if match else None
        if match and value is not None:
            samples.setdefault(name, []).append(Sample(match[1] or "", value))
    return samples


def _wanted_lines(text: str) -> Iterator[tuple[str, str]]:
    """Most lines of a page are histogram buckets: look at the name before anything else."""
    for line in text.splitlines():
        if line.startswith("#"):
            continue
        brace = line.find("{")
        name = line[:brace] if brace > 0 else line.partition(" ")[0]
        if name in _WANTED:
            yield name, line


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) <= MOST else None  # not true of NaN either


def _first_present(row: FigureRow, samples: Samples) -> float | None:
    found = next((samples[name] for name in row.names if name in samples), None)
    return None if found is None else row.combine(found)


def _labels(text: str) -> dict[str, str]:
    return dict(LABELLED.findall(text))


def _whole(text: str | None) -> int | None:
    if text is None or len(text) > len(str(MOST)) or not text.isdecimal():
        return None
    return int(text) or None


def _block_tokens(config: Sequence[Mapping[str, str]]) -> int | None:
    return next((size for labels in config if (size := _whole(labels.get("block_size")))), None)


def _cache_blocks(config: Sequence[Mapping[str, str]]) -> int | None:
    counts = [count for labels in config if (count := _whole(labels.get("num_gpu_blocks")))]
    return sum(counts) or None


def _prefix_caching(config: Sequence[Mapping[str, str]], *, off: bool) -> bool | None:
    said = next((labels["enable_prefix_caching"] for labels in config if "enable_prefix_caching" in labels), None)
    if off:
        return False
    return None if said is None else said.lower() == "true"


def _asleep(samples: Sequence[Sample]) -> bool:
    awake = [sample.value for sample in samples if _labels(sample.labels).get("sleep_state") == "awake"]
    return bool(awake) and not any(awake)
