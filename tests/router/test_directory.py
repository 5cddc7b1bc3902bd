"""The directory and the tree below it: exactly a block-wise LRU that is filled leaf first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from router.chain_tree import ChainTree, common_blocks
from router.directory import Directory
from tests.router.placement_builders import build_chain


class ModelDirectory:
    """The same belief, block by block: an LRU of whole prefixes, touched leaf first."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.blocks: OrderedDict[tuple[bytes, ...], None] = OrderedDict()

    def insert(self, chain: Sequence[bytes]) -> None:
        for end in range(len(chain), 0, -1):
            self.blocks[tuple(chain[:end])] = None
            self.blocks.move_to_end(tuple(chain[:end]))
        self.trim()

    def trim(self) -> None:
        while len(self.blocks) > self.bound:
            self.blocks.popitem(last=False)

    def match(self, chain: Sequence[bytes]) -> int:
        return next((end for end in range(len(chain), 0, -1) if tuple(chain[:end]) in self.blocks), 0)


class DirectoryMachine(RuleBasedStateMachine):
    """Random chains that share beginnings, in a directory and in its model."""

    chains = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 6)), min_size=1, max_size=4)

    @initialize(bound=st.integers(0, 40))
    def start(self, bound: int) -> None:
        self.directory, self.model = Directory(bound), ModelDirectory(bound)

    @rule(parts=chains)
    def insert(self, parts: list[tuple[str, int]]) -> None:
        chain = build_chain(*parts)
        held = self.directory.match(chain)
        fresh = self.directory.insert(chain)
        assert fresh == min(len(chain), self.directory.bound_blocks) - min(held, self.directory.bound_blocks)
        self.model.insert(chain)

    @rule(parts=chains, extra=st.integers(0, 3))
    def match(self, parts: list[tuple[str, int]], extra: int) -> None:
        chain = build_chain(*parts, ("unseen", extra))
        assert self.directory.match(chain) == self.model.match(chain)

    @rule(bound=st.integers(0, 40))
    def resize(self, bound: int) -> None:
        self.directory.resize(bound)
        self.model.bound = bound
        self.model.trim()

    @rule()
    def clear(self) -> None:
        self.directory.clear()
        self.model.blocks.clear()

    @invariant()
    def sound(self) -> None:
        self.directory.check_integrity()
        assert len(self.directory) == len(self.model.blocks)


TestDirectoryAgainstItsModel = DirectoryMachine.TestCase
TestDirectoryAgainstItsModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


class CollidingMachine(DirectoryMachine):
    """I4: with hashes of one bit nearly everything collides; beliefs may be wrong, the structure may not."""

    @rule(bits=st.lists(st.sampled_from([b"0", b"1"]), max_size=9))
    def insert_colliding(self, bits: list[bytes]) -> None:
        self.directory.insert(bits)
        assert 0 <= self.directory.match(bits) <= len(bits)

    @rule(parts=DirectoryMachine.chains)
    def insert(self, parts: list[tuple[str, int]]) -> None:
        self.directory.insert([block[:1] for block in build_chain(*parts)])

    @rule()
    def match(self) -> None:
        """Beliefs are not compared here."""

    @invariant()
    def sound(self) -> None:
        self.directory.check_integrity()
        assert len(self.directory) <= self.directory.bound_blocks


TestDirectoryUnderCollisions = CollidingMachine.TestCase
TestDirectoryUnderCollisions.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_the_longest_prefix_is_found_and_nothing_more() -> None:
    """A chain that leaves a known one is believed up to where it leaves."""
    directory = Directory(100)
    directory.insert(build_chain(("system", 10), ("alice", 20)))
    assert directory.match(build_chain(("system", 10), ("alice", 20), ("next", 3))) == 30
    assert directory.match(build_chain(("system", 10), ("alice", 7))) == 17
    assert directory.match(build_chain(("system", 10), ("bob", 20))) == 10
    assert directory.match(build_chain(("other", 10))) == 0
    assert directory.match([]) == 0


def test_ends_are_forgotten_before_beginnings() -> None:
    """The oldest conversation loses its last blocks first, the shared beginning stays."""
    directory = Directory(50)
    directory.insert(build_chain(("system", 10), ("old", 20)))
    directory.insert(build_chain(("system", 10), ("new", 30)))
    assert directory.match(build_chain(("system", 10), ("old", 20))) == 20
    assert directory.match(build_chain(("system", 10), ("new", 30))) == 40
    assert directory.evicted_blocks == 10


def test_a_chain_longer_than_the_bound_keeps_its_beginning() -> None:
    """A worker that small holds the first blocks at best."""
    directory = Directory(8)
    directory.insert(build_chain(("long", 30)))
    assert directory.match(build_chain(("long", 30))) == 8


def test_asking_does_not_refresh() -> None:
    """`match` changes nothing: a chain that is only asked about is evicted all the same."""
    directory = Directory(20)
    directory.insert(build_chain(("asked", 10)))
    directory.insert(build_chain(("other", 10)))
    for _ in range(5):
        directory.match(build_chain(("asked", 10)))
    directory.insert(build_chain(("third", 10)))
    assert directory.match(build_chain(("asked", 10))) == 0


def test_a_smaller_bound_drops_the_oldest_at_once() -> None:
    """Shrinking happens now, growing makes room only."""
    directory = Directory(20)
    directory.insert(build_chain(("old", 10)))
    directory.insert(build_chain(("new", 10)))
    directory.resize(12)
    assert (len(directory), directory.match(build_chain(("old", 10)))) == (12, 2)
    directory.resize(20)
    assert len(directory) == 12


def test_a_growing_conversation_stays_one_node() -> None:
    """Turn after turn, also when a partial block is left behind each time, the path does not fall to pieces."""
    directory = Directory(1000)
    for turn in range(1, 20):
        directory.insert([*build_chain(("talk", 5 * turn)), f"partial-{turn}".encode()])
    directory.resize(5 * 19 + 1)
    directory.insert(build_chain(("talk", 5 * 19)))
    assert len(directory._tree) <= 2
    directory.check_integrity()


@pytest.mark.parametrize("shared", [1, 2, 3, 7, 8])
def test_where_two_chains_part_is_found_by_halving(shared: int) -> None:
    """The number of common blocks, from any position."""
    node = build_chain(("node", 8))
    chain = [b"before", *node[:shared], b"x", b"y"][: 1 + shared + 1]
    assert common_blocks(node, chain, 1) == shared


def test_damage_is_noticed() -> None:
    """`check_integrity` is not a formality."""
    directory = Directory(10)
    directory.insert(build_chain(("a", 5)))
    directory.bound_blocks = 3
    with pytest.raises(AssertionError, match="more than its bound"):
        directory.check_integrity()


@pytest.mark.parametrize("damage", ["count", "age", "link", "orphan"])
def test_a_damaged_tree_is_noticed(damage: str) -> None:
    """Counts, links and ages are all looked at."""
    tree = ChainTree()
    upper = tree.add(tree.root, build_chain(("a", 3)))
    lower = tree.add(upper, [b"b"])
    tree.touch([upper, lower])
    tree.check_integrity()
    if damage == "count":
        tree.blocks += 1
    elif damage == "age":
        tree.touch([lower])
    elif damage == "link":
        del upper.children[b"b"]
    else:
        upper.children[b"c"] = lower
    with pytest.raises(AssertionError):
        tree.check_integrity()


def test_dropping_from_an_empty_tree_drops_nothing() -> None:
    """Nothing there is not an error."""
    assert ChainTree().drop_oldest(5) == 0
    assert ChainTree().trim(0) == 0
