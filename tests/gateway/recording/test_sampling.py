"""A sample takes families of prompts whole, about as many as asked for, and the same ones everywhere."""

from __future__ import annotations

from gateway.recording.sampling import Sampler
from router.core import FleetView, WorkerView
from router.replay.traces import Trace, load_trace
from router.router import Router
from tests.gateway.recording.recording_builders import block, build_chain
from tests.router.replay.trace_builders import SYNTHETIC, shared_cache_hit_rate


def family(number: int) -> bytes:
    return number.to_bytes(16, "little")


def test_about_the_share_is_taken_and_everywhere_the_same():
    """No memory and no order has a part in it."""
    taken = [number for number in range(5000) if Sampler(0.2).takes([family(number)], family(number))]
    one = Sampler(0.2)
    assert [number for number in range(5000) if one.takes([family(number)], family(number))] == taken
    assert 0.17 < len(taken) / 5000 < 0.23


def test_a_conversation_is_taken_whole_or_not_at_all():
    """All its turns have the family's block, however long they are."""
    sampler = Sampler(0.5)
    for number in range(50):
        turns = [build_chain(0, number, *range(length)) for length in range(1, 9)]
        assert len({sampler.takes(turn, block(0, number)) for turn in turns}) == 1


def test_a_family_stays_what_it_was_when_its_key_moves():
    """Traffic makes a block common or rare: the key goes deeper or nearer to the root, the choice does not change."""
    for number in range(60):
        sampler = Sampler(0.5)
        chain = build_chain(number, 1, 2, 3)
        first = sampler.takes(chain, chain[1])
        assert sampler.takes(chain, chain[2]) is first
        assert sampler.takes(build_chain(number, 1, 9), chain[0]) is first


def test_what_is_remembered_is_bounded_and_forgetting_changes_little():
    """A forgotten family is chosen again by the same hash."""
    sampler = Sampler(0.5, remembered_families=10)
    before = [sampler.takes([family(number)], family(number)) for number in range(100)]
    assert len(sampler._families) == 10
    assert [sampler.takes([family(number)], family(number)) for number in range(100)] == before


def test_a_key_that_is_no_block_of_the_prompt_decides_too():
    """Policy `session` looks up a session's hash."""
    sampler = Sampler(0.5)
    decisions = {number: sampler.takes(build_chain(1, number), family(number)) for number in range(40)}
    assert set(decisions.values()) == {True, False}
    assert all(sampler.takes(build_chain(1, number, 2), family(number)) is one for number, one in decisions.items())


def test_a_sample_of_a_real_trace_hits_about_what_all_of_it_hits():
    """A quarter of the synthetic trace's families, with a quarter of the cache: within 4 points. At random it would
    lose more than half."""
    trace = load_trace(SYNTHETIC)
    router, fleet, sampler = Router(), FleetView(tuple(WorkerView(f"w{n}") for n in range(8))), Sampler(0.25)
    sampled = []
    for request in trace.requests:
        ident = str(request.number)
        placement = router.place(request.prompt, fleet, request.at_seconds, request_id=ident)
        router.cancelled(ident, request.at_seconds)
        if sampler.takes(request.prompt.key_blocks, placement.key):
            sampled.append(request)
    whole = shared_cache_hit_rate(trace, 16_000)
    sample = shared_cache_hit_rate(Trace("sample", 512, sampled), 4_000)
    at_random = shared_cache_hit_rate(Trace("random", 512, trace.requests[::4]), 4_000)
    assert 0.2 < len(sampled) / len(trace.requests) < 0.3
    assert abs(sample - whole) < 0.04
    assert at_random < whole - 0.2
