"""Blocks that come back from the tiers: while a request waits, without anybody waiting with it."""

from __future__ import annotations

import random

import pytest

from backends.fetching import MOST_DEFERRED, MOST_STARTS, PREFETCHED_SEQUENCES, Fetches
from backends.retention import CachePolicy, Retention
from backends.tiers.interface import FetchState
from tests.backends.core_builders import (
    answer,
    build_cache,
    build_prompt,
    build_request,
    build_sequence,
    expected_output,
    outputs,
    run_to_end,
)
from tests.backends.test_equality import build_prompts, run_concurrently
from tests.backends.toy_tier import ToyTier, build_tiered_engine, chain

PROMPT = build_prompt(21)


def build_evicted(**changes):
    """An engine that computed PROMPT once and evicted it since; its tier."""
    engine, tier = build_tiered_engine(num_blocks=9, **changes)
    answer(engine, "first", PROMPT, max_tokens=1)
    answer(engine, "second", build_prompt(31, seed=1), max_tokens=1)
    assert engine.cache.lookup(build_sequence(PROMPT)) == []
    return engine, tier


@pytest.mark.parametrize("looks", [0, 1, 5])
def test_evicted_blocks_come_back_and_count_as_cached(looks):
    """Trap 13: twenty tokens from the tier, one computed, the answer as before."""
    engine, tier = build_evicted(looks=looks)
    runner_steps = len(engine.runner.batches)
    last = answer(engine, "again", PROMPT, max_tokens=3)
    assert last.cached_tokens == 20
    assert engine.runner.batches[runner_steps] == [("again", 20, 1)]
    stats = engine.stats()
    assert (stats.external_hits, stats.external_hits_by_source) == (20, (("toy", 20),))
    assert stats.external_queries == 21 + 31 + 21
    assert stats.prefix_hits == 0
    assert tier.open == {}


def test_a_block_on_its_way_is_no_hit_and_others_pass():
    """Trap 13: deferred until it is there; the step loop goes on."""
    engine, _ = build_evicted(looks=6)
    engine.add(build_request("a", PROMPT))
    engine.add(build_request("b", build_prompt(5, seed=2), max_tokens=3))
    first = engine.step()
    assert {delta.request_id for delta in first} == {"b"}
    assert engine.stats().deferred == 1
    deltas = run_to_end(engine)
    assert outputs(deltas)["a"] == expected_output(PROMPT, 4)
    assert deltas[-1].cached_tokens == 20


def test_with_nothing_else_to_do_a_step_waits_for_the_tiers():
    """And tells them that it computed nothing."""
    engine, tier = build_evicted(looks=4)
    engine.add(build_request("a", PROMPT))
    assert engine.step() == []
    assert tier.waits == 1
    assert tier.stepped_tokens[-1] == 0


def test_the_first_in_the_queue_have_their_blocks_brought_while_they_wait():
    """One place: four are asked for at once, the others when they come nearer."""
    engine, tier = build_tiered_engine(max_sequences=1, looks=100)
    for number in range(8):
        engine.add(build_request(f"{number}", build_prompt(9, seed=number)))
    assert sorted(tier.open) == [f"{number}" for number in range(PREFETCHED_SEQUENCES)]


def test_what_is_asked_again_after_a_preemption_counts_once():
    """As look-ups in the pool do: it is no news about the load."""
    engine, _ = build_evicted()
    engine.add(build_request("a", PROMPT))
    engine.step()
    before = engine.stats()
    assert engine.reset_prefix_cache(preempt=True)
    deltas = run_to_end(engine)
    after = engine.stats()
    assert (after.external_queries, after.external_hits) == (before.external_queries, before.external_hits)
    assert {delta.cached_tokens for delta in deltas} == {20}


def test_an_abort_of_one_that_waits_for_a_tier_leaves_nothing_behind():
    """Trap 10: nothing of it is held in the pool, and what was brought may go."""
    engine, tier = build_evicted(looks=5)
    engine.add(build_request("a", PROMPT))
    engine.step()
    assert engine.abort("a")
    assert tier.open == {}
    engine.check_integrity()
    assert not engine.has_work
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1
    assert answer(engine, "b", PROMPT, max_tokens=1).cached_tokens == 20


def test_a_broken_payload_is_computed_instead(caplog):
    """A length that does not fit is refused by the runner; the request never hears of it."""
    engine, tier = build_evicted(long_prefill_token_threshold=8)
    tier.kept = {content: payload[:8] for content, payload in tier.kept.items()}
    steps = len(engine.runner.batches)
    assert answer(engine, "a", PROMPT, max_tokens=1).cached_tokens == 0
    assert engine.runner.batches[steps:] == [[("a", 0, 8)], [("a", 8, 8)], [("a", 16, 5)]]
    assert "do not fit" in caplog.text
    engine.check_integrity()


def test_a_part_that_came_is_used_and_the_rest_computed():
    """Two of five blocks are kept."""
    engine, tier = build_evicted()
    tier.kept = {content: payload for content, payload in tier.kept.items() if len(content) <= 3}
    engine.add(build_request("a", PROMPT))
    deltas = run_to_end(engine)
    assert outputs(deltas) == {"a": expected_output(PROMPT, 4)}
    assert deltas[0].cached_tokens == 8


def test_what_is_fetched_follows_what_the_pool_has():
    """The pool's own blocks are not asked for; the tiers hear which were found."""
    engine, tier = build_tiered_engine(num_blocks=9)
    answer(engine, "first", PROMPT, max_tokens=1)
    engine.add(build_request("other", build_prompt(13, seed=3), max_tokens=1))
    run_to_end(engine)
    found = len(engine.cache.lookup(build_sequence(PROMPT)))
    assert 0 < found < 5
    last = answer(engine, "again", PROMPT, max_tokens=1)
    assert last.cached_tokens == 20
    assert len(tier.found) == found
    assert engine.stats().external_hits == 20 - 4 * found


def test_who_reads_nothing_asks_nothing():
    """Neither the pool nor the tiers."""
    engine, _ = build_evicted()
    before = engine.stats().external_queries
    assert answer(engine, "a", PROMPT, reads_cache=False).cached_tokens == 0
    assert engine.stats().external_queries == before


def test_what_must_not_be_stored_may_be_read_from_a_tier():
    """And is not registered when it comes."""
    engine, _ = build_evicted()
    before = engine.pool.cached_blocks_count
    assert answer(engine, "a", PROMPT, max_tokens=1, cache=CachePolicy(Retention.NO_STORE)).cached_tokens == 20
    assert engine.pool.cached_blocks_count <= before


def test_a_fetch_whose_beginning_is_evicted_again_and_again_is_given_up():
    """Each time it starts anew; after a few times the blocks are computed."""
    cache = build_cache()
    tier = ToyTier(None, looks=9)
    fetches = Fetches(cache, None, tier)
    sequence = build_sequence(build_prompt(33))
    cache.lookup(sequence)
    tier.kept = {chain(key): b"" for key in sequence.block_keys}
    states = [fetches.ask(sequence, blocks % 2).state for blocks in range(MOST_STARTS + 2)]
    assert states == [FetchState.PENDING] * MOST_STARTS + [FetchState.MISS] * 2


def test_a_reset_reaches_the_tiers_only_when_asked():
    """As vLLM's reset_external."""
    engine, tier = build_evicted()
    assert engine.reset_prefix_cache()
    assert tier.resets == 0
    assert engine.reset_prefix_cache(external=True)
    assert tier.resets == 1
    assert answer(engine, "a", PROMPT).cached_tokens == 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("changes", [{}, {"bits": 8}, {"max_batched_tokens": 9}, {"num_preallocate_tokens": 8}])
def test_answers_do_not_depend_on_what_the_tiers_do(seed, changes):
    """Late, partial, failing and broken fetches, a tiny pool: every answer is the one that the tokens determine."""
    generator = random.Random(seed)
    prompts = build_prompts(60, generator)
    engine, tier = build_tiered_engine(num_blocks=14, generator=generator, **changes)
    deltas = run_concurrently(engine, prompts, generator, tokens=8)
    assert outputs(deltas) == {name: expected_output(prompt, 8) for name, prompt in prompts.items()}
    stats = engine.stats()
    assert stats.external_hits > 50
    assert stats.free_blocks == stats.num_blocks - 1
    assert tier.open == {}


def test_only_so_many_wait_for_the_tiers_at_a_time():
    """Each is looked after in every step; the rest stays in the queue, and all are answered in the end."""
    engine, tier = build_tiered_engine(looks=30, num_blocks=9, max_sequences=64)
    prompts = {f"{number}": build_prompt(9, seed=number) for number in range(MOST_DEFERRED + 9)}
    for name, prompt in prompts.items():
        answer(engine, name, prompt, max_tokens=0)
    fill = build_prompt(31, seed=1000)
    answer(engine, "fill", fill, max_tokens=0)
    for name, prompt in prompts.items():
        engine.add(build_request(name, prompt, max_tokens=1))
    for _ in range(4):
        engine.step()
    assert engine.stats().deferred == MOST_DEFERRED
    assert outputs(run_to_end(engine)) == {name: expected_output(prompt, 1) for name, prompt in prompts.items()}
    assert tier.open == {}
