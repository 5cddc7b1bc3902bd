"""A sample takes families of prompts whole, about as many as asked for, and hits what all of the traffic hits."""

from __future__ import annotations

from gateway.recording.sampling import in_sample
from router.core import FleetView, WorkerView
from router.replay.core import Trace
from router.ring import Ring
from router.router import Router
from tests.router.replay.trace_builders import SYNTHETIC, published_trace, shared_cache_hit_rate

KEYS = [number.to_bytes(16, "little") for number in range(5000)]


def test_about_the_share_is_taken():
    """A fifth is a fifth, all is all."""
    assert 0.17 < sum(in_sample(key, 0.2) for key in KEYS) / len(KEYS) < 0.23
    assert all(in_sample(key, 1.0) for key in KEYS)


def test_a_smaller_sample_is_part_of_a_larger_one():
    """Raising the share keeps what was recorded comparable."""
    assert {key for key in KEYS if in_sample(key, 0.1)} <= {key for key in KEYS if in_sample(key, 0.3)}


def test_a_sample_is_not_the_families_of_some_workers():
    """Homes and samples are drawn apart: every worker has its part."""
    ring = Ring({f"w{number}": 1 for number in range(8)})
    homes = [ring.home(key) for key in KEYS if in_sample(key, 0.2)]
    assert min(homes.count(home) for home in set(homes)) > len(homes) / 8 / 2
    assert len(set(homes)) == 8
    coarse = Ring({"w1": 1, "w2": 1}, points=1)
    share, share_of_sample = (
        sum(coarse.home(key) == "w1" for key in keys) / len(keys)
        for keys in (KEYS, [key for key in KEYS if in_sample(key, 0.2)])
    )
    assert abs(share - share_of_sample) < 0.06


def test_a_sample_of_a_real_trace_hits_about_what_all_of_it_hits():
    """A quarter of the synthetic trace's families with a quarter of the cache: within 4 points. Requests taken at
    random lose more than 20."""
    trace = published_trace(SYNTHETIC)
    router, fleet = Router(), FleetView(tuple([WorkerView(f"w{number}") for number in range(8)]))
    sampled = []
    for request in trace.requests:
        ident = str(request.number)
        placement = router.place(request.prompt, fleet, request.at_seconds, request_id=ident)
        router.cancelled(ident, request.at_seconds)
        if in_sample(placement.key, 0.25):
            sampled.append(request)
    whole = shared_cache_hit_rate(trace, 16_000)
    sample = shared_cache_hit_rate(Trace("sample", 512, sampled), 4_000)
    at_random = shared_cache_hit_rate(Trace("random", 512, trace.requests[::4]), 4_000)
    assert 0.2 < len(sampled) / len(trace.requests) < 0.3
    assert abs(sample - whole) < 0.04
    assert at_random < whole - 0.2
