"""What a worker is known to hold: our chain from its events, copies, media, prefixes, bounds."""

from __future__ import annotations

import gc
import random
import sys
import time
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.blocks import chain, seed
from router.cache_events import CPU, DISK, GPU, Cleared, Removed, Stored
from router.encoders import pack
from router.known_blocks import KnownBlocks

MODEL = "m"
SIZE = 4


def tokens_of(*blocks: int, size: int = SIZE) -> list[int]:
    """One run of tokens for each named block."""
    return [block * 100 + index for block in blocks for index in range(size)]


def own_chain(*blocks: int, salt: str | None = None, adapter: str | None = None, size: int = SIZE) -> list[bytes]:
    """Our chain of a prompt of these blocks."""
    parent = seed(salt=salt, model=MODEL, adapter=adapter)
    return chain(parent, pack(tokens_of(*blocks)), size).blocks


def name_of(blocks: Sequence[int]) -> int:
    """The worker's own name of the last of a chain of blocks: anything that no other chain has."""
    return hash(tuple(blocks)) & (2**64 - 1)


def build_stored(*blocks: int, after: Sequence[int] = (), **fields: object) -> Stored:
    """A run of blocks behind `after`, as a worker tells it."""
    whole = [*after, *blocks]
    names = [name_of(whole[: len(after) + number + 1]) for number in range(len(blocks))]
    parent = name_of(after) if after else None
    return Stored(names, parent, pack(tokens_of(*blocks)), SIZE, **fields)


def build_removed(*chains: Sequence[int], medium: str = GPU) -> Removed:
    """The last block of each chain goes."""
    return Removed([name_of(blocks) for blocks in chains], medium)


def build_known(*events: object, block_tokens: int = SIZE, **more: int) -> KnownBlocks:
    known = KnownBlocks(MODEL, block_tokens, **more)
    known.apply(events)
    known.check_integrity()
    return known


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


def test_a_worker_cannot_tell_of_more_than_the_bound():
    """What is beyond it is refused and counted; what is there stays right."""
    known = build_known(build_stored(1, 2), build_stored(3, 4, 5), bound_blocks=4)
    assert (len(known), known.refused) == (4, 1)
    assert known.match(own_chain(3, 4, 5)) == 2
    known.apply([build_removed((1, 2)), build_stored(5, after=(3, 4))])
    assert known.match(own_chain(3, 4, 5)) == 3


def test_h16_memory_is_given_back_with_the_workers():
    """H-16: 100 rounds of 10 workers come and go; after each as much is allocated as before.

    100 blocks a worker here, 10,000 in bench/events.py: what is left behind would be left behind by either.
    """
    sizes = array("q")  # a list would hold an object for each round
    gc.collect()
    for number in range(100):
        full = [build_full(number * 10 + worker) for worker in range(10)]
        full_size = sys.getallocatedblocks()
        full.clear()  # without the garbage collector: there are no cycles that would have to wait for it
        sizes.append(sys.getallocatedblocks())
    assert max(sizes[2:]) - sizes[1] < 0.02 * (full_size - sizes[1])


def test_h15_letting_a_full_worker_go_holds_nobody_up():
    """H-15: while a worker of 20,000 blocks is let go, the next one is registered in far less than 100 ms."""
    known = build_full(1, 20_000)
    started = time.process_time()
    known.clear()
    build_known(build_stored(1))
    assert time.process_time() - started < 0.05


def build_full(worker: int, blocks: int = 100) -> KnownBlocks:
    """A worker's chains of 50 blocks, of which no other has any."""
    known = KnownBlocks(MODEL, SIZE)
    names = [2**40 + worker * blocks + number for number in range(blocks)]
    for start in range(0, blocks, 50):
        run = names[start : start + 50]
        known.apply([Stored(run, None, pack([worker, start, 1, 1] * len(run)), SIZE)])
    assert len(known) == blocks
    return known


def test_churn_leaves_nothing_behind():
    """A worker that stores and evicts for long holds what it holds, and no trace of what it held."""
    known, draw = KnownBlocks(MODEL, SIZE), random.Random(1)
    live: list[tuple[int, ...]] = []
    for number in range(3000):
        blocks = (number, number + 1, number + 2)
        known.apply([build_stored(*blocks)])
        live += [blocks[:3], blocks[:2], blocks[:1]]
        draw.shuffle(live)
        known.apply([build_removed(*live[30:])])
        live = live[:30]
    known.check_integrity()
    assert len(known) == 30
    assert len(known._blocks) <= 3 * 30


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


@pytest.mark.parametrize("blocks", [2048])
def test_a_match_costs_little_however_long_the_prompt(blocks):
    """A 32k-token prompt in blocks of 16, half of it held: a binary search, microseconds and not a walk."""
    known = KnownBlocks(MODEL, SIZE)
    names = list(range(blocks))
    prompt = pack([token for number in names for token in (number, 1, 2, 3)])
    known.apply([Stored(names[: blocks // 2], None, prompt[: len(prompt) // 2], SIZE)])
    own = chain(seed(salt=None, model=MODEL), prompt, SIZE).blocks
    best = min(_seconds(known, own) for _ in range(5))
    assert known.match(own) == blocks // 2
    assert best < 20e-6


def _seconds(known: KnownBlocks, own: Sequence[bytes]) -> float:
    started = time.process_time()
    for _ in range(1000):
        known.match(own)
    return (time.process_time() - started) / 1000
