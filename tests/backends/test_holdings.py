"""Cached blocks listed, read and added between two steps, with every invariant of the pool intact."""

from __future__ import annotations

import random

import pytest

from backends.engine import Engine
from backends.holdings import Holdings
from backends.partitions import Partitions
from backends.simulated import PAYLOAD_BYTES, SimulatedRunner, Timing
from tests.backends.core_builders import SlotRunner, build_config, build_engine, build_request, run_to_end

PROMPT = list(range(1, 22))
"""Five full blocks of four, and a token."""


def build_holdings(**changes) -> tuple[Engine, Holdings]:
    runner = SimulatedRunner(Timing(), float)
    engine = Engine(build_config(**changes), runner, None, float)
    return engine, Holdings(engine.cache, runner)


def payloads(count: int, first: int = 0) -> list[bytes]:
    return [bytes([first + index]) * PAYLOAD_BYTES for index in range(count)]


def compute(engine: Engine, prompt, **settings) -> None:
    engine.add(build_request("computed", prompt, max_tokens=1, **settings))
    run_to_end(engine)


def test_a_prompt_says_how_much_of_it_is_cached():
    """Its full blocks by name, and how many of the first ones are there; nobody holds them afterwards."""
    engine, holdings = build_holdings()
    assert holdings.prompt(PROMPT, cache_salt=None).held_blocks == 0
    compute(engine, PROMPT[:13])
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    assert (len(prompt.keys), prompt.held_blocks) == (5, 3)
    assert prompt.first_missing is prompt.keys[2]
    assert holdings.prompt(PROMPT, cache_salt="s").held_blocks == 0
    assert holdings.prompt(PROMPT, cache_salt=None, adapter="a").held_blocks == 0
    engine.check_integrity()


def test_added_blocks_are_hits():
    """Computed nowhere here, and found all the same."""
    engine, holdings = build_holdings()
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    assert holdings.add(prompt, 0, payloads(3)) == 3
    assert holdings.add(prompt, 3, payloads(2, 3)) == 2
    engine.check_integrity()
    assert holdings.read(prompt.keys) == payloads(5)
    engine.add(build_request("a", PROMPT, max_tokens=1))
    assert run_to_end(engine)[-1].cached_tokens == 20
    assert engine.stats().kv_usage == 0.0


def test_blocks_whose_beginning_is_gone_are_not_added():
    """Nobody could ever find them."""
    engine, holdings = build_holdings()
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    assert holdings.add(prompt, 2, payloads(3)) == 0
    holdings.add(prompt, 0, payloads(2))
    engine.reset_prefix_cache()
    assert holdings.add(prompt, 2, payloads(3)) == 0
    assert engine.pool.cached_blocks_count == 0
    engine.check_integrity()


def test_what_was_computed_meanwhile_is_not_stored_twice():
    """It counts as there."""
    engine, holdings = build_holdings()
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    compute(engine, PROMPT[:13])
    assert holdings.add(prompt, 0, payloads(5)) == 5
    cached = engine.pool.cached
    assert cached.count == cached.digests_count == 5
    assert holdings.read(prompt.keys)[3:] == payloads(2, 3)
    assert holdings.add(prompt, 0, payloads(5)) == 5
    assert cached.count == 5


def test_a_full_pool_takes_as_many_as_fit():
    """Its own beginning is never evicted for its end; running requests keep theirs."""
    engine, holdings = build_holdings(num_blocks=51)
    engine.add(build_request("a", [7] * 185, max_tokens=3))
    engine.step()
    engine.step()
    engine.step()
    free = engine.pool.available()
    long = list(range(1, 41)) * 2
    prompt = holdings.prompt(long, cache_salt=None)
    assert free < 20
    assert holdings.add(prompt, 0, payloads(20)) == free
    assert holdings.add(prompt, free, payloads(1)) == 0
    assert holdings.read(prompt.keys) == payloads(free)
    engine.check_integrity()
    run_to_end(engine)


def test_adding_is_no_hit():
    """However many times a chain's beginning is held while its end comes in: nothing gets hot by being pulled."""
    engine, holdings = build_holdings(num_blocks=60, auto_retention=True)
    prompt = holdings.prompt(list(range(1, 97)), cache_salt=None)
    for first in range(0, 24, 2):
        assert holdings.add(prompt, first, payloads(2)) == 2
    assert [part.pinned for part in engine.occupancy()] == [0]
    assert sum(block.uses for block in engine.pool.blocks(slice(None))) == 0


def test_what_is_added_to_a_partitions_blocks_stays_in_it():
    """A pull is paid for by one partition, and takes nothing from it for another."""
    engine, holdings = build_holdings(num_blocks=41, partitions=Partitions.parse(["support=0:0.6"]))
    compute(engine, PROMPT[:13], partition="support")
    prompt = holdings.prompt(PROMPT, cache_salt=None, partition="support")
    assert holdings.add(prompt, 3, payloads(2)) == 2
    assert {part.name: part.cached for part in engine.occupancy()} == {"": 0, "support": 5}
    engine.check_integrity()


def test_a_partition_that_can_hold_no_more_takes_nothing():
    """Not even a beginning that is cached in another one, which it would have to take over."""
    engine, holdings = build_holdings(num_blocks=41, partitions=Partitions.parse(["support=0:0.1"]))
    compute(engine, PROMPT[:13])
    held = engine.pool.get_new_blocks(engine.pool.available("support"), "support")
    prompt = holdings.prompt(PROMPT, cache_salt=None, partition="support")
    assert holdings.add(prompt, 3, payloads(2)) == 0
    assert holdings.add(prompt, 0, payloads(5)) == 3
    engine.pool.check_integrity([held])


def test_a_payload_of_another_size_is_not_stored():
    """ValueError, and the pool is as it was."""
    engine, holdings = build_holdings()
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    with pytest.raises(ValueError, match="bytes"):
        holdings.add(prompt, 0, [b"short"])
    assert engine.pool.cached_blocks_count == 0
    engine.check_integrity()
    assert holdings.add(prompt, 0, payloads(5)) == 5


def test_a_chain_is_found_by_the_name_of_its_end():
    """From after a block up to the first name that is cached; nothing for a name that does not lead there."""
    engine, holdings = build_holdings()
    compute(engine, PROMPT[:17])
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    names, root = [key.digest for key in prompt.keys], prompt.root.digest
    assert holdings.chain(names[::-1], root) == prompt.keys[:4]
    assert holdings.chain([names[2]], names[0]) == prompt.keys[1:3]
    assert holdings.chain([names[4]], root) == []
    assert holdings.chain([names[2]], names[3]) == []
    assert holdings.chain([names[2]], holdings.prompt(PROMPT, cache_salt="s").root.digest) == []
    assert holdings.chain([bytes(32)], root) == []
    assert holdings.chain([], root) == []


def test_a_chain_with_a_hole_is_not_given():
    """A block in the middle was forgotten: what follows it is of no use to anybody."""
    engine, holdings = build_holdings()
    compute(engine, PROMPT)
    prompt = holdings.prompt(PROMPT, cache_salt=None)
    found = engine.pool.find(prompt.keys[2], prompt.keys[1])
    assert found is not None
    engine.pool.evict([found[0]])
    assert holdings.chain([prompt.keys[4].digest], prompt.root.digest) == []
    assert len(holdings.read(prompt.keys)) == 2


def test_without_a_prefix_cache_nothing_is_cached():
    """Everything is missing, and stays so."""
    engine, holdings = build_holdings(enable_prefix_caching=False)
    compute(engine, PROMPT)
    assert holdings.prompt(PROMPT, cache_salt=None).held_blocks == 0


class KeptSlots(SlotRunner):
    """A runner whose slots can be carried to another: its output depends on every one of them."""

    kv_digest = "slots"

    def read_blocks(self, block_ids) -> list[bytes]:
        return [b"".join(value.to_bytes(9, "little", signed=True) for value in self.slots[one]) for one in block_ids]

    def write_blocks(self, block_ids, payloads) -> None:
        for block_id, payload in zip(block_ids, payloads, strict=True):
            values = [bytes(payload[start : start + 9]) for start in range(0, len(payload), 9)]
            self.slots[block_id] = [int.from_bytes(value, "little", signed=True) for value in values]


def test_answers_over_exchanged_blocks_are_those_of_computed_ones():
    """Two engines that evict all the time and take blocks from each other, checked after everything they do.

    The output depends on every slot that is read, so one block in the wrong place would show.
    """
    generator = random.Random(8)
    engines = [build_engine(KeptSlots(), num_blocks=40) for _ in range(2)]
    holdings = [Holdings(engine.cache, engine.runner) for engine in engines]
    heads = [[generator.randrange(97) for _ in range(40)] for _ in range(6)]
    moved = hits = 0
    for number in range(300):
        tokens = generator.choice(heads)[: generator.randint(4, 40)] + [generator.randrange(97) for _ in range(5)]
        giver, taker = generator.sample((0, 1), 2)
        wanted = holdings[taker].prompt(tokens, cache_salt=None)
        names = [key.digest for key in wanted.keys[wanted.held_blocks :]]
        chain = holdings[giver].chain(names[::-1], wanted.first_missing.digest)
        for start in range(0, len(chain), 3):
            brought = holdings[giver].read(chain[start : start + 3])
            moved += holdings[taker].add(wanted, wanted.held_blocks + start, brought)
            engines[taker].check_integrity()
        engines[taker].add(build_request(str(number), tokens, max_tokens=3))
        deltas = run_to_end(engines[taker])
        hits += deltas[-1].cached_tokens
        engines[taker].runner.batches.clear()
        alone = build_engine(SlotRunner(), enable_prefix_caching=False)
        alone.add(build_request("alone", tokens, max_tokens=3))
        assert [d.token_ids for d in deltas] == [d.token_ids for d in run_to_end(alone)]
    assert moved > 300
    assert hits > 4 * moved
