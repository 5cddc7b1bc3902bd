"""What one process of a replay does: it reads the trace once and replays it as often as it is asked to."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from router.policy import POLICIES
from router.replay.choosers import ALL_SEEING, router_chooser
from router.replay.core import Chooser, EngineSettings, Replayed, Trace
from router.replay.figures import Figures, figures
from router.replay.saturation import sustained_requests_per_second
from router.replay.simulate import replay
from router.replay.traces import Recording, first_requests, is_recorded, load_recording, load_trace

ORACLE, IDEAL = "oracle", "ideal"
POLICY_NAMES = tuple(dict.fromkeys((*POLICIES, *ALL_SEEING)))
"""What can be replayed: the router's policies, and those that know everything."""


class Source(NamedTuple):
    """Which requests: a trace's path, a recording's model where it has several, and how many from the start.

    `sessions_wait` makes a recording a closed loop.
    """

    path: Path
    model: str | None = None
    limit: int | None = None
    sessions_wait: bool = False


class Loaded(NamedTuple):
    """The requests, and where they come from a recording, it."""

    trace: Trace
    recording: Recording | None = None


class Gateways(NamedTuple):
    """How many gateways place requests, how late they hear of each other (None: never), and whether they learn."""

    number: int = 1
    news_delay_seconds: float | None = 0.0
    learn: bool = True


ONE_GATEWAY = Gateways()


@dataclass(frozen=True, slots=True)
class Setup:
    """What all replays of one command have in common."""

    source: Source
    engine: EngineSettings
    gateways: Gateways = ONE_GATEWAY
    slo_seconds: float = 5.0
    seed: int = 1


class Job(NamedTuple):
    """One replay: `policy` None floods the fleet by least requests, to see what it sustains."""

    policy: str | None
    cache_blocks: int
    time_scale: float = 0.0

    def __str__(self) -> str:
        if self.policy is None:
            return f"what least_loaded sustains with {self.cache_blocks} blocks"
        return f"{self.policy} with {self.cache_blocks} blocks, times x {self.time_scale:.3g}"


class Result(NamedTuple):
    """What a job found: the figures and the tokens that workers had to compute, or what is sustained, a second."""

    figures: Figures | None = None
    computed_tokens: int = 0
    sustained_per_second: float = 0.0


class Desk:
    """Answers jobs. TraceError for a trace that cannot be read."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._trace = load(setup.source).trace

    def answer(self, job: Job) -> Result:
        """Replay once."""
        setup, trace = self._setup, self._trace
        engine = replace(setup.engine, cache_blocks=job.cache_blocks)
        if job.policy is None:
            return Result(sustained_per_second=sustained_requests_per_second(trace, engine))
        chooser = self._chooser(job.policy, engine)
        shared = job.policy == IDEAL
        replayed = replay(trace, chooser, engine, time_scale=job.time_scale, shared_cache=shared)
        return Result(figures(trace, replayed, setup.slo_seconds), computed_tokens(trace, replayed))

    def _chooser(self, policy: str, engine: EngineSettings) -> Chooser:
        setup, gateways = self._setup, self._setup.gateways
        # One gateway counts its requests exactly; of several each would count its own.
        if policy in ALL_SEEING and (policy not in POLICIES or gateways.number == 1):
            return ALL_SEEING[policy](seed=setup.seed)
        return router_chooser(
            policy,
            engine,
            learn=gateways.learn,
            gateways=gateways.number,
            news_delay_seconds=gateways.news_delay_seconds,
            seed=setup.seed,
        )


def load(source: Source) -> Loaded:
    """Read the requests; TraceError says what is wrong with them."""
    recording = None
    if is_recorded(source.path):
        recording = load_recording(source.path, source.model, closed_loop=source.sessions_wait)
    trace = load_trace(source.path) if recording is None else recording.trace
    return Loaded(first_requests(trace, source.limit) if source.limit is not None else trace, recording)


def computed_tokens(trace: Trace, replayed: Replayed) -> int:
    """Prompt tokens that were not found cached."""
    return sum(
        request.prompt.tokens - outcome.cached_tokens
        for request, outcome in zip(trace.requests, replayed.outcomes, strict=True)
    )
