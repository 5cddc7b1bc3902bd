"""From blocks to events: chains in one event, in program order, named by their extra keys."""

from __future__ import annotations

from typing import Any

from backends.events.journal import EventJournal
from backends.events.wire import Cleared, Removed, Stored
from backends.hashing import BlockHasher, BlockKey, pack


class Told:
    """A publisher that keeps what it is given."""

    def __init__(self, **settings: Any) -> None:
        self.batches: list[list[Any]] = []
        self.journal = EventJournal(lambda events: self.batches.append(list(events)), **settings)

    def flush(self) -> list[Any]:
        """The events of the step."""
        self.batches.clear()
        self.journal.flush()
        return self.batches[0] if self.batches else []


def build_chain(tokens=range(1, 9), **extra) -> list[BlockKey]:
    hasher = BlockHasher(2)
    keys: list[BlockKey] = []
    hasher.extend(keys, hasher.root(**extra), pack(tokens))
    return keys


def low64(key: BlockKey) -> int:
    return int.from_bytes(key.digest[24:], "big")


def store(told: Told, keys) -> None:
    for block_id, key in enumerate(keys, start=1):
        told.journal.stored(key, block_id)


def test_a_chain_is_one_event():
    """Hashes, tokens and extra keys of all its blocks, after no parent."""
    told, keys = Told(), build_chain()
    store(told, keys)
    assert told.flush() == [Stored([low64(k) for k in keys], None, list(range(1, 9)), 2, None, [None] * 4)]


def test_a_step_in_which_nothing_happened_tells_nothing():
    """No empty batches; and what was told is not told again."""
    told = Told()
    assert told.flush() == []
    store(told, build_chain())
    assert len(told.flush()) == 1
    assert told.flush() == []


def test_a_chain_that_goes_on_names_its_parent():
    """The next step's blocks follow the last ones of this step."""
    told, keys = Told(), build_chain()
    store(told, keys[:3])
    told.flush()
    store(told, keys[3:])
    assert told.flush() == [Stored([low64(keys[3])], low64(keys[2]), [7, 8], 2, None, [None])]


def test_chains_that_take_turns_are_events_of_their_own():
    """Two requests of one step: each block is told after its parent."""
    told, one, other = Told(), build_chain(), build_chain(range(11, 15))
    store(told, [one[0], other[0], one[1], other[1]])
    assert [event.parent_block_hash for event in told.flush()] == [None, None, low64(one[0]), low64(other[0])]


def test_the_order_of_a_step_is_kept():
    """Trap 15: removed, stored, removed, cleared, stored."""
    told, keys = Told(), build_chain()
    told.journal.removed(keys[3])
    store(told, keys[:1])
    told.journal.removed(keys[0])
    told.journal.removed(keys[1])
    told.journal.cleared()
    store(told, keys[:2])
    first, *rest = told.flush()
    assert first == Removed([low64(keys[3])])
    assert [type(event) for event in rest] == [Stored, Removed, Cleared, Stored]
    assert rest[1] == Removed([low64(keys[0]), low64(keys[1])])


def test_the_salt_is_in_the_first_block_only():
    """As vLLM publishes it, untagged; a later event of the chain does not repeat it."""
    told, keys = Told(), build_chain(cache_salt="tenant")
    store(told, keys)
    assert told.flush()[0].extra_keys == [["tenant"], None, None, None]
    store(told, build_chain(range(1, 11), cache_salt="tenant")[4:])
    assert told.flush()[0].extra_keys == [None]


def test_the_adapter_is_in_every_block():
    """Also in those of later events, far from the root; its name is vLLM's lora_name."""
    told, keys = Told(), build_chain(adapter="lora@v1", cache_salt="s")
    store(told, keys[:2])
    (event,) = told.flush()
    assert (event.lora_name, event.extra_keys) == ("lora@v1", [["lora@v1", "s"], ["lora@v1"]])
    store(told, keys[2:])
    (event,) = told.flush()
    assert (event.lora_name, event.extra_keys) == ("lora@v1", [["lora@v1"], ["lora@v1"]])


def test_whole_hashes_are_32_bytes():
    """VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0."""
    told, keys = Told(whole_hashes=True), build_chain()
    store(told, keys[:1])
    told.journal.removed(keys[0])
    stored, removed = told.flush()
    assert stored.block_hashes == removed.block_hashes == [keys[0].digest]


def test_a_slower_medium_has_events_of_its_own():
    """Removed from GPU while a copy stays on the disk is still a hit, only slower."""
    told, keys = Told(), build_chain()
    tiers = told.journal.tiers
    tiers.stored(keys[0], "CPU")
    tiers.stored(keys[1], "CPU")
    store(told, keys[:1])
    told.journal.removed(keys[0])
    tiers.removed(keys[0], "CPU")
    events = told.flush()
    assert [(type(event), event.medium) for event in events] == [
        (Stored, "CPU"),
        (Stored, "GPU"),
        (Removed, "GPU"),
        (Removed, "CPU"),
    ]
    assert events[0].block_hashes == [low64(keys[0]), low64(keys[1])]


def test_a_tier_that_is_cleared_takes_no_other_medium_with_it():
    """Its own blocks are removed by name; what it never had is not."""
    told, keys = Told(), build_chain()
    tiers = told.journal.tiers
    tiers.stored(keys[0], "CPU")
    tiers.stored(keys[0], "STORAGE")
    tiers.stored(keys[1], "STORAGE")
    told.flush()
    tiers.cleared("STORAGE")
    tiers.cleared("STORAGE")
    tiers.removed(keys[1], "STORAGE")
    assert told.flush() == [Removed([low64(keys[0]), low64(keys[1])], "STORAGE")]


def test_what_the_tiers_keep_is_told_again_after_a_clearing():
    """AllBlocksCleared takes their blocks with it, in the pictures of all who hear it."""
    told, keys = Told(), build_chain()
    told.journal.tiers.stored(keys[0], "CPU")
    told.journal.tiers.stored(keys[1], "CPU")
    told.journal.tiers.removed(keys[0], "CPU")
    told.flush()
    told.journal.cleared()
    cleared, stored = told.flush()
    assert cleared == Cleared()
    assert (stored.block_hashes, stored.medium) == ([low64(keys[1])], "CPU")


def test_reused_blocks_are_told_again_on_request():
    """vLLM's kv_cache_report_mode "full": the same event once more."""
    told, keys = Told(), build_chain(cache_salt="s")
    store(told, keys)
    first = told.flush()
    told.journal.repeat(keys)
    assert told.flush() == first


def test_what_was_stored_before_a_parent_was_exchanged_keeps_its_name():
    """A key's parent object may be replaced by an equal one; the event names the parent all the same."""
    told, keys, equal = Told(), build_chain(), build_chain()
    store(told, keys[:1])
    keys[1].parent = equal[0]
    store(told, keys[1:2])
    assert [event.parent_block_hash for event in told.flush()] == [None, low64(equal[0])]
