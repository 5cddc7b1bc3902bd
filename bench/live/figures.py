"""What came of a load, in figures: by the answers, by the workers' own counts, and window by window."""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.live.drive import Answer

Json = dict[str, Any]


def write_json(path: Path, found: Json) -> None:
    """What `--json` asks for."""
    path.write_text(json.dumps(found, indent=2) + "\n")


def spread(values: Sequence[float]) -> dict[str, float]:
    """Mean and quantiles (of rank q · n, as `homing replay` has them); zeros for nothing."""
    ordered = sorted(values) or [0.0]
    at = {f"p{q}": ordered[min(len(ordered) - 1, int(q / 100 * len(ordered)))] for q in (50, 90, 99)}
    return {"mean": statistics.fmean(ordered), **at}


def figures(answers: Sequence[Answer], workers: Sequence[Mapping[str, float]], speed_up: float) -> Json:
    """One router's figures; times in trace seconds, `workers` are the pages at /stats."""
    good = [answer for answer in answers if answer.error is None]
    busy = [worker["busy_seconds"] for worker in workers]
    requests = [worker["requests"] for worker in workers]
    return {
        "requests": len(answers),
        "errors": len(answers) - len(good),
        "error_kinds": dict(Counter(answer.error for answer in answers if answer.error)),
        "ttft_s": spread([answer.ttft for answer in good]),
        "total_s_mean": statistics.fmean([answer.total for answer in good] or [0.0]),
        "token_hit_rate": _share(sum(w["cached_tokens"] for w in workers), sum(w["prompt_tokens"] for w in workers)),
        "busy_max_over_mean": _max_over_mean(busy),
        "requests_max_over_mean": _max_over_mean(requests),
        "driver_late_s": spread([answer.lateness for answer in answers]),
        "worker_late_s_mean": speed_up * _share(sum(w["late_seconds"] for w in workers), sum(requests)),
    }


def hit_rate(answers: Sequence[Answer]) -> float:
    """Cached over prompt tokens, as the answers' usage tells."""
    return _share(sum(answer.cached_tokens for answer in answers), sum(answer.prompt_tokens for answer in answers))


def between(answers: Sequence[Answer], start: float, end: float) -> list[Answer]:
    """Those sent in a window of trace time."""
    return [answer for answer in answers if start <= answer.sent_at < end]


def table(rows: Mapping[str, Json]) -> str:
    """Routers one below the other."""
    head = ["router", "ttft mean", "p50", "p90", "p99", "hit", "busy", "requests", "errors", "cpu ms", "late p99"]
    lines = [f"{head[0]:24}" + "".join(f"{name:>11}" for name in head[1:])]
    for name, row in rows.items():
        ttft = row["ttft_s"]
        cells = [f"{ttft[key]:.2f}" for key in ("mean", "p50", "p90", "p99")]
        cells += [f"{row['token_hit_rate']:.1%}", f"{row['busy_max_over_mean']:.2f}"]
        cells += [f"{row['requests_max_over_mean']:.2f}", str(row.get("errors", "-")), _cell(row.get("cpu_ms"))]
        cells.append(_cell(row.get("driver_late_s", {}).get("p99")))
        lines.append(f"{name:24}" + "".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


def _cell(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.2f}"


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _max_over_mean(values: Sequence[float]) -> float:
    return _share(max(values, default=0.0), statistics.fmean(values or [0.0]))
