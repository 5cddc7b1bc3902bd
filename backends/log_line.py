"""The line that vLLM logs every ten seconds while there is work; log scrapers know it by heart."""

from __future__ import annotations

from dataclasses import dataclass

from backends.types import EngineStats

INTERVAL_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Sample:
    """The engine's numbers at one moment of a monotonic clock."""

    stats: EngineStats
    seconds: float


def log_line(before: Sample, now: Sample) -> str | None:
    """The line for the time between two samples, or None when nothing happened and nothing runs.

    Prompt throughput counts computed tokens only; hits cost nothing.
    """
    elapsed = max(now.seconds - before.seconds, 1e-9)
    prompt = (_computed(now.stats) - _computed(before.stats)) / elapsed
    generation = (now.stats.generation_tokens - before.stats.generation_tokens) / elapsed
    stats = now.stats
    if not (prompt or generation or stats.running or stats.waiting):
        return None
    return (
        f"Engine 000: Avg prompt throughput: {prompt:.1f} tokens/s, "
        f"Avg generation throughput: {generation:.1f} tokens/s, "
        f"Running: {stats.running} reqs, Waiting: {stats.waiting} reqs, "
        f"GPU KV cache usage: {stats.kv_usage * 100:.1f}%, "
        f"Prefix cache hit rate: {stats.recent_hit_rate * 100:.1f}%"
    )


def _computed(stats: EngineStats) -> int:
    return stats.prompt_tokens - stats.cached_prompt_tokens
