"""The bar on speed (9): one replay, and one placement. CPU time, the least of several, in this process alone."""

from __future__ import annotations

import time
from collections.abc import Iterator

from bench.bars.cells import Workload, trace_of
from bench.bars.check import Check
from bench.place import BARRED, BARS_MICROSECONDS, MOST_GROWTH, SIZES, costs_microseconds
from router.replay.choosers import build_chooser
from router.replay.simulate import replay
from router.replay.traces import first_requests

REPLAY_SECONDS = 2.0
REPLAY_REQUESTS = 12_000
TIMES = 3
ROUNDS = 6
TIME_SCALE = 0.7
"""About load 0.9 on the conversation at 4,000 blocks."""


def checks() -> Iterator[Check]:
    """Measure now; about twenty seconds."""
    seconds = min(_replay_seconds() for _ in range(TIMES))
    what = f"{REPLAY_REQUESTS:,} requests"
    yield Check(9, "one replay of homing", "CPU s", seconds, REPLAY_SECONDS, what)
    for workers, sizes in SIZES.items():
        turns = [costs_microseconds(workers, size, BARRED, ROUNDS)["turn"] for size in sizes[BARRED]]
        label = f"one placement, {workers} workers"
        yield Check(9, label, "CPU µs", min(turns), BARS_MICROSECONDS[workers], "a turn of 512 blocks")
        yield Check(9, label, "times", turns[-1] / turns[0], MOST_GROWTH, "largest to smallest directory")


def _replay_seconds() -> float:
    workload = Workload("conversation", 4_000, 0.9)
    trace, settings = first_requests(trace_of(workload.trace), REPLAY_REQUESTS), workload.settings()
    started = time.process_time()
    replay(trace, build_chooser("homing", settings), settings, time_scale=TIME_SCALE)
    return time.process_time() - started
