"""Balancers that know nothing of prefixes."""

from collections import Counter

from bench.peers.plain import LeastRequests, PowerOfTwo, RandomWorker, RoundRobin
from tests.bench.peers.builders import Fleet, build_request, load_up

SETTINGS = Fleet().settings


def test_round_robin_takes_each_in_its_turn():
    """Three workers, four requests: the first one again."""
    peer = RoundRobin(SETTINGS)
    assert [peer.choose(build_request("a", number), 0.0, Fleet()) for number in range(4)] == [0, 1, 2, 0]


def test_random_reaches_all_and_depends_on_the_seed_alone():
    """Two of one seed choose the same."""
    chosen = [
        [peer.choose(build_request("a", number), 0.0, Fleet()) for number in range(60)]
        for peer in (RandomWorker(SETTINGS, 5), RandomWorker(SETTINGS, 5), RandomWorker(SETTINGS, 6))
    ]
    assert chosen[0] == chosen[1] != chosen[2]
    assert set(chosen[0]) == {0, 1, 2}


def test_least_requests_counts_what_it_sent_and_what_ended():
    """An ended request makes room."""
    peer = LeastRequests(SETTINGS)
    sent = [peer.choose(build_request("a", number), 0.0, Fleet()) for number in range(3)]
    assert sorted(sent) == [0, 1, 2]
    peer.finished(build_request("a", 1), 1.0, 0)
    assert peer.choose(build_request("a", 3), 1.0, Fleet()) == sent[1]


def test_power_of_two_never_takes_the_busiest_of_all():
    """Two different workers are compared, so the single busiest always loses."""
    peer = PowerOfTwo(SETTINGS)
    load_up(peer, 1, 1000)
    chosen = Counter(peer.choose(build_request("a", number), 0.0, Fleet()) for number in range(50))
    assert set(chosen) == {0, 2}
