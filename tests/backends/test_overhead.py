"""What the engine itself costs, in CPU time; the bounds leave room for a busy machine."""

from __future__ import annotations

from backends.simulated import SimulatedRunner, Timing
from tests.backends.core_builders import build_cache, build_computed, build_engine, build_request, build_sequence
from tests.timing import best_seconds


def test_a_lookup_of_eight_thousand_tokens_takes_less_than_half_a_millisecond():
    """511 of 512 blocks hit; their names are known, as they are for every look-up but the first."""
    prompt = [number % 97 for number in range(8192)]
    cache = build_cache(600, block_tokens=16)
    build_computed(cache, prompt)
    sequence = build_sequence(prompt)
    assert len(cache.lookup(sequence)) == 511
    assert best_seconds(lambda: cache.lookup(sequence)) < 0.0005


def test_naming_and_finding_eight_thousand_tokens_takes_a_millisecond_or_two():
    """The first look-up of a request also computes 512 hashes."""
    prompt = [number % 97 for number in range(8192)]
    cache = build_cache(600, block_tokens=16)
    build_computed(cache, prompt)
    assert best_seconds(lambda: cache.lookup(build_sequence(prompt))) < 0.002


def test_a_step_of_64_running_sequences_takes_well_below_a_millisecond():
    """Schedule, commit, emit; no model, no text."""
    runner = SimulatedRunner(Timing(), lambda seconds: None)
    engine = build_engine(
        runner, num_blocks=4000, max_model_tokens=1000, block_tokens=16, max_sequences=64, max_batched_tokens=8192
    )
    for number in range(64):
        engine.add(build_request(f"{number}", [number + 1] * 64, max_tokens=900))
    engine.step()
    assert engine.stats().running == 64
    assert best_seconds(lambda: [engine.step() for _ in range(10)]) / 10 < 0.00075
