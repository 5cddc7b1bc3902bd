"""Chains on their way: the longest shared prefix of any of them, whatever comes and goes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from router.pending_chains import PendingChains
from tests.router.placement_builders import build_chain

CHAINS = [
    build_chain(("head", 3)),
    build_chain(("head", 3), ("a", 4)),
    build_chain(("head", 3), ("a", 4), ("b", 2)),
    build_chain(("head", 3), ("c", 1)),
    build_chain(("other", 5)),
    build_chain(("head", 1), ("d", 6)),
]


def shared(one: list[bytes], other: list[bytes]) -> int:
    """How many leading blocks two chains have in common."""
    count = 0
    while count < min(len(one), len(other)) and one[count] == other[count]:
        count += 1
    return count


def test_equal_chains_are_counted():
    """Two requests with one prompt: the first to go leaves the other's."""
    pending = PendingChains()
    for _ in range(2):
        pending.add(CHAINS[1])
    pending.remove(CHAINS[1])
    assert (pending.match(CHAINS[2]), len(pending)) == (7, 1)
    pending.remove(CHAINS[1])
    assert (pending.match(CHAINS[2]), len(pending)) == (0, 0)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, len(CHAINS) - 1)), max_size=40))
def test_any_sequence_equals_a_list_of_chains(steps):
    """After anything: the best of all that are in, by comparing one by one."""
    pending, inside = PendingChains(), []
    for add, which in steps:
        if add:
            pending.add(CHAINS[which])
            inside.append(CHAINS[which])
        elif CHAINS[which] in inside:
            pending.remove(CHAINS[which])
            inside.remove(CHAINS[which])
        pending.check_integrity()
        assert len(pending) == len(inside)
        for chain in CHAINS:
            assert pending.match(chain) == max((shared(chain, other) for other in inside), default=0)
