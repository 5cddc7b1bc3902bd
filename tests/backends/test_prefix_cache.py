"""The prefix cache: what hits, what fits, and when others may see it."""

from __future__ import annotations

import pytest

from backends.prefix_statistics import RECENT_REQUESTS, PrefixStatistics
from tests.backends.core_builders import build_cache, build_computed, build_prompt, build_sequence


def hit_tokens(cache, prompt, **where) -> int:
    return 4 * len(cache.lookup(build_sequence(prompt, **where)))


def test_the_second_equal_prompt_hits_all_but_its_last_block():
    """Trap 5: sixteen cached tokens of sixteen: twelve hit, the block of the last token is computed again."""
    cache, prompt = build_cache(), build_prompt(16)
    cache.release(build_computed(cache, prompt))
    assert hit_tokens(cache, prompt) == 12
    assert hit_tokens(cache, [*prompt, 1]) == 16


@pytest.mark.parametrize(("shared", "hit"), [(3, 0), (4, 4), (5, 4), (7, 4), (8, 8), (11, 8), (12, 12)])
def test_only_whole_blocks_hit(shared, hit):
    """Case H-01: a shared head below the block size hits nothing; above, the blocks it fills."""
    cache, prompt = build_cache(), build_prompt(13)
    build_computed(cache, prompt)
    assert hit_tokens(cache, prompt[:shared] + build_prompt(6, seed=1)) == hit


@pytest.mark.parametrize("length", range(1, 14))
def test_the_last_token_is_never_a_hit(length):
    """Trap 5: for every length at least one token is left to compute, also at block borders."""
    cache, prompt = build_cache(), build_prompt(length)
    build_computed(cache, prompt)
    sequence = build_computed(cache, prompt, "b")
    assert sequence.cached_tokens == (length - 1) // 4 * 4
    assert sequence.cached_tokens < length


def test_nothing_is_found_before_it_was_computed():
    """Case H-03, trap 12: blocks are registered after the step, never at scheduling."""
    cache, prompt = build_cache(), build_prompt(12)
    sequence = build_sequence(prompt)
    assert cache.admit(sequence, [], 12, spare_blocks=0)
    assert hit_tokens(cache, prompt) == 0
    sequence.computed_tokens = 7
    cache.commit(sequence)
    assert hit_tokens(cache, prompt) == 4


def test_a_sequence_ended_in_mid_block_leaves_no_half_block():
    """Trap 6: only full blocks are ever cached."""
    cache, prompt = build_cache(), build_prompt(12)
    sequence = build_sequence(prompt)
    cache.admit(sequence, [], 12, spare_blocks=0)
    sequence.computed_tokens = 6
    cache.commit(sequence)
    cache.release(sequence)
    assert cache.pool.cached_blocks_count == 1
    assert hit_tokens(cache, prompt) == 4


def test_output_tokens_are_cached_like_prompt_tokens():
    """The next turn of a conversation hits the answer of the last one."""
    cache, prompt = build_cache(), build_prompt(6)
    sequence = build_computed(cache, prompt)
    sequence.token_ids.extend([1, 2, 3])
    assert cache.grow(sequence, 8)
    sequence.computed_tokens = 8
    cache.commit(sequence)
    cache.release(sequence)
    assert hit_tokens(cache, [*prompt, 1, 2, 3]) == 8


def test_hits_are_held_before_new_blocks_are_taken():
    """Trap 7, case H-04: with the hit first in the queue of eviction, a long request must not evict it."""
    cache, prompt = build_cache(num_blocks=5), build_prompt(9)
    cache.release(build_computed(cache, prompt))
    hits = cache.lookup(longer := build_sequence(prompt + build_prompt(7, seed=1)))
    assert len(hits) == 2
    assert cache.admit(longer, hits, 16, spare_blocks=0)
    assert longer.block_ids[:2] == hits
    assert len(set(longer.block_ids)) == 4
    cache.pool.check_integrity([longer.block_ids])


def test_hits_that_nobody_holds_use_up_free_blocks():
    """Trap 7: two hits and two new blocks do not fit into three free ones, though two are 'cached'."""
    cache, prompt = build_cache(num_blocks=5), build_prompt(9)
    cache.release(build_computed(cache, prompt))
    other = build_computed(cache, [1], "other")
    longer = build_sequence(prompt + build_prompt(7, seed=1))
    hits = cache.lookup(longer)
    assert len(hits) == 2
    assert cache.pool.free_blocks_count == 3
    assert not cache.admit(longer, hits, 16, spare_blocks=0)
    assert longer.block_ids == []
    cache.pool.check_integrity([other.block_ids])


def test_hits_that_somebody_holds_cost_nothing():
    """Sharing with a running sequence needs room for the new blocks only."""
    cache, prompt = build_cache(num_blocks=5), build_prompt(9)
    running = build_computed(cache, prompt)
    sharing = build_sequence(prompt)
    assert cache.admit(sharing, cache.lookup(sharing), 9, spare_blocks=0)
    assert sharing.block_ids[:2] == running.block_ids[:2]
    cache.pool.check_integrity([running.block_ids, sharing.block_ids])


def test_a_long_prompt_is_let_in_only_when_it_fits_as_a_whole():
    """Its first chunk would fit; but two such prompts would block each other for ever."""
    cache = build_cache(num_blocks=5)
    assert not cache.admit(build_sequence(build_prompt(20)), [], 4, spare_blocks=0)
    chunked = build_sequence(build_prompt(16))
    assert cache.admit(chunked, [], 4, spare_blocks=0)
    assert len(chunked.block_ids) == 1


def test_spare_blocks_stay_free():
    """The watermark: what is let in leaves room for those who run already."""
    cache = build_cache(num_blocks=5)
    assert not cache.admit(build_sequence(build_prompt(12)), [], 12, spare_blocks=2)
    assert cache.admit(build_sequence(build_prompt(12)), [], 12, spare_blocks=1)


def test_a_table_that_cannot_grow_is_left_as_it_was():
    """All or nothing, so that the scheduler can preempt somebody and try again."""
    cache = build_cache(num_blocks=4)
    sequence = build_computed(cache, build_prompt(4))
    assert not cache.grow(sequence, 17)
    assert len(sequence.block_ids) == 1
    assert cache.grow(sequence, 12)
    assert len(sequence.block_ids) == 3


def test_two_prefills_of_one_prompt_are_two_copies():
    """Trap 9: tables are append-only, so copies stay apart; one going leaves the other findable."""
    cache, prompt = build_cache(num_blocks=7), build_prompt(9)
    one, other = build_sequence(prompt, "a"), build_sequence(prompt, "b")
    for sequence in (one, other):
        assert cache.admit(sequence, cache.lookup(sequence), 9, spare_blocks=0)
    for sequence in (one, other):
        sequence.computed_tokens = 9
        cache.commit(sequence)
    assert not set(one.block_ids) & set(other.block_ids)
    assert cache.pool.cached_blocks_count == 4
    cache.pool.evict(one.block_ids)
    assert hit_tokens(cache, prompt) == 8
    assert set(cache.lookup(build_sequence(prompt))) <= set(other.block_ids)


def test_salts_and_adapters_separate_equal_prompts():
    """Traps 1 and 2, case H-06: the same salt hits every time; another one, or another adapter, never does."""
    cache, prompt = build_cache(), build_prompt(9)
    build_computed(cache, prompt, cache_salt="tenant a", adapter="a@v1")
    assert hit_tokens(cache, prompt, cache_salt="tenant a", adapter="a@v1") == 8
    assert hit_tokens(cache, prompt, cache_salt="tenant b", adapter="a@v1") == 0
    assert hit_tokens(cache, prompt, cache_salt="tenant a", adapter="a@v2") == 0
    assert hit_tokens(cache, prompt, cache_salt="tenant a") == 0
    assert hit_tokens(cache, prompt) == 0


def test_with_one_digest_for_all_no_foreign_block_is_found():
    """Case F-16, trap 3: even when every block and every salt collides, tokens and parents decide."""
    cache, prompt = build_cache(num_blocks=33, bits=0), build_prompt(9)
    build_computed(cache, prompt, cache_salt="s")
    build_computed(cache, build_prompt(4, seed=1) + prompt[4:], cache_salt="s")
    assert hit_tokens(cache, prompt, cache_salt="s") == 8
    assert hit_tokens(cache, prompt, cache_salt="t") == 0
    assert hit_tokens(cache, [*prompt[4:], 1], cache_salt="s") == 0
    assert hit_tokens(cache, build_prompt(4, seed=2) + prompt[4:], cache_salt="s") == 0


def test_a_cache_that_is_off_finds_and_remembers_nothing():
    """Blocks are given and taken all the same."""
    cache, prompt = build_cache(enabled=False), build_prompt(9)
    cache.release(build_computed(cache, prompt))
    assert hit_tokens(cache, prompt) == 0
    assert cache.pool.cached_blocks_count == 0
    assert cache.statistics.queries == 0


def test_a_repeated_admission_is_not_counted():
    """Trap 11: the look-up after a preemption hits one's own blocks; that says nothing about the load."""
    cache, prompt = build_cache(), build_prompt(9)
    sequence = build_computed(cache, prompt)
    cache.release(sequence)
    assert cache.admit(sequence, cache.lookup(sequence), 9, spare_blocks=0)
    assert sequence.computed_tokens == 8
    assert sequence.cached_tokens == 0
    assert (cache.statistics.queries, cache.statistics.hits) == (9, 0)


def test_the_hit_rate_is_over_the_last_thousand_requests():
    """As vLLM's log line; the counters since start go on."""
    statistics = PrefixStatistics()
    assert statistics.recent_hit_rate == 0
    for _ in range(RECENT_REQUESTS):
        statistics.record(10, 0)
    for _ in range(RECENT_REQUESTS // 4):
        statistics.record(10, 10)
    assert statistics.recent_hit_rate == 0.25
    assert (statistics.queries, statistics.hits) == (12_500, 2_500)


def test_a_reset_forgets_the_recent_hit_rate():
    """After a reset the cache is cold, and the old rate would mislead."""
    cache, prompt = build_cache(), build_prompt(9)
    one, other = build_computed(cache, prompt, "a"), build_computed(cache, prompt, "b")
    assert not cache.reset()
    assert cache.statistics.recent_hit_rate > 0
    cache.release(one)
    cache.release(other)
    assert cache.reset()
    assert cache.statistics.recent_hit_rate == 0
    assert cache.statistics.hits == 8
    assert hit_tokens(cache, prompt) == 0


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (lambda sequence: sequence.block_ids.clear(), "more tokens than its blocks hold"),
        (lambda sequence: setattr(sequence, "registered_blocks", 3), "not computed"),
        (lambda sequence: sequence.block_ids.insert(0, sequence.block_ids.pop(1)), "under other tokens"),
    ],
)
def test_the_check_finds_a_table_that_does_not_fit_its_sequence(damage, complaint):
    """A lost block, one registered too early, one in the wrong place."""
    cache = build_cache()
    sequence = build_computed(cache, build_prompt(9))
    cache.check_integrity(sequence)
    damage(sequence)
    with pytest.raises(AssertionError, match=complaint):
        cache.check_integrity(sequence)
