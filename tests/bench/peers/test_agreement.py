"""Peers against figures of another simulator, written earlier in another language from the same descriptions."""

from __future__ import annotations

import pytest

from bench.bars.cells import trace_of
from bench.peers.registry import PEERS, build_peer
from router.replay.core import Churn, EngineSettings
from router.replay.figures import figures
from router.replay.simulate import replay
from router.replay.traces import first_requests
from tests.bench.peers.builders import build_trace

TIME_SCALE = 0.9927
SETTINGS = EngineSettings(cache_blocks=2_000)
REFERENCE = {
    "cache_aware_cli": (1.910, 0.533),
    "cache_aware_smallest_tree": (1.518, 0.536),
    "llmd_approximate": (1.351, 0.537),
    "llmd_exact": (1.385, 0.531),
    "llmd_sticky": (1.147, 0.534),
    "lmetric_queued": (1.329, 0.432),
    "preble": (1.615, 0.539),
}
"""Mean seconds to the first token and hit rate on the synthetic trace at load 0.9; means of three seeds."""


@pytest.mark.parametrize("name", REFERENCE)
def test_a_peer_agrees_with_the_other_simulator(name: str):
    """One seed differs from the mean of three by a few percent."""
    trace, (seconds, hit) = trace_of("synthetic"), REFERENCE[name]
    found = figures(trace, replay(trace, build_peer(name, SETTINGS, trace), SETTINGS, time_scale=TIME_SCALE))
    assert found.ttft_mean_seconds == pytest.approx(seconds, rel=0.08)
    assert found.token_hit_rate == pytest.approx(hit, abs=0.02)


@pytest.mark.parametrize("name", PEERS)
def test_every_peer_serves_a_trace_and_owes_nothing_afterwards(name: str):
    """Whatever was counted in flight is counted out."""
    trace = first_requests(trace_of("synthetic"), 120)
    peer = build_peer(name, SETTINGS, trace)
    replayed = replay(trace, peer, SETTINGS, time_scale=0.5)
    assert len(replayed.outcomes) == 120
    assert not any(peer.in_flight)


def test_a_peer_that_there_is_not_is_refused():
    """With the names of those there are."""
    with pytest.raises(ValueError, match="no peer 'nobody'; there are round_robin, random"):
        build_peer("nobody", SETTINGS, build_trace(["a"]))


@pytest.mark.parametrize("name", PEERS)
def test_no_peer_sends_anything_to_a_worker_that_left(name: str):
    """One leaves and another joins under way; a replay refuses whoever is not there."""
    trace = first_requests(trace_of("synthetic"), 150)
    at_seconds = trace.requests[75].at_seconds
    churn = [Churn(at_seconds, 2, joins=False), Churn(at_seconds + 1.0, 8, joins=True)]
    replayed = replay(trace, build_peer(name, SETTINGS, trace), SETTINGS, churn=churn)
    late = {one.worker for one in replayed.outcomes if one.sent_at_seconds > at_seconds}
    assert 2 not in late
