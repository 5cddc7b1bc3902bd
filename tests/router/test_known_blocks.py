"""What a worker is known to hold: our chain from its events, copies, media, prefixes."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from router.cache_events import CPU, DISK, GPU, Cleared, Removed, Stored
from router.encoders import pack
from router.known_blocks import KnownBlocks
from tests.router.event_builders import (
    MODEL,
    SIZE,
    build_known,
    build_removed,
    build_stored,
    name_of,
    own_chain,
    tokens_of,
)


def test_what_was_stored_is_found_and_what_was_removed_is_not():
    """A chain, its longer and its shorter prompts, and the same without its end."""
    known = build_known(build_stored(1, 2, 3), build_stored(4, after=(1, 2)))
    assert known.match(own_chain(1, 2, 3)) == 3
    assert known.match(own_chain(1, 2, 3, 9, 9)) == 3
    assert known.match(own_chain(1, 2, 4)) == 3
    assert known.match(own_chain(1, 9)) == 1
    assert known.match(own_chain(9)) == known.match([]) == 0
    known.apply([build_removed((1, 2, 3))])
    assert known.match(own_chain(1, 2, 3)) == 2
    assert len(known) == 3


def test_salt_adapter_and_model_are_part_of_the_chain():
    """As vLLM lists them in the first block's extra keys, and as SGLang gives the salt."""
    salted = build_known(build_stored(1, 2, extra_keys=[["s1"], None]))
    assert salted.match(own_chain(1, 2, salt="s1")) == 2
    assert salted.match(own_chain(1, 2)) == salted.match(own_chain(1, 2, salt="s2")) == 0
    both = build_known(build_stored(1, 2, adapter="lora", extra_keys=[["lora", "s1"], ["lora"]]))
    assert both.match(own_chain(1, 2, salt="s1", adapter="lora")) == 2
    assert both.match(own_chain(1, 2, salt="s1")) == 0
    assert build_known(build_stored(1, salt="s1")).match(own_chain(1, salt="s1")) == 1
    assert build_known(build_stored(1, extra_keys=[[["cache_salt", "s1"]]])).match(own_chain(1, salt="s1")) == 1
    assert KnownBlocks("other", SIZE).match(own_chain(1)) == 0


def test_an_image_is_nobody_elses_text():
    """Placeholder tokens are equal for every image: what follows one is found by no prompt of text alone."""
    known = build_known(build_stored(1, 2, 3, extra_keys=[["s1"], [["image-7", 0]], None]))
    assert known.match(own_chain(1, 2, 3, salt="s1")) == 1


def test_copies_are_counted_as_vllm_tells_them():
    """Two prefills of one prompt side by side: two copies behind a shared head, and one removal leaves one."""
    known = build_known(build_stored(1), build_stored(2, 3, after=(1,)), build_stored(2, 3, after=(1,)))
    known.apply([build_removed((1, 2, 3), (1, 2))])
    assert known.match(own_chain(1, 2, 3)) == 3
    known.apply([build_removed((1, 2, 3), (1, 2))])
    assert known.match(own_chain(1, 2, 3)) == 1
    assert known.absent == 0


def test_a_last_block_that_is_computed_again_is_a_copy():
    """A prompt that is cached whole computes its last block once more, and vLLM tells of it."""
    known = build_known(build_stored(1, 2), build_stored(2, after=(1,)), build_removed((1, 2)))
    assert known.match(own_chain(1, 2)) == 2


def test_a_repeated_report_is_no_copy():
    """Mode `full` tells again, from the start, what a request found: one removal takes it all the same."""
    known = build_known(build_stored(1, 2), build_stored(1, 2), build_stored(1, 2, 3), build_removed((1, 2, 3), (1, 2)))
    assert known.match(own_chain(1, 2, 3)) == 1


def test_engines_that_tell_of_first_and_last_copies_only():
    """SGLang and ours: stored once, removed once, stored again."""
    known = build_known(build_stored(1, 2))
    for _ in range(3):
        known.apply([build_removed((1, 2))])
        assert known.match(own_chain(1, 2)) == 1
        known.apply([build_stored(2, after=(1,))])
        assert known.match(own_chain(1, 2)) == 2


def test_h15_an_absent_block_does_not_stop_a_removal():
    """H-15: Removed([x, y, z]) with y absent: x and z go. The same batch again does nothing."""
    known = build_known(build_stored(1), build_stored(2), build_stored(3))
    batch = [build_removed((1,), (7, 7), (3,))]
    known.apply(batch)
    assert [known.match(own_chain(block)) for block in (1, 2, 3)] == [0, 1, 0]
    known.apply(batch)
    known.check_integrity()
    assert (len(known), known.absent) == (1, 4)


def test_a_block_in_a_tier_is_still_held():
    """Taken over by host memory, dropped from the GPU, moved to disk, and gone only then."""
    known = build_known(build_stored(1, 2), build_stored(1, 2, medium=CPU), build_removed((1, 2), (1,)))
    assert known.match(own_chain(1, 2)) == 2
    known.apply([build_stored(1, 2, medium=DISK), build_removed((1, 2), (1,), medium=CPU)])
    assert known.match(own_chain(1, 2)) == 2
    known.apply([build_removed((1, 2), (1,), medium=DISK), build_removed((1,), medium=CPU)])
    assert (known.match(own_chain(1, 2)), len(known), known.absent) == (0, 0, 1)


def test_a_tier_that_tells_no_tokens_names_blocks_told_before():
    """vLLM's offloading: hashes alone, of blocks that the GPU's events explained; others cannot be placed."""
    told = Stored([name_of((1,)), 404], None, b"", 3 * SIZE, medium=CPU)
    known = build_known(build_stored(1), told, build_removed((1,)))
    assert (known.match(own_chain(1)), known.orphans) == (1, 1)


def test_a_block_behind_an_unknown_one_cannot_be_placed():
    """Its parent was never told: passed over, counted, and its removal harms nobody."""
    known = build_known(build_stored(3, after=(1, 2)), build_stored(1), build_removed((1, 2, 3)))
    assert (known.orphans, known.absent, len(known)) == (1, 1, 1)


def test_a_beginning_that_is_evicted_hides_what_follows_until_it_returns():
    """Whatever order a worker evicts in, only prefixes that are held from their start can be hit."""
    known = build_known(build_stored(1, 2, 3, 4), build_removed((1, 2)))
    assert (known.match(own_chain(1, 2, 3, 4)), len(known)) == (1, 3)
    known.apply([build_stored(5, after=(1, 2, 3)), build_stored(2, after=(1,))])
    assert known.match(own_chain(1, 2, 3, 4)) == known.match(own_chain(1, 2, 3, 5)) == 4


def test_small_blocks_are_taken_together():
    """Pages of one token in routing blocks of four: found once four are there, gone with the first of them."""
    known = KnownBlocks(MODEL, SIZE)
    prompt = tokens_of(1, 2)
    names = [name_of(prompt[: end + 1]) for end in range(len(prompt))]
    known.apply([Stored(names[:6], None, pack(prompt[:6]), 1)])
    assert known.match(own_chain(1, 2)) == 1
    known.apply([Stored(names[6:], names[5], pack(prompt[6:]), 1)])
    assert known.match(own_chain(1, 2)) == 2
    known.apply([Removed([names[4]])])
    known.check_integrity()
    assert known.match(own_chain(1, 2)) == 1
    known.apply([Stored(names[4:5], names[3], pack(prompt[4:5]), 1), Removed([names[0]])])
    known.check_integrity()
    assert known.match(own_chain(1, 2)) == 0


def test_blocks_that_do_not_fit_the_routing_block_are_named():
    """Blocks of 4 cannot be told in blocks of 6: nothing is kept, and somebody can choose another routing block."""
    known = build_known(build_stored(1, 2), block_tokens=6)
    assert (known.foreign_block_tokens, len(known)) == (SIZE, 0)


def test_clearing_forgets_everything_and_learning_goes_on():
    """AllBlocksCleared, in the middle of a batch."""
    known = build_known(build_stored(1, 2), Cleared(), build_stored(3))
    assert [known.match(own_chain(block)) for block in (1, 3)] == [0, 1]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("srct"), st.integers(0, 5), st.integers(0, 3), st.integers(1, 3)), max_size=40),
    st.integers(0, 2**32),
)
def test_any_sequence_equals_a_model_dict(steps, number):
    """Counted copies and tiers in a dict, prefixes by walking: the same answers after anything."""
    draw, known, model = random.Random(number), KnownBlocks(MODEL, SIZE), {}
    chains = [tuple(draw.randrange(3) for _ in range(4)) for _ in range(6)]
    for what, which, start, count in steps:
        blocks = chains[which]
        run = [blocks[: end + 1] for end in range(start, min(4, start + count))]
        if what == "c" and count == 3:
            known.apply([Cleared()])
            model.clear()
        elif what == "r":
            known.apply([build_removed(*run)])
            for block in run:
                _model_remove(model, block)
        elif run:
            medium = CPU if what == "t" else GPU
            explained = start == 0 or known._blocks.get(name_of(blocks[:start])) is not None
            known.apply([build_stored(*[block[-1] for block in run], after=blocks[:start], medium=medium)])
            for block in run if explained else ():
                _model_store(model, block, tier=what == "t", repeated=start == 0)
        known.check_integrity()
    for blocks in chains:
        held = 0
        while held < 4 and model.get(blocks[: held + 1], [0, 0]) != [0, 0]:
            held += 1
        assert known.match(own_chain(*blocks)) == held


def _model_store(model: dict, block: tuple, *, tier: bool, repeated: bool) -> None:
    copies = model.setdefault(block, [0, 0])
    if tier:
        copies[1] = 1
    elif not (repeated and copies[0]):
        copies[0] += 1


def _model_remove(model: dict, block: tuple) -> None:
    if block in model and model[block][0]:
        model[block][0] -= 1
