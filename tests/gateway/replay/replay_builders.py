"""Small traces to replay, jobs done in this process, and the program run from outside."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from gateway.replay.desk import Desk, Job, Result, Setup, Source
from router.replay.core import EngineSettings
from router.replay.figures import Figures
from tests.router.replay.trace_builders import range_row, session_rows, write_rows


def write_chats(path: Path, requests: int = 60, seconds: float = 0.5) -> Path:
    """Six conversations whose turns come in no order, each turn two blocks longer than the one before."""
    random, turns, rows = Random(1), [0] * 6, []
    for number in range(requests):
        chat = random.randrange(6)
        turns[chat] += 1
        rows.append(range_row(number * seconds, [[0, 1], [1000 * (chat + 1), 2 * turns[chat]]], out=20))
    return write_rows(path, rows)


def write_sessions(path: Path) -> Path:
    """Three agents of four calls."""
    rows = [
        row for name in "abc" for row in session_rows(name, *((10 * turn, [[1, 8 * (turn + 2)]]) for turn in range(4)))
    ]
    rows[1]["t"] = 0.5
    rows[6]["t"] = 0.25
    return write_rows(path, rows)


def build_setup(path: Path, **more: Any) -> Setup:
    engine = {"workers": 3, "cache_blocks": 60, **{name: more.pop(name) for name in ("kind",) if name in more}}
    return Setup(Source(path), EngineSettings(**engine), **more)


def build_result(mean_seconds: float = 1.0, hit_rate: float = 0.5, computed_tokens: int = 1000) -> Result:
    figures = Figures(
        token_hit_rate=hit_rate,
        ttft_mean_seconds=mean_seconds,
        ttft_p50_seconds=mean_seconds / 2,
        ttft_p90_seconds=mean_seconds * 2,
        ttft_p99_seconds=mean_seconds * 4,
        total_mean_seconds=mean_seconds + 3,
        busy_max_over_mean=1.1,
        requests_max_over_mean=1.2,
        slo_share=0.9,
        requests_per_second=5.0,
    )
    return Result(figures, computed_tokens)


class Here:
    """Does jobs in this process, in order, and remembers them."""

    def __init__(self, setup: Setup) -> None:
        self.desk = Desk(setup)
        self.done: list[Job] = []

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[Job, Result]]:
        for job in jobs:
            self.done.append(job)
            yield job, self.desk.answer(job)
