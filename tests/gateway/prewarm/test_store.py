"""The store of recent prompts: bounded every way, one entry a conversation, nobody's prompt in another's place."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.prewarm.store import HALF_LIFE_SECONDS, LARGEST_SHARE
from tests.gateway.prewarm.prewarm_builders import build_kept, build_store, fill


def test_a_later_turn_takes_the_place_and_the_heat_of_the_earlier_one():
    """Three turns of a conversation are one prompt that was asked three times."""
    turns = [build_kept(("head", 4), ("talk", length)) for length in (2, 5, 9)]
    store = fill(build_store(), turns)
    assert list(store) == [turns[-1]]
    assert turns[-1].heat == pytest.approx(3.0)


def test_the_same_blocks_again_are_the_same_prompt():
    """Short questions to one long head differ in their last, partial block only."""
    store = fill(build_store(), [build_kept(("head", 4)) for _ in range(10)])
    assert len(store) == 1
    assert next(iter(store)).heat == pytest.approx(10.0)


def test_conversations_with_one_head_are_kept_apart():
    """They part before their ends."""
    store = fill(build_store(), [build_kept(("head", 4), (f"talk {number}", 3)) for number in range(5)])
    assert len(store) == 5


def test_chains_of_other_salts_never_meet():
    """The same text under another salt has other blocks: both are kept, each with its own body."""
    mine, theirs = build_kept(("mine", 4), body=b'{"cache_salt":"a"}'), build_kept(("theirs", 4))
    assert set(map(id, fill(build_store(), [mine, theirs]))) == {id(mine), id(theirs)}


def test_heat_halves_in_its_half_life_and_adds_up():
    """What was asked long ago counts for less."""
    kept = build_kept(at=0.0, heat=4.0)
    assert kept.heat_at(HALF_LIFE_SECONDS) == pytest.approx(2.0)
    again = build_kept(at=HALF_LIFE_SECONDS)
    fill(build_store(), [kept, again])
    assert again.heat == pytest.approx(3.0)


def test_what_is_too_old_goes_also_when_nothing_comes():
    """Memory only for so long: privacy, not only room."""
    store = fill(build_store(most_seconds=10.0), [build_kept((str(n), 2), at=float(n)) for n in range(5)])
    store.expire(12.5)
    assert [kept.at for kept in store] == [3.0, 4.0]
    store.expire(100.0)
    assert (len(store), store.size_bytes) == (0, 0)


def test_the_number_and_the_bytes_are_bounded():
    """The least recently asked go first."""
    prompts = [build_kept((str(n), 2)) for n in range(50)]
    assert [id(kept) for kept in fill(build_store(most_prompts=7), prompts)] == [id(kept) for kept in prompts[-7:]]
    bound = 20 * prompts[0].size_bytes
    store = fill(build_store(most_bytes=bound), prompts)
    assert len(store) == 20
    assert store.size_bytes <= bound


def test_a_giant_is_not_kept():
    """It would drive out everybody else."""
    store = build_store(most_bytes=32_000)
    assert not store.keep(build_kept(body=b"x" * int(32_000 * LARGEST_SHARE)))
    assert not store.keep(build_kept(body=b"x" * 3_000)), "ten of them would fill it"
    assert store.keep(build_kept())


def test_a_prompt_without_a_full_block_is_not_kept():
    """No cache can hold it."""
    assert not build_store().keep(build_kept(("none", 0)))


def test_a_prompt_that_was_gone_on_from_is_no_longer_held():
    """A plan made before sees it."""
    earlier, later = build_kept(("talk", 3)), build_kept(("talk", 6))
    store = fill(build_store(), [earlier])
    assert store.holds(earlier)
    store.keep(later)
    assert not store.holds(earlier)
    store.clear()
    assert not store.holds(later)


def test_nothing_of_a_prompt_is_in_its_repr():
    """What is logged by mistake says nothing."""
    assert "CANARY" not in repr(build_kept())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 12), st.floats(0, 100)), max_size=60))
@settings(max_examples=60, deadline=None)
def test_whatever_comes_the_bounds_hold(asked):
    """Any order of prompts, lengths and times."""
    store = build_store(most_bytes=4000, most_prompts=5, most_seconds=30.0)
    for name, blocks, at in sorted(asked, key=lambda one: one[2]):
        store.keep(build_kept((name, blocks), at=at, body=b"x" * 20))
        store.check_integrity()


def test_a_prompt_that_is_asked_again_is_as_if_it_were_kept_anew():
    """Found by its prompt and its body; newest, as hot and as old as one that is made and kept again."""
    first, other = build_kept(("head", 4), at=0.0), build_kept(("other", 4), at=1.0)
    store = fill(build_store(), [first, other])
    assert store.find(first.prompt, first.body) is first
    store.asked_again(first, HALF_LIFE_SECONDS)
    anew = fill(build_store(), [build_kept(("head", 4), at=0.0), build_kept(("head", 4), at=HALF_LIFE_SECONDS)])
    (like,), again = anew, list(store)[-1]
    assert (again.at, again.heat) == (like.at, pytest.approx(like.heat))
    assert again.prompt is first.prompt
    assert not store.holds(first)
    store.check_integrity()


def test_another_body_or_another_prompt_is_not_found():
    """The same chain with other words behind its last block is kept anew, and a prompt without a block never is."""
    kept = build_kept(("head", 4))
    store = fill(build_store(), [kept])
    assert store.find(kept.prompt, kept.body + b" ") is None
    assert store.find(build_kept(("head", 4)).prompt, kept.body) is None
    assert store.find(build_kept(("short", 0)).prompt, kept.body) is None


def test_asking_again_lets_what_is_too_old_go():
    """As keeping does."""
    old, young = build_kept(("old", 2), at=0.0), build_kept(("young", 2), at=9.0)
    store = fill(build_store(most_seconds=10.0), [old, young])
    store.asked_again(young, 11.0)
    assert [kept.prompt for kept in store] == [young.prompt]
