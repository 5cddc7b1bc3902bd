"""Several answers to one prompt: computed once, shared by full blocks, copied where it is not full."""

from __future__ import annotations

import pytest

from backends.fork import Forks, make_family
from backends.types import SampledToken
from tests.backends.core_builders import (
    ManualClock,
    Notes,
    SlotRunner,
    answer,
    build_cache,
    build_computed,
    build_engine,
    build_prompt,
    build_request,
    build_sequence,
    expected_output,
    run_to_end,
)


class BiasedRunner(SlotRunner):
    """Each sibling says something else: its seed is added to its token, as a draw of its own would."""

    def _compute(self, item):
        token = super()._compute(item)
        if not isinstance(token, SampledToken):
            return token
        return SampledToken((token.token_id + (item.sequence.sampling.seed or 0)) % self.vocab_size)


def computed_tokens(runner: SlotRunner) -> int:
    return sum(count for batch in runner.batches for _, _, count in batch)


def answers_of(deltas) -> dict[int, list[int]]:
    """The tokens of each choice."""
    found: dict[int, list[int]] = {}
    for delta in deltas:
        found.setdefault(delta.choice, []).extend(delta.token_ids)
    return found


def forked(prompt_tokens: int, *, n: int = 3, tokens: int = 6, **changes):
    """The answers of n siblings, and the engine they came from."""
    runner = SlotRunner()
    engine, prompt = build_engine(runner, **changes), build_prompt(prompt_tokens)
    engine.add(build_request("a", prompt, n=n, max_tokens=tokens))
    found = answers_of(run_to_end(engine))
    assert found == {choice: expected_output(prompt, tokens) for choice in range(n)}
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1
    return runner, engine


@pytest.mark.parametrize("enable_prefix_caching", [True, False], ids=["cache on", "cache off"])
@pytest.mark.parametrize("prompt_tokens", [1, 3, 4, 5, 8, 11, 12, 13])
def test_the_prompt_is_computed_once_and_its_last_token_by_each(prompt_tokens, enable_prefix_caching):
    """Inside a block, at its end, after it: the prompt, one token more for each sibling, and the answers."""
    runner, _ = forked(prompt_tokens, enable_prefix_caching=enable_prefix_caching)
    assert computed_tokens(runner) == prompt_tokens + 2 + 3 * 5


@pytest.mark.parametrize("enable_prefix_caching", [True, False], ids=["cache on", "cache off"])
def test_siblings_with_other_tokens_do_not_disturb_each_other(enable_prefix_caching):
    """Each writes into its own copy of the last block: the answers differ, and each is what it would be alone."""
    prompt = build_prompt(6)
    engine = build_engine(BiasedRunner(), enable_prefix_caching=enable_prefix_caching)
    engine.add(build_request("a", prompt, n=4, seed=1, max_tokens=9))
    together = answers_of(run_to_end(engine))
    alone = {}
    for seed in range(1, 5):
        lone = build_engine(BiasedRunner(), enable_prefix_caching=False)
        lone.add(build_request("a", prompt, seed=seed, max_tokens=9))
        alone[seed - 1] = answers_of(run_to_end(lone))[0]
    assert together == alone
    assert len({tuple(tokens) for tokens in together.values()}) == 4


def test_a_prompt_longer_than_a_chunk_is_forked_when_all_of_it_is_computed():
    """Three steps of eight tokens; nobody else computes any of them."""
    runner, _ = forked(21, max_batched_tokens=8)
    assert next(batch for batch in runner.batches if len(batch) > 1)[0] == ("a/0", 21, 1)
    assert computed_tokens(runner) == 21 + 2 + 3 * 5


def test_full_blocks_are_shared_and_only_the_last_is_copied():
    """Nine tokens are two full blocks and a copy: five blocks for three siblings, not nine."""
    engine = build_engine()
    engine.add(build_request("a", build_prompt(9), n=3))
    engine.step()
    tables = [sequence.block_ids for sequence in engine._scheduler.running]
    assert len(tables) == 3
    assert tables[0][:2] == tables[1][:2] == tables[2][:2]
    assert len({table[2] for table in tables}) == 3
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1 - 5


def test_a_shared_full_block_is_copied_before_its_last_token_is_computed_again():
    """A prompt that ends with its block: nobody writes to the block that is shared."""
    engine = build_engine()
    engine.add(build_request("a", build_prompt(8), n=2))
    engine.step()
    parent, child = engine._scheduler.running
    assert parent.block_ids[0] == child.block_ids[0]
    assert parent.block_ids[1] != child.block_ids[1]
    assert child.computed_tokens == 7


def test_the_source_of_a_copy_is_held_until_it_is_copied_even_if_the_parent_ended():
    """One token was wanted: the parent is gone after the step in which its children forked."""
    engine, prompt = build_engine(), build_prompt(6)
    engine.add(build_request("a", prompt, n=2, max_tokens=1))
    first = engine.step()
    assert [delta.finish_reason for delta in first] == ["length"]
    engine.check_integrity()
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1 - 3
    (second,) = engine.step()
    assert (second.choice, list(second.token_ids)) == (1, expected_output(prompt, 1))
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1


@pytest.mark.parametrize("enable_prefix_caching", [True, False], ids=["cache on", "cache off"])
def test_parents_and_children_may_be_preempted(enable_prefix_caching):
    """A pool in which only some fit: the answers are those of a big one."""
    _, engine = forked(9, n=4, tokens=20, num_blocks=12, enable_prefix_caching=enable_prefix_caching)
    assert engine.stats().preemptions > 0


def test_a_parent_preempted_before_the_fork_is_still_waited_for():
    """Its children hold nothing and start when it has caught up."""
    engine, runner_prompt = build_engine(num_blocks=8, max_batched_tokens=8), build_prompt(12)
    engine.add(build_request("old", build_prompt(15, seed=2), max_tokens=8))
    engine.step()
    engine.step()
    engine.add(build_request("a", runner_prompt, n=2, max_tokens=3))
    deltas = run_to_end(engine)
    found = answers_of([delta for delta in deltas if delta.request_id == "a"])
    assert engine.stats().preemptions == 1
    assert found == dict.fromkeys((0, 1), expected_output(runner_prompt, 3))


def test_siblings_without_a_place_wait_like_others():
    """Two may run: the others are admitted one by one, from the cache."""
    runner, engine = forked(9, n=5, max_sequences=2)
    assert engine.stats().prompt_tokens == 9
    assert computed_tokens(runner) == 9 + 4 + 5 * 5


def test_an_abort_before_the_fork_ends_all():
    """Nobody waits for a parent that is gone."""
    engine = build_engine(max_batched_tokens=8)
    engine.add(build_request("a", build_prompt(20), n=3))
    engine.step()
    assert engine.stats().deferred == 2
    assert engine.abort("a")
    engine.check_integrity()
    assert not engine.has_work
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1


def test_when_a_parent_goes_before_the_fork_a_sibling_takes_its_place():
    """The scheduler alone could drop it: the next one computes the prompt, the rest waits for that one."""
    engine, prompt = build_engine(max_batched_tokens=8), build_prompt(20)
    engine.add(build_request("a", prompt, n=3, max_tokens=2))
    engine.step()
    parent = engine._live["a"][0]
    engine._end(parent, "abort", 0.0)
    engine.check_integrity()
    assert engine.stats().deferred == 1
    assert answers_of(run_to_end(engine)) == dict.fromkeys((1, 2), expected_output(prompt, 2))


def test_an_abort_between_fork_and_copy_leaves_nothing_held():
    """The copy is not carried out: its target may be somebody else's by then."""
    engine = build_engine()
    engine.add(build_request("a", build_prompt(6), n=3))
    engine.step()
    assert len(engine._scheduler.forks.copies) == 2
    engine.abort("a")
    assert engine._scheduler.forks.copies == ()
    engine.check_integrity()
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1


def test_a_failed_step_with_copies_loses_its_requests_and_no_block():
    """Both ends of every copy come back."""
    runner = SlotRunner()
    engine, prompt = build_engine(runner), build_prompt(6)
    engine.add(build_request("a", prompt, n=3))
    engine.step()
    runner.fail_next = True
    with pytest.raises(RuntimeError):
        engine.step()
    engine.check_integrity()
    assert engine.stats().free_blocks == engine.stats().num_blocks - 1
    assert answer(engine, "b", prompt).completion_tokens == 4


def test_the_prompt_counts_once_and_every_answer_reports_the_same_hit():
    """Usage is of the request: its siblings' sharing is no cache hit."""
    notes, prompt = Notes(), build_prompt(9)
    engine = build_engine(observer=notes)
    answer(engine, "first", prompt)
    engine.add(build_request("a", prompt, n=3, max_tokens=2))
    assert {delta.cached_tokens for delta in run_to_end(engine)} == {8}
    stats = engine.stats()
    assert (stats.prompt_tokens, stats.cached_prompt_tokens) == (18, 8)
    assert (stats.prefix_queries, stats.prefix_hits) == (18, 8)
    assert [end.n for end in notes.ends] == [1, 3, 3, 3]


def test_the_copies_do_not_break_the_cache():
    """What the siblings computed is found by the next turn of the conversation."""
    _, engine = forked(8, tokens=6)
    prompt = build_prompt(8)
    assert answer(engine, "b", [*prompt, *expected_output(prompt, 6)]).cached_tokens == 12


def test_without_a_free_block_no_fork_is_started():
    """And nothing is held for it."""
    cache = build_cache(num_blocks=4)
    parent, child = build_computed(cache, build_prompt(12)), build_sequence(build_prompt(12), "b")
    make_family([parent, child])
    forks = Forks(cache, 4)
    assert not forks.start(parent, child, spare_blocks=0)
    assert forks.copies == ()
    cache.pool.check_integrity([parent.block_ids])


@pytest.mark.parametrize(
    ("changes", "together"), [({"max_sequences": 2}, 2), ({"num_blocks": 11, "watermark_blocks": 5}, 3)]
)
def test_siblings_fork_as_far_as_there_are_places_and_spare_blocks(changes, together):
    """The others wait, and are answered later."""
    runner, engine = forked(10, n=5, tokens=2, **changes)
    assert max(map(len, runner.batches)) == together
    assert engine.stats().prefix_queries == 10


def test_a_fork_waited_in_the_queue_no_longer_than_its_parent():
    """It runs from when the prompt was first computed."""
    notes, clock = Notes(), ManualClock()
    engine = build_engine(observer=notes, clock=clock, long_prefill_token_threshold=4)
    engine.add(build_request("a", build_prompt(12), n=2, max_tokens=2))
    while engine.has_work:
        clock.now += 1.0
        engine.step()
    assert [(end.queue_seconds, end.prefill_seconds) for end in notes.ends] == [(1.0, 2.0), (1.0, 3.0)]
