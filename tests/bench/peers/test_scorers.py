"""llm-d, AIBrix and production-stack: sums, filters, and how old what they look at may be."""

import pytest

from bench.peers.aibrix import AiBrixPrefix
from bench.peers.llmd import LlmdApproximate, LlmdExact, LlmdSticky
from bench.peers.production_stack import LoadAware, PrefixAware
from bench.peers.scraped import Scraper, spread
from tests.bench.peers.builders import Fleet, build_request, load_up

SETTINGS = Fleet().settings


def test_llmd_weighs_the_share_of_the_prompt_against_queues_and_cache():
    """A whole match outweighs the longest queue, a small one does not."""
    whole, part = Fleet(held={1: "abcd"}, queues={1: 9}), Fleet(held={1: "a"}, queues={1: 9})
    assert LlmdExact(SETTINGS).choose(build_request("abcd"), 0.0, whole) == 1
    assert LlmdExact(SETTINGS).choose(build_request("abcd"), 0.0, part) != 1


def test_llmd_prefers_free_cache_when_nothing_else_tells():
    """Two of seven points."""
    assert LlmdExact(SETTINGS).choose(build_request("ab"), 0.0, Fleet(active={0: 50, 1: 20, 2: 60})) == 1


def test_llmd_approximate_goes_back_to_where_it_sent_a_prompt():
    """Its guess needs no events."""
    peer = LlmdApproximate(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    assert [peer.choose(build_request("abcde", number), 0.0, Fleet()) for number in (1, 2, 3)] == [worker] * 3


def test_a_scrape_is_kept_until_it_is_old():
    """Within 50 ms the last answer counts, whatever the truth."""
    scraper = Scraper(0.05, 100)
    assert scraper.look(0.0, Fleet(queues={1: 3}))[1].waiting == 3
    assert scraper.look(0.04, Fleet(queues={1: 8}))[1].waiting == 3
    assert scraper.look(0.05, Fleet(queues={1: 8}))[1].waiting == 8


def test_a_newcomer_is_asked_at_once():
    """Nobody is scored without an answer."""
    scraper = Scraper(0.05, 100)
    scraper.look(0.0, Fleet(workers=2))
    assert set(scraper.look(0.01, Fleet(workers=3))) == {0, 1, 2}


def test_equal_queues_all_score_one():
    """And else the longest none."""
    assert spread([4, 4])(4) == 1.0
    assert [spread([0, 2, 4])(value) for value in (0, 2, 4)] == [1.0, 0.5, 0.0]


def test_sticky_stays_while_the_penalty_is_under_18_seconds():
    """At 8,000 tokens a second that is 144,000 tokens."""
    peer = LlmdSticky(SETTINGS)
    worker = peer.choose(build_request("abcdefghij"), 0.0, Fleet())
    peer._queued_tokens[worker] = 140_000
    assert peer.choose(build_request("abcdefghij", 1), 0.0, Fleet()) == worker
    peer._queued_tokens[worker] = 150_000
    assert peer.choose(build_request("abcdefghij", 2), 0.0, Fleet()) != worker


def test_sticky_lets_go_of_less_than_80_percent():
    """Then the fewest tokens to prefill decide."""
    peer = LlmdSticky(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    assert peer.choose(build_request("abcxyz", 1), 0.0, Fleet()) != worker


def test_sticky_books_a_prefill_until_its_first_token():
    """And not longer."""
    peer, request = LlmdSticky(SETTINGS), build_request("abcd")
    worker = peer.choose(request, 0.0, Fleet())
    assert peer._queued_tokens[worker] == 2048
    peer.first_token(request, 1.0)
    assert peer._queued_tokens[worker] == 0


def test_aibrix_takes_the_longest_match_unless_that_one_is_too_busy():
    """Mean + f sigma, over all."""
    settings = SETTINGS
    peer = AiBrixPrefix(settings, imbalance=1000, deviations=1.0)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    assert peer.choose(build_request("abcd", 1), 1.0, Fleet(flights={worker: 0})) == worker
    assert peer.choose(build_request("abcd", 2), 2.0, Fleet(flights={worker: 90})) != worker


def test_aibrix_looks_only_at_the_idlest_when_loads_differ_by_more_than_16():
    """A match elsewhere is not seen."""
    peer = AiBrixPrefix(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    others = {other: 20 for other in range(3) if other != worker}
    assert peer.choose(build_request("abcd", 1), 1.0, Fleet(flights=others)) == worker
    assert peer.choose(build_request("abcd", 2), 2.0, Fleet(flights={worker: 17})) != worker


def test_production_stack_looks_at_no_load():
    """A prompt goes to whoever was sent its beginning, and to anybody when it is cold."""
    peer = PrefixAware(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    load_up(peer, worker, 1000)
    assert peer.choose(build_request("axyz", 1), 0.0, Fleet()) == worker


@pytest.mark.parametrize(("busier", "stays"), [(1, True), (30, False)])
def test_load_aware_gives_up_a_match_for_too_much_load(busier: int, stays: bool):
    """The share matched against the excess over the mean."""
    peer = LoadAware(SETTINGS)
    worker = peer.choose(build_request("abcd"), 0.0, Fleet())
    for other in range(3):
        load_up(peer, other, 10)
    load_up(peer, worker, busier)
    assert (peer.choose(build_request("abcd", 1), 0.0, Fleet()) == worker) is stays
