"""Which replays there are: a trace, a policy, a cache, a load, an engine, a seed; and which of them each run needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from bench.bars.hot_head import hot_head
from bench.peers.registry import PEERS, STRONGEST
from router.replay.core import EngineKind, EngineSettings, Trace
from router.replay.traces import load_trace

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "conversation": ROOT / "bench/data/mooncake_conversation.jsonl.gz",
    "synthetic": ROOT / "tests/data/traces/mooncake_synthetic.jsonl.gz",
    "agents": ROOT / "bench/data/claude_code_sessions.jsonl.gz",
    "ragpulse": ROOT / "bench/data/ragpulse_trace.jsonl.gz",
}
CHAT_CACHES = {"conversation": (1_000, 4_000, 16_000), "synthetic": (500, 2_000, 8_000)}
LOADS = (0.5, 0.7, 0.9, 1.1)
AGENT_CELLS = ((5_000, 1.5), (8_000, 2.0), (8_000, 3.0))
"""Cache blocks, and how many times as fast as in the trace sessions begin."""

RAGPULSE_CELLS = ((4_000, 0.5), (4_000, 0.9), (32_000, 0.9))
"""In blocks of 64 tokens."""

REPLICA_CELLS = (("conversation", 4_000, 0.9), ("conversation", 4_000, 1.1), ("agents", 5_000, 1.5))
REPLICAS = 4
NEWS_DELAY_SECONDS = 0.05
NINTH_CELL = ("conversation", 4_000, 0.9)
ENGINE_B_LOADS = (0.5, 0.9, 1.1)
OURS = ("homing", "oracle", "ideal", "least_requests")
NEAR = (*OURS, *STRONGEST)
WITHOUT_LOTS = ("oracle", "ideal")
SEEDS = (1, 2, 3)


class Workload(NamedTuple):
    """What comes in and what serves it. `load` is relative to what fewest requests in flight sustains.

    In a closed loop `load` is how many times as fast sessions begin; the hot head has its own pace, load 1.
    """

    trace: str
    cache_blocks: int
    load: float
    engine: EngineKind = "A"

    @property
    def label(self) -> str:
        """As shown in tables."""
        if self.trace == "hot_head":
            return "hot head, engine B"
        load = f"×{self.load:g}" if self.trace == "agents" else f"load {self.load:g}"
        return f"{self.trace} C={self.cache_blocks:,} {load}" + (", engine B" if self.engine == "B" else "")

    @property
    def relative(self) -> bool:
        """Whether the load has to be found out first."""
        return self.trace not in ("agents", "hot_head")

    def settings(self) -> EngineSettings:
        """The eight workers."""
        return EngineSettings(cache_blocks=self.cache_blocks, kind=self.engine)


class Cell(NamedTuple):
    """One replay. `ninth` is two: with a ninth worker that joins half-way, and without."""

    workload: Workload
    policy: str
    seed: int = 1
    gateways: int = 1
    ninth: bool = False

    @property
    def label(self) -> str:
        """As shown while it runs."""
        extra = f", {self.gateways} gateways" if self.gateways > 1 else ", a ninth worker" if self.ninth else ""
        return f"{self.workload.label}, {self.policy}, seed {self.seed}{extra}"


@lru_cache(maxsize=2)
def trace_of(name: str) -> Trace:
    """A trace by name."""
    return hot_head() if name == "hot_head" else load_trace(FILES[name])


def chat_workloads(loads: Sequence[float] = LOADS) -> list[Workload]:
    """Engine A on both chat traces."""
    return [Workload(trace, cache, load) for trace, caches in CHAT_CACHES.items() for cache in caches for load in loads]


def agent_workloads() -> list[Workload]:
    """Engine A on the coding agents."""
    return [Workload("agents", cache, load) for cache, load in AGENT_CELLS]


def ragpulse_workloads() -> list[Workload]:
    """Engine A on ragpulse."""
    return [Workload("ragpulse", cache, load) for cache, load in RAGPULSE_CELLS]


def engine_b_workloads() -> list[Workload]:
    """Engine B: chat, and the hot head."""
    chat = [Workload("conversation", 4_000, load, "B") for load in ENGINE_B_LOADS]
    return [*chat, Workload("hot_head", 4_000, 1.0, "B")]


def quick_cells(seeds: Sequence[int] = SEEDS) -> Iterator[Cell]:
    """Engine A: ours, and the strongest peers; one seed after the other, so that a part of it is of use."""
    for seed in seeds:
        yield from _cross([*chat_workloads(), *agent_workloads()], NEAR, seed)
        yield from _cross(ragpulse_workloads(), ["homing", "least_requests"], seed)
        yield from fleet_cells(seed)


def full_cells(seeds: Sequence[int] = SEEDS) -> Iterator[Cell]:
    """Both engines and all peers; those that come nowhere near are replayed once, at the end."""
    yield from quick_cells(seeds)
    for seed in seeds:
        yield from _cross([*engine_b_workloads(), *ragpulse_workloads()], NEAR, seed)
    far = [name for name in PEERS if name not in NEAR]
    everywhere = [*engine_b_workloads(), *chat_workloads(), *ragpulse_workloads(), *agent_workloads()]
    yield from _cross(everywhere, far, seeds[0])


def fleet_cells(seed: int) -> Iterator[Cell]:
    """Four replicas, and a worker that joins."""
    for place in REPLICA_CELLS:
        yield Cell(Workload(*place), "homing", seed, gateways=REPLICAS)
    yield Cell(Workload(*NINTH_CELL), "homing", seed, ninth=True)


def _cross(workloads: Sequence[Workload], policies: Sequence[str], seed: int) -> Iterator[Cell]:
    """Each policy on each workload; two policies draw no lots that matter, and are replayed once."""
    for workload in workloads:
        for policy in policies:
            if seed == SEEDS[0] or policy not in WITHOUT_LOTS:
                yield Cell(workload, policy, seed)
