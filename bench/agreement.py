"""Our replay beside a second simulator's figures on the same traces, policies and parameters.

`python bench/agreement.py [SEEDS] [WORD…]` replays each cell of bench/data/simulator_reference.json with so many seeds
(default 4), or only the cells whose line holds all the words. A seed draws the ring's layout, the ties, and arrivals'
microseconds. Ends with status 1 where a single gateway's mean time to first token is off by more than 2 %, or a hit
rate by more than 0.2 points, and more than two standard errors.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple

from router.replay.choosers import ALL_SEEING, build_chooser, router_chooser
from router.replay.core import EngineSettings, Trace
from router.replay.figures import Figures, figures
from router.replay.simulate import replay
from router.replay.traces import load_trace

BENCH_DATA = Path(__file__).parent / "data"
TRACES = {
    "mooncake_conversation": BENCH_DATA / "mooncake_conversation.jsonl.gz",
    "claude_code_sessions": BENCH_DATA / "claude_code_sessions.jsonl.gz",
    "mooncake_synthetic": BENCH_DATA.parents[1] / "tests" / "data" / "traces" / "mooncake_synthetic.jsonl.gz",
}
TTFT_WITHIN = 0.02
HIT_RATE_WITHIN = 0.002
STANDARD_ERRORS = 2.0
JITTER_SECONDS = 1e-6


class Cell(NamedTuple):
    """One line of the reference: what was replayed, and the means and one seed's spread that came of it."""

    trace: str
    cache_blocks: int
    time_scale: float
    engine: str
    policy: str
    gateways: int
    news_delay_seconds: float | None
    seeds: int
    ttft_mean_seconds: float
    ttft_spread_seconds: float
    token_hit_rate: float
    hit_rate_spread: float
    total_mean_seconds: float

    @property
    def name(self) -> str:
        """The cell in words."""
        several = f" {self.gateways} gateways, news after {self.news_delay_seconds} s" if self.gateways > 1 else ""
        return f"{self.trace} C={self.cache_blocks} x{self.time_scale} {self.engine} {self.policy}{several}"


class Agreement(NamedTuple):
    """Ours beside the reference: relative and absolute differences, and the standard errors of these."""

    ttft_difference: float
    ttft_error: float
    hit_rate_difference: float
    hit_rate_error: float

    @property
    def holds(self) -> bool:
        """Whether both are within the bounds, or within what chance does."""
        return abs(self.ttft_difference) <= max(TTFT_WITHIN, STANDARD_ERRORS * self.ttft_error) and abs(
            self.hit_rate_difference
        ) <= max(HIT_RATE_WITHIN, STANDARD_ERRORS * self.hit_rate_error)


def reference() -> Iterator[Cell]:
    """The reference's cells; its engine's parameters are the defaults of ours."""
    for row in json.loads((BENCH_DATA / "simulator_reference.json").read_text())["cells"]:
        yield Cell(**row)


@cache
def read(name: str) -> Trace:
    """A trace by its name in the reference."""
    return load_trace(TRACES[name])


def jittered(trace: Trace, seed: int) -> Trace:
    """The trace with up to a microsecond added to each arrival."""
    dice = Random(seed)
    moved = [one._replace(at_seconds=one.at_seconds + dice.random() * JITTER_SECONDS) for one in trace.requests]
    return replace(trace, requests=moved)


def replayed(cell: Cell, seed: int) -> Figures:
    """One draw of a cell."""
    settings = EngineSettings(cache_blocks=cell.cache_blocks, kind=cell.engine)
    if cell.policy in ALL_SEEING:
        chooser = build_chooser(cell.policy, settings, seed=seed)
    else:
        chooser = router_chooser(
            cell.policy,
            settings,
            learn=False,
            gateways=cell.gateways,
            news_delay_seconds=cell.news_delay_seconds,
            seed=seed,
            worker_prefix=f"fleet-{seed}",
        )
    trace = jittered(read(cell.trace), seed)
    shared = cell.policy == "ideal"
    return figures(trace, replay(trace, chooser, settings, time_scale=cell.time_scale, shared_cache=shared))


def compare(cell: Cell, draws: Sequence[Figures]) -> Agreement:
    """The means of our draws against the reference's."""
    ttft = [one.ttft_mean_seconds for one in draws]
    hits = [one.token_hit_rate for one in draws]
    return Agreement(
        ttft_difference=statistics.mean(ttft) / cell.ttft_mean_seconds - 1,
        ttft_error=_error(cell.ttft_spread_seconds, cell.seeds, len(draws)) / cell.ttft_mean_seconds,
        hit_rate_difference=statistics.mean(hits) - cell.token_hit_rate,
        hit_rate_error=_error(cell.hit_rate_spread, cell.seeds, len(draws)),
    )


def _error(spread: float, *draws: int) -> float:
    """Of the difference of two means over so many draws of this spread."""
    return spread * sum(1 / count for count in draws) ** 0.5


def main(seeds: int, words: Sequence[str]) -> bool:
    """Print every cell; whether all of one gateway agree."""
    agree = True
    for cell in reference():
        if not all(word in cell.name for word in words):
            continue
        draws = [replayed(cell, seed) for seed in range(1, seeds + 1)]
        found = compare(cell, draws)
        agree &= found.holds or cell.gateways > 1
        ttft, hit = (statistics.mean([one[field] for one in draws]) for field in (1, 0))
        print(
            f"{cell.name}: ttft {ttft:.3f} s, reference {cell.ttft_mean_seconds:.3f} s "
            f"({found.ttft_difference:+.1%} ± {found.ttft_error:.1%}); "
            f"hit {hit:.2%}, reference {cell.token_hit_rate:.2%} "
            f"({100 * found.hit_rate_difference:+.2f} ± {100 * found.hit_rate_error:.2f} points); "
            f"total {statistics.mean([one.total_mean_seconds for one in draws]):.2f} s, "
            f"reference {cell.total_mean_seconds:.2f} s{'' if found.holds else '  DIFFERS'}",
            flush=True,
        )
    return agree


if __name__ == "__main__":
    count, *rest = sys.argv[1:] if sys.argv[1:2] and sys.argv[1].isdigit() else ["4", *sys.argv[1:]]
    sys.exit(0 if main(int(count), rest) else 1)
