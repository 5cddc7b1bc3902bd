"""The product's policies under replay: what a router is told, and how gateways hear of each other."""

from __future__ import annotations

import pytest

from router.replay.choosers import ALL_SEEING, RouterChooser, build_chooser, router_chooser
from router.replay.core import Churn, Probing
from router.replay.oracle import LeastRequests, LeastWork, Oracle
from router.replay.simulate import replay
from router.router import Router
from router.settings import RouterSettings
from tests.router.replay.replay_builders import Ask, Scripted, build_settings, build_trace

SETTINGS = build_settings(workers=4)


class Overheard(Router):
    """A router that writes down what it is told, and when."""

    def __init__(self) -> None:
        super().__init__(RouterSettings(learn=False))
        self.told: list[tuple[str, str, float]] = []

    def place(self, prompt, fleet, now, **arguments):
        self.told.append(("place", arguments["request_id"], now))
        return super().place(prompt, fleet, now, **arguments)

    def first_token(self, request_id, now):
        self.told.append(("own first_token", request_id, now))
        super().first_token(request_id, now)

    def finished(self, request_id, now, **usage):
        self.told.append(("own end", request_id, now))
        return super().finished(request_id, now, **usage)

    def heard(self, news, now=None):
        self.told.append((news.kind, news.request_id, now))
        super().heard(news, now)


def build_gateways(count: int, delay: float | None, seed: int = 1) -> tuple[RouterChooser, list[Overheard]]:
    """A chooser of some gateways, and their routers."""
    routers = [Overheard() for _ in range(count)]
    return RouterChooser(routers, SETTINGS, delay, seed), routers


def build_busy_trace(requests: int = 40):
    """A request every 0.4 s, five prefixes."""
    return build_trace(*[Ask(0.4 * number, f"{'abcde'[number % 5]}.x.{number}") for number in range(requests)])


def test_the_router_is_told_what_really_happens():
    """Placed when it comes, first token and end when they come."""
    chooser, (router,) = build_gateways(1, 0.0)
    outcomes = replay(build_busy_trace(5), chooser, SETTINGS).outcomes
    for one in outcomes:
        mine = [(what, when) for what, request_id, when in router.told if request_id == str(one.number)]
        assert [what for what, _ in mine] == ["place", "own first_token", "own end"]
        times = [one.sent_at_seconds + after for after in (0.0, one.ttft_seconds, one.total_seconds)]
        assert [when for _, when in mine] == pytest.approx(times)
    router.check_integrity()
    assert router.stats().in_flight == 0


def test_a_router_told_the_truth_predicts_it():
    """Rates and cache sizes are given: what is cached is as predicted, request for request."""
    chooser, (router,) = build_gateways(1, 0.0)
    replay(build_busy_trace(), chooser, SETTINGS)
    stats = router.stats()
    assert stats.predictions == 40
    assert stats.predicted_cached_tokens == stats.reported_cached_tokens > 0


def test_every_request_has_one_gateway_by_the_seed():
    """All gateways get some; another seed deals otherwise."""
    shares = []
    for seed in (1, 2):
        chooser, routers = build_gateways(3, None, seed)
        replay(build_busy_trace(), chooser, SETTINGS)
        shares.append([[request for what, request, _ in router.told if what == "place"] for router in routers])
        assert sorted(int(request) for share in shares[-1] for request in share) == list(range(40))
        assert all(len(share) > 5 for share in shares[-1])
    assert shares[0] != shares[1]


@pytest.mark.parametrize("delay", [0.0, 0.05, 3.0])
def test_the_others_hear_of_a_request_after_the_delay(delay):
    """The placement, the first token and the end, in order; the one that placed it hears nothing."""
    chooser, routers = build_gateways(2, delay)
    outcomes = replay(build_busy_trace(), chooser, SETTINGS).outcomes
    for one in outcomes[:20]:
        told = [[entry for entry in router.told if entry[1] == str(one.number)] for router in routers]
        own, other = sorted(told, key=lambda entries: entries[0][0] != "place")
        assert [what for what, _, _ in own] == ["place", "own first_token", "own end"]
        assert [what for what, _, _ in other] == ["placed", "first_token", "ended"]
        assert [when for _, _, when in other] == pytest.approx([when + delay for _, _, when in own])
    for router in routers:
        times = [when for _, _, when in router.told]
        assert times == sorted(times)


def test_nothing_shared_is_nothing_heard():
    """Gateways that learn alone."""
    chooser, routers = build_gateways(3, None)
    replay(build_busy_trace(), chooser, SETTINGS)
    assert not {what for router in routers for what, _, _ in router.told} & {"placed", "first_token", "ended"}


def test_gateways_that_hear_at_once_find_what_the_others_left():
    """Four that tell each other hit as often as one."""
    hits = []
    for gateways in (1, 4):
        chooser, _ = build_gateways(gateways, 0.0)
        hits.append(sum(one.cached_tokens for one in replay(build_busy_trace(80), chooser, SETTINGS).outcomes))
    assert hits[1] == pytest.approx(hits[0], rel=0.1)


def test_workers_that_come_and_go_are_seen_by_all_gateways():
    """Nobody is sent to one that has left; one that has come gets its share."""
    churn = [Churn(4.0, 0, joins=False), Churn(6.0, 4, joins=True), Churn(9.0, 0, joins=True)]
    chooser, routers = build_gateways(2, 0.05)
    outcomes = replay(build_busy_trace(60), chooser, SETTINGS, churn=churn).outcomes
    sent = [(one.worker, one.sent_at_seconds) for one in outcomes]
    assert not [at for worker, at in sent if worker == 0 and 4.0 < at < 9.0]
    assert [at for worker, at in sent if worker == 4]
    for router in routers:
        router.check_integrity()


def test_a_worker_that_comes_again_is_known_to_be_empty():
    """Nothing that was cached before it left is predicted; what is still in flight from then may end as it likes."""
    churn = [Churn(7.0, 0, joins=False), Churn(7.5, 0, joins=True)]
    chooser, (router,) = build_gateways(1, 0.0)
    replay(build_busy_trace(60), chooser, SETTINGS, churn=churn)
    stats = router.stats()
    assert stats.predicted_cached_tokens == stats.reported_cached_tokens > 0
    router.check_integrity()


def test_gateways_look_in_turn():
    """Two gateways that look every second: one of them every half second, and the other's picture is old."""
    chooser = router_chooser("homing", SETTINGS, gateways=2, news_delay_seconds=None, probe_seconds=1.0)
    assert isinstance(chooser, Probing)
    assert chooser.probe_seconds == 0.5
    pictures = []
    for turn in range(2):
        chooser.probed(0.5 * turn, Crowded())
        pictures.append([[view.waiting for view in gateway.fleet.workers] for gateway in chooser._gateways])
    assert pictures == [[[0, 10, 20, 30], [None] * 4], [[0, 10, 20, 30]] * 2]


def test_a_replay_with_probes_shows_what_waits():
    """Requests that all come at once fill the queues; the look at the end finds them empty again."""
    chooser = router_chooser("homing", SETTINGS, gateways=2, news_delay_seconds=None, probe_seconds=1.0)
    trace = build_trace(*[Ask(0.6, f"{number}.x.y.z") for number in range(20)])
    replay(trace, chooser, SETTINGS)
    assert [[view.waiting for view in gateway.fleet.workers] for gateway in chooser._gateways] == [[0] * 4] * 2


class Crowded:
    """A truth in which ten times the worker's number wait."""

    def waiting(self, worker: int) -> int:
        return 10 * worker


def test_without_probes_nobody_looks():
    """A chooser that needs no probes is not asked to make any."""
    assert not isinstance(router_chooser("homing", SETTINGS), Probing)
    assert not isinstance(Scripted(), Probing)


@pytest.mark.parametrize(("name", "kind"), [*ALL_SEEING.items(), ("homing", RouterChooser), ("chwbl", RouterChooser)])
def test_choosers_are_built_by_name(name, kind):
    """The router's policies, and those that see everything."""
    assert type(build_chooser(name, SETTINGS)) is kind


def test_an_unknown_name_is_refused_with_those_there_are():
    """The error says what could be meant."""
    with pytest.raises(ValueError, match=r"no chooser is called 'homming'; there are homing, .*oracle"):
        build_chooser("homming", SETTINGS)


class Known:
    """A truth that a test makes up: work ahead, in flight and expected tokens by worker."""

    def __init__(self, work=(0.0, 0.0, 0.0), requests=(0, 0, 0), expected=(0, 0, 0)) -> None:
        self.settings = build_settings(workers=3)
        self.present = (0, 1, 2)
        self.work, self.requests, self.expected = work, requests, expected

    def work_seconds(self, worker, now):
        return self.work[worker]

    def in_flight(self, worker):
        return self.requests[worker]

    def expected_tokens(self, worker, prompt):
        return self.expected[worker]


REQUEST = build_trace(Ask(0.0, "a.b.c.d.e")).requests[0]


@pytest.mark.parametrize(
    ("truth", "price", "choice"),
    [
        (Known(work=(0.5, 0.3, 0.4)), 2.0, 1),
        (Known(work=(0.5, 0.3, 0.4), expected=(200, 0, 0)), 2.0, 0),
        (Known(work=(0.5, 0.3, 0.4), expected=(200, 0, 0)), 0.5, 1),
        (Known(work=(0.4, 0.0, 0.0), expected=(200, 0, 0)), 2.0, 0),
    ],
)
def test_the_oracle_weighs_work_ahead_against_its_own(truth, price, choice):
    """500 tokens are 0.5 s: a price on them; where all is the same, the one with the least own work."""
    assert Oracle(price).choose(REQUEST, 0.0, truth) == choice


@pytest.mark.parametrize(
    ("chooser", "truth", "tied"),
    [
        (Oracle(), Known(work=(1.0, 0.0, 0.0)), {1, 2}),
        (LeastWork(), Known(work=(0.0, 0.0, 0.2)), {0, 1}),
        (LeastRequests(), Known(requests=(3, 2, 2)), {1, 2}),
    ],
)
def test_ties_are_broken_by_the_dice(chooser, truth, tied):
    """Each of the equals now and then, nobody else ever."""
    assert {chooser.choose(REQUEST, 0.0, truth) for _ in range(60)} == tied
