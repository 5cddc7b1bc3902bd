"""Peers that compare costs: Dynamo, LMetric, Preble."""

from bench.peers.dynamo import Dynamo, DynamoApproximate, DynamoLmetric
from bench.peers.lmetric import Lmetric
from bench.peers.preble import Preble
from tests.bench.peers.builders import Fleet, build_request, load_up

SETTINGS = Fleet().settings


def test_dynamo_credits_what_a_worker_holds():
    """Blocks to prefill, less those."""
    assert Dynamo(SETTINGS).choose(build_request("abcd"), 0.0, Fleet(held={2: "abc"})) == 2


def test_dynamo_counts_a_block_that_two_requests_hold_once():
    """So a request that shares active blocks is cheap where they are active."""
    peer = Dynamo(SETTINGS)
    worker = peer.choose(build_request("abcdefgh"), 0.0, Fleet())
    peer.first_token(build_request("abcdefgh"), 1.0)
    assert peer._active_with(build_request("abcdefgh").prompt.exact_blocks, worker) == 8
    assert peer._active_with(build_request("abcdefxy").prompt.exact_blocks, worker) == 10


def test_dynamo_books_prefill_until_the_first_token_and_blocks_until_the_end():
    """Then it owes nothing."""
    peer, request = Dynamo(SETTINGS), build_request("abcd")
    worker = peer.choose(request, 0.0, Fleet())
    assert peer._prefill_blocks[worker] == 4
    peer.first_token(request, 1.0)
    assert peer._prefill_blocks[worker] == 0
    assert len(peer._active[worker]) == 4
    peer.finished(request, 2.0, 0)
    assert not peer._active[worker]


def test_dynamo_without_events_forgets_after_two_minutes():
    """What it sent is held for 120 s."""
    peer, request = DynamoApproximate(SETTINGS), build_request("abcd")
    worker = peer.choose(request, 0.0, Fleet())
    assert peer.held_blocks(request, 119.0, Fleet())[worker] == 4
    assert peer.held_blocks(request, 121.0, Fleet())[worker] == 0


def test_dynamos_lmetric_multiplies():
    """A whole match costs nothing to prefill, so it wins against any load."""
    peer = DynamoLmetric(SETTINGS)
    peer._active[1] = {f"{number}".encode(): 1 for number in range(500)}
    fleet = Fleet(held={1: "abcdx"})
    assert peer.choose(build_request("abcd"), 0.0, fleet) != 1
    assert peer.cost(0.0, 500) == 0.0


def test_lmetric_weighs_uncached_tokens_by_requests():
    """Half the tokens make up for twice the requests, and not for more."""
    peer = Lmetric(SETTINGS)
    for worker, load in ((0, 4), (1, 4), (2, 6)):
        load_up(peer, worker, load)
    assert peer.choose(build_request("abcd"), 0.0, Fleet(held={2: "abc"})) == 2
    load_up(peer, 2, 30)
    assert peer.choose(build_request("abcd", 1), 0.0, Fleet(held={2: "abc"})) != 2


def test_lmetric_may_count_what_waits():
    """Then a worker with tokens ahead is passed over."""
    peer = Lmetric(SETTINGS, with_queued=True)
    first = peer.choose(build_request("a" * 90), 0.0, Fleet())
    load_up(peer, first, -1)
    assert peer.choose(build_request("xyz", 1), 0.0, Fleet()) != first


def test_preble_exploits_a_match_of_more_than_half():
    """And explores with less: then the least given wins."""
    peer = Preble(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    assert peer.choose(build_request("abcx", 1), 0.1, Fleet()) == worker
    assert peer.choose(build_request("awxy", 2), 0.2, Fleet()) != worker


def test_preble_leaves_a_holder_that_was_given_far_too_much():
    """Twice the least and five seconds more, with more than one request in flight."""
    peer = Preble(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    load_up(peer, worker, 2)
    peer._given_seconds[worker] += 6.0
    assert peer.choose(build_request("abcd", 1), 0.1, Fleet()) != worker


def test_preble_forgets_what_it_gave_three_minutes_ago():
    """The window moves on."""
    peer = Preble(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    assert peer._given_seconds[worker] > 0
    peer._forget_old(worker, 181.0)
    assert abs(peer._given_seconds[worker]) < 1e-9
