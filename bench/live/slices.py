"""The two loads of a live comparison: the beginning of a chat trace, and coding agents that wait for answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bench.live.figures import Json
from bench.live.texts import Planned, plan
from router.replay.choosers import build_chooser
from router.replay.core import Churn, EngineSettings, Trace, TraceRequest
from router.replay.figures import figures
from router.replay.simulate import replay
from router.replay.traces import agents, first_requests, load_trace

DATA = Path(__file__).parents[1] / "data"
CONVERSATION_REQUESTS = 4000
CONVERSATION_TIME_SCALE = 0.673
"""Brings the chat trace to 0.9 of what least requests sustain on 8 workers of 4,000 blocks."""

AGENT_SESSIONS = 200
AGENT_CALLS = 16
AGENT_THINK_SECONDS = 20.0
AGENT_CACHE_BLOCKS = 1500
AGENT_LONGEST_TOKENS = 64_000
AGENT_WINDOW_SECONDS = 300.0
AGENT_START_SPAN_SECONDS = 150.0


@dataclass(frozen=True)
class Slice:
    """A load, and the caches of the workers that it is for."""

    trace: Trace
    time_scale: float
    cache_blocks: int
    turns: bool

    def planned(self) -> list[Planned]:
        """Its requests with their bodies."""
        return plan(self.trace.requests, self.time_scale, self.turns)


def conversation(requests: int = CONVERSATION_REQUESTS, time_scale: float = CONVERSATION_TIME_SCALE) -> Slice:
    """The first requests of Mooncake's chat trace, open loop, each a single message."""
    trace = load_trace(DATA / "mooncake_conversation.jsonl.gz")
    return Slice(first_requests(trace, requests), time_scale, 4000, turns=False)


def agent_sessions(sessions: int = AGENT_SESSIONS, calls: int = AGENT_CALLS) -> Slice:
    """The first calls of coding-agent sessions, closed loop: long heads that sessions share, then many turns.

    Sessions begin within AGENT_START_SPAN_SECONDS, and think AGENT_THINK_SECONDS at most, so that a run stays short.
    """
    trace = agents(
        DATA / "claude_code_sessions.jsonl.gz",
        most_tokens=AGENT_LONGEST_TOKENS,
        window_seconds=AGENT_WINDOW_SECONDS,
        start_span_seconds=AGENT_START_SPAN_SECONDS,
    )
    kept = [
        request._replace(number=number, think_seconds=min(request.think_seconds, AGENT_THINK_SECONDS))
        for number, request in enumerate(_first_calls(trace.requests, sessions, calls))
    ]
    return Slice(replace(trace, requests=kept), 1.0, AGENT_CACHE_BLOCKS, turns=True)


def replayed(part: Slice, policy: str = "homing") -> Json:
    """What the simulator says of the same load; a policy that learns nothing, for it is told all."""
    settings = EngineSettings(cache_blocks=part.cache_blocks)
    chooser = build_chooser(policy, settings, learn=False)
    ideal = policy == "ideal"
    of = figures(part.trace, replay(part.trace, chooser, settings, time_scale=part.time_scale, shared_cache=ideal))
    quantiles = {"p50": of.ttft_p50_seconds, "p90": of.ttft_p90_seconds, "p99": of.ttft_p99_seconds}
    return {
        "ttft_s": {"mean": of.ttft_mean_seconds, **quantiles},
        "total_s_mean": of.total_mean_seconds,
        "token_hit_rate": of.token_hit_rate,
        "busy_max_over_mean": of.busy_max_over_mean,
        "requests_max_over_mean": of.requests_max_over_mean,
    }


def replayed_hit_rate(part: Slice, start: float, end: float, churn: Sequence[Churn] = ()) -> float:
    """Of the requests between two moments (trace seconds since the first), in a fleet that changes so."""
    settings, first = (
        EngineSettings(cache_blocks=part.cache_blocks),
        part.trace.requests[0].at_seconds * part.time_scale,
    )
    shifted = [change._replace(at_seconds=change.at_seconds + first) for change in churn]
    chooser = build_chooser("homing", settings, learn=False)
    outcomes = replay(part.trace, chooser, settings, time_scale=part.time_scale, churn=shifted).outcomes
    within = [
        (outcome.cached_tokens, request.prompt.tokens)
        for outcome, request in zip(outcomes, part.trace.requests, strict=True)
        if start <= outcome.sent_at_seconds - first < end
    ]
    return sum(cached for cached, _ in within) / max(1, sum(tokens for _, tokens in within))


def _first_calls(requests: Sequence[TraceRequest], sessions: int, calls: int) -> Iterator[TraceRequest]:
    """Of the sessions with the lowest numbers, the first calls each."""
    among = set(sorted({request.session for request in requests})[:sessions])
    seen: Counter[int] = Counter()
    for request in requests:
        seen[request.session] += 1
        if request.session in among and seen[request.session] <= calls:
            yield request
