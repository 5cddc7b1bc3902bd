"""Tree peers: thresholds, the fleet-wide switch, the gate, and what a miss does."""

import pytest

from bench.peers.trees import CacheAware, RayPrefix, SmgEvents, SmgGate
from tests.bench.peers.builders import Fleet, build_request, load_up

SETTINGS = Fleet().settings


def seen(peer, blocks: str, number: int = 0) -> int:
    return peer.choose(build_request(blocks, number), 0.0, Fleet())


def test_cache_aware_follows_the_last_that_was_sent_it():
    """Above the threshold load does not matter."""
    peer = CacheAware(SETTINGS)
    worker = seen(peer, "abcd")
    load_up(peer, worker, 60)
    assert seen(peer, "abce", 1) == worker


def test_cache_aware_drops_affinity_for_all_when_one_worker_is_far_busier():
    """65 more than another switches it off for a prompt that lives on a third."""
    peer = CacheAware(SETTINGS)
    worker = seen(peer, "abcd")
    busy, idle = (other for other in range(3) if other != worker)
    load_up(peer, busy, 66)
    load_up(peer, worker, 5)
    assert seen(peer, "abcd", 1) == idle


@pytest.mark.parametrize(("threshold", "follows"), [(0.3, True), (0.5, False)])
def test_cache_aware_wants_more_than_its_threshold(threshold: float, follows: bool):
    """Two of five blocks are more than 0.3 and not more than 0.5."""
    peer = CacheAware(SETTINGS, threshold=threshold)
    worker = seen(peer, "abcde")
    load_up(peer, worker, 10)
    assert (seen(peer, "abxyz", 1) == worker) is follows


def test_a_miss_of_the_historical_kind_goes_to_the_smallest_tree_however_busy():
    """The death spiral's step."""
    peer = CacheAware(SETTINGS, on_miss="smallest_tree")
    first = seen(peer, "abcdef")
    second = seen(peer, "ghijkl", 1)
    third = 3 - first - second
    load_up(peer, third, 50)
    assert seen(peer, "mn", 2) == third


def test_a_tree_is_cut_to_its_size_at_the_eviction_interval():
    """Before it, nothing is forgotten."""
    peer = CacheAware(SETTINGS, tree_blocks=2, eviction_seconds=30.0)
    worker = peer.choose(build_request("abcd"), 1.0, Fleet())
    assert peer.tree.blocks_of(worker) == 4
    peer.evict(31.0, Fleet())
    assert peer.tree.blocks_of(worker) == 2


def test_smg_gates_the_one_request_whose_worker_is_over_both_bounds():
    """And remembers it where it went: a hot prefix gains a holder."""
    peer = SmgGate(SETTINGS)
    worker = seen(peer, "abcd")
    load_up(peer, worker, 200)
    other = seen(peer, "abcd", 1)
    assert other != worker
    assert set(peer.tree.holders(b"abcd", [0, 1, 2])) == {worker, other}


def test_smg_takes_the_least_busy_holder():
    """Not the last one."""
    peer = SmgGate(SETTINGS)
    peer.tree.insert(build_request("abcd").prompt.exact_blocks, 0)
    peer.tree.insert(build_request("abcd").prompt.exact_blocks, 1)
    load_up(peer, 1, 3)
    load_up(peer, 0, 2)
    assert seen(peer, "abcd") == 0


def test_smg_with_events_goes_by_what_is_really_held():
    """Most overlap wins; without any, the quietest."""
    peer = SmgEvents(SETTINGS)
    assert peer.choose(build_request("abcd"), 0.0, Fleet(held={1: "ab", 2: "abc"})) == 2
    assert peer.choose(build_request("wxyz", 1), 0.0, Fleet(held={1: "ab"})) == 0


def test_ray_takes_the_shortest_queue_among_holders_and_the_smallest_tree_without():
    """Its threshold is a tenth."""
    peer = RayPrefix(SETTINGS)
    worker = seen(peer, "abcd")
    load_up(peer, worker, 100)
    assert seen(peer, "abcx", 1) == worker
    assert seen(peer, "qrst", 2) != worker


def test_old_ray_draws_two_by_lot_when_queues_differ_by_more_than_ten():
    """Affinity is off; the busiest of the three is never the better of two."""
    peer = RayPrefix(SETTINGS, imbalance=10.0)
    worker = seen(peer, "abcd")
    load_up(peer, worker, 50)
    assert worker not in {seen(peer, "abcd", number) for number in range(1, 20)}
