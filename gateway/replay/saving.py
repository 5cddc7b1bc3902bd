"""The honest saving: what of a recorded trace's prompts had to be computed, there and under other policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.replay.desk import Loaded, Result
from gateway.replay.report import aligned
from router.replay.core import EngineSettings, TraceRequest
from router.replay.trace_recorded import Reported

RECORDED = "as recorded"


def prefills(loaded: Loaded, results: Mapping[str, Result], engine: EngineSettings) -> dict[str, dict[str, float]]:
    """Prompt tokens computed and the seconds that takes at the replay's rate, as recorded and by policy.

    What was recorded counts the requests whose worker told its cached tokens, scaled up to all tokens.
    """
    requests = loaded.trace.requests
    told = {name: _told(result.computed_tokens, len(requests), engine) for name, result in results.items()}
    if loaded.recording is None:
        return told
    reported = recorded_hit_rate(requests, loaded.recording.reported)
    if reported is None:
        return told
    computed = round((1 - reported) * sum(request.prompt.tokens for request in requests))
    return {RECORDED: _told(computed, len(requests), engine), **told}


def recorded_hit_rate(requests: Sequence[TraceRequest], reported: Sequence[Reported]) -> float | None:
    """Share of the prompt tokens that workers reported as cached, over the requests for which they did; or None."""
    known = [
        (request.prompt.tokens, min(request.prompt.tokens, one.cached_tokens))
        for request, one in zip(requests, reported)
        if one.cached_tokens is not None
    ]
    return sum(cached for _, cached in known) / sum(tokens for tokens, _ in known) if known else None


def recorded_figures(loaded: Loaded) -> dict[str, Any]:
    """What a recording says of its own run, as far as its workers and callers told: real seconds, not simulated."""
    if loaded.recording is None:
        return {}
    requests, reported = loaded.trace.requests, loaded.recording.reported[: len(loaded.trace.requests)]
    ttft = sorted(one.ttft_seconds for one in reported if one.ttft_seconds is not None)
    told: dict[str, Any] = {"token_hit_rate": recorded_hit_rate(requests, reported)}
    if ttft:
        told["ttft_s"] = {
            "mean": sum(ttft) / len(ttft),
            **{f"p{percent}": ttft[min(len(ttft) - 1, percent * len(ttft) // 100)] for percent in (50, 90, 99)},
        }
    told["total_s"] = {"mean": sum(one.total_seconds for one in reported) / len(reported)}
    workers = [one.worker for one in reported]
    counts = [workers.count(name) for name in set(workers)]
    told["requests_max_over_mean"] = max(counts) * len(counts) / sum(counts)
    return told


def saving_table(told: Mapping[str, Mapping[str, float]], reference: str) -> str:
    """Tokens and seconds of prefill, and how many times the reference policy's seconds they are."""
    unit_seconds = told[reference]["seconds"] or 1.0
    rows = [("prefill computed", "tokens", "seconds", f"x {reference}")]
    rows += [
        (name, f"{one['tokens']:,.0f}", f"{one['seconds']:,.0f}", f"{one['seconds'] / unit_seconds:.2f}")
        for name, one in told.items()
    ]
    return "\n".join(aligned(rows))


def _told(tokens: int, requests: int, engine: EngineSettings) -> dict[str, float]:
    seconds = requests * engine.prefill_fixed_seconds + tokens / engine.prefill_tokens_per_second
    return {"tokens": tokens, "seconds": seconds}
