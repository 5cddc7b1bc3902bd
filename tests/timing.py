"""How the tests measure what code costs: CPU time, the best of several, without the coverage tracer in the way."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable


def best_seconds(work: Callable[[], object], repeats: int = 15) -> float:
    """CPU seconds of the quickest of several runs: what the work costs when nobody else disturbs it."""
    tracer = sys.gettrace()
    sys.settrace(None)  # a tracer adds a call to every call
    try:
        return min(_seconds(work) for _ in range(repeats))
    finally:
        sys.settrace(tracer)


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
