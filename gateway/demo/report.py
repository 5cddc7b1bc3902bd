"""Turns the answers of the demonstration into figures, a table and a JSON file."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.demo.drive import Answer

Figures = dict[str, Any]


def figures(answers: Sequence[Answer], wall_seconds: float) -> Figures:
    """One policy's figures; rates are over tokens, times in milliseconds."""
    good = [answer for answer in answers if answer.error is None]
    prompt_tokens = sum(answer.prompt_tokens for answer in good)
    return {
        "requests": len(answers),
        "errors": len(answers) - len(good),
        "error_kinds": dict(Counter(answer.error for answer in answers if answer.error)),
        "token_hit_rate": sum(answer.cached_tokens for answer in good) / max(1, prompt_tokens),
        "ttft_ms": _spread([answer.ttft_seconds for answer in good]),
        "e2e_ms": _spread([answer.total_seconds for answer in good]),
        "output_tokens_per_s": sum(answer.output_tokens for answer in good) / wall_seconds,
        "prompt_tokens": prompt_tokens,
        "requests_per_worker": dict(sorted(Counter(answer.worker or "?" for answer in good).items())),
        "share_at_home": sum(answer.reason == "home" for answer in good) / max(1, len(good)),
        "reasons": dict(Counter(answer.reason or "?" for answer in good)),
        "wall_s": wall_seconds,
    }


def table(policies: Mapping[str, Figures]) -> str:
    """The figures side by side, a column for each policy and the last over the first."""
    names = list(policies)
    rows = [("", *names, "ratio")]
    for title, path in ROWS:
        values = [_at(policies[name], path) for name in names]
        rows.append((title, *(f"{value:,.3g}" for value in values), _ratio(values)))
    lines = [row[0].ljust(24) + "".join(cell.rjust(14) for cell in row[1:]) for row in rows]
    lines += [f"requests per worker, {name}: {policies[name]['requests_per_worker']}" for name in names]
    return "\n".join(lines)


ROWS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("token hit rate", ("token_hit_rate",)),
    ("TTFT mean, ms", ("ttft_ms", "mean")),
    ("TTFT p50, ms", ("ttft_ms", "p50")),
    ("TTFT p90, ms", ("ttft_ms", "p90")),
    ("end to end mean, ms", ("e2e_ms", "mean")),
    ("output tokens per s", ("output_tokens_per_s",)),
    ("share at home", ("share_at_home",)),
    ("errors", ("errors",)),
    ("wall, s", ("wall_s",)),
)


def _at(values: Figures, path: tuple[str, ...]) -> float:
    found: Any = values
    for key in path:
        found = found[key]
    return float(found)


def _ratio(values: Sequence[float]) -> str:
    return f"{values[-1] / values[0]:.2f} x" if values[0] else "-"


def _spread(seconds: Sequence[float]) -> dict[str, float]:
    if not seconds:
        return {"mean": 0.0, "p50": 0.0, "p90": 0.0}
    ordered = sorted(value * 1000 for value in seconds)
    return {
        "mean": statistics.fmean(ordered),
        "p50": statistics.median(ordered),
        "p90": ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))],
    }
